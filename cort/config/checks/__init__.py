"""Check how the parts of an experiment's config refer to each other, in the order of this file.

Names that exist twice or nowhere, and circles, end the check: what follows goes from part to part.
"""

from __future__ import annotations

from collections.abc import Iterator

from cort.config.checks.circles import check_circles
from cort.config.checks.lexical import check_lexical
from cort.config.checks.models import check_base_models, check_conflicts, check_models, check_own_names
from cort.config.checks.outputs import check_evaluation, check_latency, check_outputs
from cort.config.checks.rules import check_rules
from cort.config.checks.splits import check_aggregation, check_apart, check_collection, check_judges
from cort.config.checks.systems import check_systems
from cort.config.downloads import check_names
from cort.config.experiment import Experiment
from cort.config.files import check_braces
from cort.systems.registry import check_entry

__all__ = ["check_conflicts", "check_references"]


def check_references(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each mistake; all parts have the right shape."""
    lines = list(check_own_names(experiment)) or list(_check_parts(experiment))
    yield from lines or list(check_circles(experiment)) or _check_whole(experiment)


def _check_parts(experiment: Experiment) -> Iterator[str]:
    """Check each part for itself, and the names of others in it."""
    yield from check_rules(experiment.root)
    yield from check_collection(experiment)
    yield from check_braces(experiment)
    yield from check_names(experiment)
    yield from check_lexical(experiment)
    yield from check_base_models(experiment)
    yield from check_models(experiment)
    for name in experiment.root.systems:
        yield from check_entry(experiment, name)
    yield from check_evaluation(experiment)


def _check_whole(experiment: Experiment) -> Iterator[str]:
    """Check what follows from several parts: the splits, depths and files of systems that are made of others."""
    yield from check_systems(experiment)
    yield from check_aggregation(experiment)
    yield from check_apart(experiment)
    yield from check_judges(experiment)
    # Without ranked splits, there are no outputs to check.
    yield from check_outputs(experiment) if experiment.ranked_splits else []
    if latency := experiment.root.latency:
        yield from check_latency(latency, experiment)
