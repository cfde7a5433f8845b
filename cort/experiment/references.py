"""Check how the parts of an experiment's config refer to each other: names, files, ranks, depths, circles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from cort.experiment.comparisons import pairs
from cort.experiment.config import (
    compared,
    searchable,
    splits_of,
    tuned_systems,
    with_parts,
)
from cort.experiment.deployment import check_deployments
from cort.experiment.downloads import check_names
from cort.experiment.keys import Experiment
from cort.experiment.lexical import check_lexical
from cort.experiment.model_checks import check_base_models, check_models, check_own_names
from cort.experiment.models import models_of, teachers, validated
from cort.experiment.rules import check_rules
from cort.experiment.splits import (
    check_aggregation,
    check_apart,
    check_collection,
    check_judges,
)
from cort.runtime.errors import check_name
from cort.settings.config import LEARNERS, Config, evaluated_splits, is_trained, ranked_splits, sources
from cort.settings.evaluation import RUN_ID, SUBMITTED, Evaluation
from cort.settings.fields import schema_of
from cort.systems.registry import all_systems, check_entry, system_of

# The name of a system, and whether its run of the training queries is meant, which depends on less than evaluated runs.
Node: TypeAlias = tuple[str, bool]


def check_references(config: Config) -> Iterator[str]:
    """Yield a line for each mistake.

    Names that exist twice or nowhere, and circles, end the check: what follows goes from part to part.

    :param config: with defaults; all parts have the right shape.
    """
    lines = list(check_own_names(config)) or list(_check_parts(config)) or list(_check_circles(config))
    yield from lines or _check_whole(config)


def _check_parts(config: Config) -> Iterator[str]:
    """Check each part for itself, and the names of others in it."""
    yield from check_rules(config, schema_of(Experiment))
    yield from check_collection(config)
    yield from check_names(config)
    yield from check_lexical(config)
    yield from check_base_models(config)
    yield from check_models(config)
    for name in config["systems"]:
        yield from check_entry(config, name)
    yield from _check_evaluation(config["evaluation"])


def _check_circles(config: Config) -> Iterator[str]:
    for circle in _find_circles(config):
        yield (
            f"systems.{circle[0]}: found the circle {' -> '.join(circle)}, expected no system to wait for itself; "
            "break it, or copy a re-ranker that several of them share under another name"
        )


def _check_whole(config: Config) -> Iterator[str]:
    """Check what follows from several parts: the splits, depths and files of systems that are made of others."""
    yield from _check_splits(config)
    yield from check_aggregation(config)
    yield from check_apart(config)
    yield from check_judges(config)
    # Without ranked splits, there are no outputs to check.
    yield from _check_outputs(config) if ranked_splits(config) else []
    yield from _check_latency(config["latency"], config) if "latency" in config else []


def _find_circles(config: Config) -> list[list[str]]:
    """Find systems whose runs depend on themselves: through parts, models, training data or shared scores.

    :returns: the names in each circle, the first repeated at the end; a set of systems has only one circle.
    """
    circles: dict[frozenset[str], list[str]] = {}
    done: set[Node] = set()
    learning = set(validated(config))

    def visit(node: Node, path: list[Node]) -> None:
        if node in path:
            circle = [name for name, _ in [*path[path.index(node) :], node]]
            circles.setdefault(frozenset(circle), circle)
        elif node not in done:
            for needed in _needs(config, node, learning):
                visit(needed, [*path, node])
            done.add(node)

    for name in config["systems"]:
        visit((name, False), [])
    return list(circles.values())


def _needs(config: Config, node: Node, learning: set[str]) -> Iterator[Node]:
    name, training = node
    system = system_of(config, name)
    for part in system.parts():
        yield part, training
        if system.learns():
            yield part, True
    for section, model in models_of(config, system):
        if is_trained(config[section][model]):
            yield from ((source, True) for source in sources(config[section][model][LEARNERS[section]]))
    if reranker := system.reranker():
        # The scores of a re-ranker are one file per split, over the candidates of all its systems.
        for split in {training, training or system.learns()}:
            for other, candidate in all_systems(config).items():
                if candidate.reranker() == reranker and (not split or other in learning):
                    yield from ((part, split) for part in candidate.parts())


def _check_splits(config: Config) -> Iterator[str]:
    for name in config["systems"]:
        if ranked_splits(config) and not splits_of(config, name):
            yield f"systems.{name}: found no split its published runs share, expected one at least; add run files"
    for name in tuned_systems(config):
        for part in system_of(config, name).parts():
            if part not in searchable(config):
                yield (
                    f"systems.{name}: found tune with {part!r}, made from a published run, expected systems that can "
                    "rank the validation queries; give weights or name another"
                )
    yield from _check_folds(config)
    yield from _check_kept(config)
    for section, source in LEARNERS.items():
        for name, model in config[section].items():
            for system in sources(model[source]) if is_trained(model) else ():
                if system not in searchable(config):
                    yield (
                        f"{section}.{name}.{source}.system: found {system!r}, made from a published run, expected a "
                        "system that can rank the training queries; name another"
                    )


def _check_folds(config: Config) -> Iterator[str]:
    """Refuse that the judgements of a query reach what is tuned for it, or a model, by way of other queries."""
    folded = [name for name, system in all_systems(config).items() if system.folds()]
    fix = "give it fixed values"
    for name in folded:
        for part in {*with_parts(config, [name])[1:]}.intersection(folded):
            yield f"systems.{name}: found folds with {part!r}, tuned by folds, too, expected one of them to be; {fix}"
    for name in set(validated(config)).intersection(folded):
        found = f"{name!r} tuned by folds, on whose runs others are trained or tuned"
        yield f"systems.{name}: found {found}, expected evaluated queries to teach nothing else; {fix}"


def _check_kept(config: Config) -> Iterator[str]:
    """Refuse searches that keep fewer candidates than a run has: of a split, or of queries that models learn from."""
    learning, deeper = teachers(config), config["training_depth"] > config["depth"]
    for name, system in all_systems(config).items():
        key = "training_depth" if deeper and name in learning else "depth"
        if (kept := system.kept()) and kept.value < config[key]:
            expected = f"{config[key]} ({key}) or more"
            yield f"{kept.place}: found {kept.value}, expected {expected}; raise it or lower {key}"


def _check_evaluation(evaluation: Config) -> Iterator[str]:
    both = evaluation["disagreements"]
    if both and len(set(both)) < 2:
        yield f"evaluation.disagreements: found only {both[0]}, expected two systems or none; name another"
    for pair in evaluation["contrasts"]:
        if len(set(pair)) < len(pair):
            yield f"evaluation.contrasts: found {pair[0]} against itself, expected two systems; name another"


def _check_outputs(config: Config) -> Iterator[str]:
    """Check submissions, deployments and consistency factors."""
    yield from check_deployments(config)
    for name, submission in config["submissions"].items():
        yield from _check_submission(f"submissions.{name}", name, submission, config)
    evaluation = config["evaluation"]
    for pair in evaluation["contrasts"]:
        names = [*pair, evaluation["baseline"]]
        shared = any({*names} <= {*compared(config, split)} for split in evaluated_splits(config))
        if evaluated_splits(config) and not shared:
            found = f"{' and '.join(pair)}, which share no split with each other and {evaluation['baseline']}"
            yield f"evaluation.contrasts: found {found}, expected one that is evaluated; name others"
    yield from _check_resamples(evaluation, config)
    if "consistency" in evaluation:
        yield from _check_consistency(evaluation["consistency"], config)


def _check_resamples(evaluation: Config, config: Config) -> Iterator[str]:
    """Refuse so few resamples that the smallest p, 1 / (resamples + 1), is not significant after Holm's correction."""
    baseline, resamples, alpha = (evaluation[key] for key in ("baseline", "resamples", "alpha"))
    counts = {}
    for split in evaluated_splits(config):
        both = {(name, baseline) for name in compared(config, split)}.union(*pairs(config, split).values())
        counts[split] = sum(first != second for first, second in both)
    split, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    if 1 / (resamples + 1) * count <= alpha:
        return
    most = schema_of(Evaluation)["properties"]["resamples"]["maximum"]
    why = f"so that any of {count} comparisons on {split} can be significant"
    # As p-values are corrected, to the last bit.
    if least := next((number for number in range(resamples, most + 1) if 1 / (number + 1) * count <= alpha), None):
        yield f"evaluation.resamples: found {resamples}, expected at least {least}, {why} at {alpha:g}; raise it"
    else:
        yield f"evaluation.alpha: found {alpha:g}, expected at least {count / most:g}, {why}; raise it"


def _check_submission(place: str, name: str, entry: Config, config: Config) -> Iterator[str]:
    splits, split, system = ranked_splits(config), entry["split"], entry["system"]
    yield from check_name(f"{place}.split", split, splits)
    if split in splits and split not in splits_of(config, system):
        yield (
            f"{place}: found {system!r}, which has no run on {split}, expected one that has; "
            "add its run file or name another"
        )
    if entry["form"] == "msmarco" and "run_id" in entry:
        yield f"{place}.run_id: found run_id with the form msmarco, expected it with trec; remove it"
    if entry["form"] == "trec" and "run_id" not in entry and not re.fullmatch(RUN_ID, name):
        yield f"{place}: found no run_id, expected one, as the name has other than letters, digits, - and _; add it"
    if config["depth"] > SUBMITTED:
        expected = f"at most {SUBMITTED} with {place}"
        yield f"depth: found {config['depth']}, expected {expected}; lower it or remove the submission"


def _check_consistency(consistency: Config, config: Config) -> Iterator[str]:
    reference, place = consistency["reference"], "evaluation.consistency.systems"
    for name in consistency["systems"]:
        if set(splits_of(config, reference)).isdisjoint(splits_of(config, name)):
            yield f"{place}: found {name}, which shares no split with {reference}; name another"


def _check_latency(latency: Config, config: Config) -> Iterator[str]:
    yield from check_name("latency.split", latency["split"], ranked_splits(config))
    known = searchable(config)
    for name in latency["systems"]:
        if name in config["systems"] and name not in known:
            yield f"latency.systems: found {name}, made from a published run, which cannot be searched; remove it"
        else:
            yield from check_name("latency.systems", name, known)
