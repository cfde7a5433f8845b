"""Check what is measured, compared, timed, submitted and deployed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cort.config.comparisons import pairs
from cort.config.deployment import MOST, deployed_parts
from cort.config.entries import listed
from cort.config.evaluation import MOST_RESAMPLES, RUN_ID, SUBMITTED, Consistency, Latency, Submission, TrecRun
from cort.config.experiment import Experiment
from cort.runtime.errors import check_name


def check_evaluation(experiment: Experiment) -> Iterator[str]:
    """Check that contrasts are of two systems."""
    for pair in experiment.evaluation.contrasts:
        if len(set(pair)) < len(pair):
            yield f"evaluation.contrasts: found {pair[0]} against itself, expected two systems; name another"


def check_outputs(experiment: Experiment) -> Iterator[str]:
    """Check submissions, deployments, comparisons and consistency factors."""
    yield from _check_deployments(experiment)
    for name, submission in experiment.root.submissions.items():
        yield from _check_submission(f"submissions.{name}", name, submission, experiment)
    evaluation = experiment.evaluation
    for pair in evaluation.contrasts:
        names = [*pair, evaluation.baseline]
        shared = any({*names} <= {*experiment.compared(split)} for split in experiment.evaluated_splits)
        if experiment.evaluated_splits and not shared:
            found = f"{' and '.join(pair)}, which share no split with each other and {evaluation.baseline}"
            yield f"evaluation.contrasts: found {found}, expected one that is evaluated; name others"
    yield from _check_resamples(experiment)
    if evaluation.consistency:
        yield from _check_consistency(evaluation.consistency, experiment)


def _check_deployments(experiment: Experiment) -> Iterator[str]:
    for name, deployment in experiment.root.deploy.items():
        place, system = f"deploy.{name}", deployment.system
        known = [other for other in experiment.systems if deployed_parts(experiment, other)]
        if system not in known:
            deployable = "BM25 over plain passages, exact dense search, or fuse of both by rrf or min-max linear"
            yield f"{place}.system: found {system!r}, expected one of {listed(known)} ({deployable}); name one"
        if experiment.depth > MOST:
            fix = "lower it or remove the deployment"
            yield f"depth: found {experiment.depth}, expected at most {MOST} with {place}; {fix}"


def _check_resamples(experiment: Experiment) -> Iterator[str]:
    """Refuse so few resamples that the smallest p, 1 / (resamples + 1), is not significant after Holm's correction."""
    evaluation = experiment.evaluation
    baseline, resamples, alpha = evaluation.baseline, evaluation.resamples, evaluation.alpha
    counts = {}
    for split in experiment.evaluated_splits:
        others = {pair for own in pairs(experiment, split).values() for pair in own if pair[1] != baseline}
        counts[split] = max(sum(name != baseline for name in experiment.compared(split)), len(others))
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


def _check_submission(place: str, name: str, entry: Submission, experiment: Experiment) -> Iterator[str]:
    splits, split, system = experiment.ranked_splits, entry.split, entry.system
    yield from check_name(f"{place}.split", split, splits)
    if split in splits and split not in experiment.splits_of(system):
        yield (
            f"{place}: found {system!r}, which has no run on {split}, expected one that has; "
            "add its run file or name another"
        )
    if isinstance(entry, TrecRun) and not entry.run_id and not re.fullmatch(RUN_ID, name):
        yield f"{place}: found no run_id, expected one, as the name has other than letters, digits, - and _; add it"
    if (depth := experiment.depth) > SUBMITTED:
        expected = f"at most {SUBMITTED} with {place}"
        yield f"depth: found {depth}, expected {expected}; lower it or remove the submission"


def _check_consistency(consistency: Consistency, experiment: Experiment) -> Iterator[str]:
    reference, place = consistency.reference, "evaluation.consistency.systems"
    for name in consistency.systems:
        if {*experiment.splits_of(reference)}.isdisjoint(experiment.splits_of(name)):
            yield f"{place}: found {name}, which shares no split with {reference}; name another"


def check_latency(latency: Latency, experiment: Experiment) -> Iterator[str]:
    """Check whose searches are measured."""
    yield from check_name("latency.split", latency.split, experiment.ranked_splits)
    known = experiment.searchable
    for name in latency.systems:
        if name in experiment.systems and name not in known:
            yield f"latency.systems: found {name}, made from a published run, which cannot be searched; remove it"
        else:
            yield from check_name("latency.systems", name, known)
