"""A check that several classes of systems share, and indexes."""

from __future__ import annotations

from collections.abc import Iterator

from cort.config.lexical import GridSearch
from cort.config.systems import Folds
from cort.systems.results import Results


def check_tuning(place: str, tune: str | Folds | GridSearch | None, results: Results) -> Iterator[str]:
    """Check that something can be tuned: on queries with judgements, with runs deep enough.

    :param tune: a measure for validation queries, or settings for training queries or folds; None if nothing is tuned.
    """
    if tune is None:
        return
    if not isinstance(tune, str):
        if tune.folds is None and "train" not in results.splits:
            yield f"{place}: found no split train, expected training queries to tune on; add the split"
        if tune.folds and not results.evaluated_splits:
            yield f"{place}: found no split with judgements, expected one to cross-validate on; add qrels"
        return
    if "validation" not in results.splits:
        yield f"{place}: found no split validation, expected validation queries to tune on; add the split"
    depth, training_depth = results.depth, results.training_depth
    if training_depth > depth:
        yield (
            f"{place}: found training_depth {training_depth}, expected at most depth ({depth}), which runs of "
            "validation have with it; lower training_depth or raise depth"
        )
