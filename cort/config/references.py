"""Check how the parts of an experiment's config refer to each other: names, files, ranks, depths, circles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from cort.config.comparisons import pairs
from cort.config.deployment import check_deployments
from cort.config.downloads import check_names
from cort.config.entries import LEARNERS, Config, is_trained, sources
from cort.config.evaluation import MOST_RESAMPLES, RUN_ID, SUBMITTED
from cort.config.experiment import Experiment
from cort.config.lexical_checks import check_lexical
from cort.config.model_checks import check_base_models, check_models, check_own_names
from cort.config.rule_checks import check_rules
from cort.config.split_checks import check_aggregation, check_apart, check_collection, check_judges
from cort.runtime.errors import check_name
from cort.systems.registry import check_entry

# The name of a system, and whether its run of the training queries is meant, which depends on less than evaluated runs.
Node: TypeAlias = tuple[str, bool]


def check_references(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each mistake.

    Names that exist twice or nowhere, and circles, end the check: what follows goes from part to part.

    :param experiment: its config has defaults, and all parts have the right shape.
    """
    lines = list(check_own_names(experiment.config)) or list(_check_parts(experiment))
    yield from lines or list(_check_circles(experiment)) or _check_whole(experiment)


def _check_parts(experiment: Experiment) -> Iterator[str]:
    """Check each part for itself, and the names of others in it."""
    yield from check_rules(experiment.root, experiment.config)
    yield from check_collection(experiment)
    yield from check_names(experiment)
    yield from check_lexical(experiment)
    yield from check_base_models(experiment)
    yield from check_models(experiment)
    for name in experiment.config["systems"]:
        yield from check_entry(experiment, name)
    yield from _check_evaluation(experiment.config["evaluation"])


def _check_circles(experiment: Experiment) -> Iterator[str]:
    for circle in _find_circles(experiment):
        yield (
            f"systems.{circle[0]}: found the circle {' -> '.join(circle)}, expected no system to wait for itself; "
            "break it, or copy a re-ranker that several of them share under another name"
        )


def _check_whole(experiment: Experiment) -> Iterator[str]:
    """Check what follows from several parts: the splits, depths and files of systems that are made of others."""
    yield from _check_splits(experiment)
    yield from check_aggregation(experiment)
    yield from check_apart(experiment)
    yield from check_judges(experiment)
    # Without ranked splits, there are no outputs to check.
    yield from _check_outputs(experiment) if experiment.ranked_splits else []
    if "latency" in experiment.config:
        yield from _check_latency(experiment.config["latency"], experiment)


def _find_circles(experiment: Experiment) -> list[list[str]]:
    """Find systems whose runs depend on themselves: through parts, models, training data or shared scores.

    :returns: the names in each circle, the first repeated at the end; a set of systems has only one circle.
    """
    circles: dict[frozenset[str], list[str]] = {}
    done: set[Node] = set()

    def visit(node: Node, path: list[Node]) -> None:
        if node in path:
            circle = [name for name, _ in [*path[path.index(node) :], node]]
            circles.setdefault(frozenset(circle), circle)
        elif node not in done:
            for needed in _needs(experiment, node):
                visit(needed, [*path, node])
            done.add(node)

    for name in experiment.systems:
        visit((name, False), [])
    return list(circles.values())


def _needs(experiment: Experiment, node: Node) -> Iterator[Node]:
    name, training = node
    system = experiment.systems[name]
    for part in system.parts():
        yield part, training
        if system.learns():
            yield part, True
    for section, model in experiment.models_of(name):
        settings = experiment.config[section][model]
        if is_trained(settings):
            yield from ((source, True) for source in sources(settings[LEARNERS[section]]))
    if reranker := system.reranker():
        # The scores of a re-ranker are one file per split, over the candidates of all its systems.
        for split in {training, training or system.learns()}:
            for other, candidate in experiment.systems.items():
                if candidate.reranker() == reranker and (not split or other in experiment.validated):
                    yield from ((part, split) for part in candidate.parts())


def _check_splits(experiment: Experiment) -> Iterator[str]:
    for name in experiment.systems:
        if experiment.ranked_splits and not experiment.splits_of(name):
            yield f"systems.{name}: found no split its published runs share, expected one at least; add run files"
    for name in experiment.tuned_systems:
        for part in experiment.systems[name].parts():
            if part not in experiment.searchable:
                yield (
                    f"systems.{name}: found tune with {part!r}, made from a published run, expected systems that can "
                    "rank the validation queries; give weights or name another"
                )
    yield from _check_folds(experiment)
    yield from _check_kept(experiment)
    for section, source in LEARNERS.items():
        for name, model in experiment.config[section].items():
            for system in sources(model[source]) if is_trained(model) else ():
                if system not in experiment.searchable:
                    yield (
                        f"{section}.{name}.{source}.system: found {system!r}, made from a published run, expected a "
                        "system that can rank the training queries; name another"
                    )


def _check_folds(experiment: Experiment) -> Iterator[str]:
    """Refuse that the judgements of a query reach what is tuned for it, or a model, by way of other queries."""
    folded = [name for name, system in experiment.systems.items() if system.folds()]
    fix = "give it fixed values"
    for name in folded:
        for part in {*experiment.with_parts([name])[1:]}.intersection(folded):
            yield f"systems.{name}: found {part!r}, also cross-validated, expected one of them, or labels leak; {fix}"
    for name in {*experiment.validated}.intersection(folded):
        found = f"{name!r} cross-validated, on whose runs others are trained or tuned"
        yield f"systems.{name}: found {found}, expected evaluated queries to teach nothing else; {fix}"


def _check_kept(experiment: Experiment) -> Iterator[str]:
    """Refuse searches that keep fewer candidates than a run has: of a split, or of queries that models learn from."""
    config = experiment.config
    deeper = config["training_depth"] > config["depth"]
    for name, system in experiment.systems.items():
        key = "training_depth" if deeper and name in experiment.negative_sources else "depth"
        if (kept := system.kept()) and kept[1] < config[key]:
            expected = f"{config[key]} ({key}) or more"
            yield f"{system.place}.{kept[0]}: found {kept[1]}, expected {expected}; raise it or lower {key}"


def _check_evaluation(evaluation: Config) -> Iterator[str]:
    for pair in evaluation["contrasts"]:
        if len(set(pair)) < len(pair):
            yield f"evaluation.contrasts: found {pair[0]} against itself, expected two systems; name another"


def _check_outputs(experiment: Experiment) -> Iterator[str]:
    """Check submissions, deployments and consistency factors."""
    yield from check_deployments(experiment)
    for name, submission in experiment.config["submissions"].items():
        yield from _check_submission(f"submissions.{name}", name, submission, experiment)
    evaluation = experiment.config["evaluation"]
    for pair in evaluation["contrasts"]:
        names = [*pair, evaluation["baseline"]]
        shared = any({*names} <= {*experiment.compared(split)} for split in experiment.evaluated_splits)
        if experiment.evaluated_splits and not shared:
            found = f"{' and '.join(pair)}, which share no split with each other and {evaluation['baseline']}"
            yield f"evaluation.contrasts: found {found}, expected one that is evaluated; name others"
    yield from _check_resamples(evaluation, experiment)
    if "consistency" in evaluation:
        yield from _check_consistency(evaluation["consistency"], experiment)


def _check_resamples(evaluation: Config, experiment: Experiment) -> Iterator[str]:
    """Refuse so few resamples that the smallest p, 1 / (resamples + 1), is not significant after Holm's correction."""
    baseline, resamples, alpha = (evaluation[key] for key in ("baseline", "resamples", "alpha"))
    counts = {}
    for split in experiment.evaluated_splits:
        both = {(name, baseline) for name in experiment.compared(split)}.union(*pairs(experiment, split).values())
        counts[split] = sum(first != second for first, second in both)
    split, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    if 1 / (resamples + 1) * count <= alpha:
        return
    most = MOST_RESAMPLES
    why = f"so that any of {count} comparisons on {split} can be significant"
    # As p-values are corrected, to the last bit.
    if least := next((number for number in range(resamples, most + 1) if 1 / (number + 1) * count <= alpha), None):
        yield f"evaluation.resamples: found {resamples}, expected at least {least}, {why} at {alpha:g}; raise it"
    else:
        yield f"evaluation.alpha: found {alpha:g}, expected at least {count / most:g}, {why}; raise it"


def _check_submission(place: str, name: str, entry: Config, experiment: Experiment) -> Iterator[str]:
    splits, split, system = experiment.ranked_splits, entry["split"], entry["system"]
    yield from check_name(f"{place}.split", split, splits)
    if split in splits and split not in experiment.splits_of(system):
        yield (
            f"{place}: found {system!r}, which has no run on {split}, expected one that has; "
            "add its run file or name another"
        )
    if entry["form"] == "trec" and "run_id" not in entry and not re.fullmatch(RUN_ID, name):
        yield f"{place}: found no run_id, expected one, as the name has other than letters, digits, - and _; add it"
    if (depth := experiment.config["depth"]) > SUBMITTED:
        expected = f"at most {SUBMITTED} with {place}"
        yield f"depth: found {depth}, expected {expected}; lower it or remove the submission"


def _check_consistency(consistency: Config, experiment: Experiment) -> Iterator[str]:
    reference, place = consistency["reference"], "evaluation.consistency.systems"
    for name in consistency["systems"]:
        if {*experiment.splits_of(reference)}.isdisjoint(experiment.splits_of(name)):
            yield f"{place}: found {name}, which shares no split with {reference}; name another"


def _check_latency(latency: Config, experiment: Experiment) -> Iterator[str]:
    yield from check_name("latency.split", latency["split"], experiment.ranked_splits)
    known = experiment.searchable
    for name in latency["systems"]:
        if name in experiment.systems and name not in known:
            yield f"latency.systems: found {name}, made from a published run, which cannot be searched; remove it"
        else:
            yield from check_name("latency.systems", name, known)
