"""Check systems and models against the runs that they need: of which queries, how deep, and tuned on what."""

from __future__ import annotations

from collections.abc import Iterator

from cort.config.entries import LEARNERS
from cort.config.experiment import Experiment
from cort.config.learners import Learner


def check_systems(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each mistake."""
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
    yield from _check_sources(experiment)


def _check_sources(experiment: Experiment) -> Iterator[str]:
    """Check the systems that models draw negatives from."""
    for section, source in LEARNERS.items():
        for name, model in experiment.models[section].items():
            if isinstance(model, Learner):
                for system in model.examples.systems:
                    yield from _check_source(f"{section}.{name}.{source}", system, model, experiment)


def _check_source(place: str, system: str, model: Learner, experiment: Experiment) -> Iterator[str]:
    """Check that a system can rank the training queries, as deep as a model draws negatives."""
    if system not in experiment.searchable:
        yield (
            f"{place}.system: found {system!r}, made from a published run, expected a system that can rank the "
            "training queries; name another"
        )
    elif experiment.draws_deeply(model) and not experiment.has_any_depth(system):
        yield (
            f"{place}.last_rank: found {model.examples.last_rank}, expected at most training_depth "
            f"({experiment.training_depth}) with {system!r}, which is not exact search or merged from it; lower it or "
            "raise training_depth"
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
    depths = {"depth": experiment.depth, "training_depth": experiment.training_depth}
    for name, system in experiment.systems.items():
        key = max(depths, key=depths.__getitem__) if name in experiment.negative_sources else "depth"
        if (kept := system.kept()) and kept[1] < depths[key]:
            expected = f"{depths[key]} ({key}) or more"
            yield f"{system.place}.{kept[0]}: found {kept[1]}, expected {expected}; raise it or lower {key}"
