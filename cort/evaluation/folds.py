"""Folds of the queries of a split, for cross-validation."""

from collections.abc import Iterable
from pathlib import Path

from cort.runtime.errors import input_error
from cort.runtime.sampling import sample


def draw_folds(query_ids: Iterable[str], folds: int, seed: int, source: str | Path) -> list[list[str]]:
    """Divide queries at random into folds whose sizes differ by one at most; only the set of ids and the seed matter.

    :param source: the file of their judgements, named in errors.
    """
    ids = [*query_ids]
    if len(ids) < folds:
        found, fix = f"{len(ids)} judged queries", "lower folds or bring more judgements"
        raise input_error(source, found, f"{folds} or more, one per fold", fix)
    drawn = sample(ids, len(ids), seed)
    return [sorted(drawn[number::folds]) for number in range(folds)]
