"""Ways of merging rankings of one query into one. An entry in `FUSIONS` adds one.

The workflow reads this module as well: it imports nothing that is slow to import.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cort.retrieval.normalization import Scores, normalize, weigh

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cort.formats.records import Ranking
    from cort.formats.runs import Run

Merged: TypeAlias = "tuple[list[str], npt.NDArray[np.float64]]"


class Settings(NamedTuple):
    """What the methods can be told.

    :ivar k: of reciprocal ranks; keeps the first ranks from deciding all.
    :ivar normalization: of the scores that are added, one of `NORMALIZATIONS`.
    :ivar weights: of the rankings, in their order; without any all have the same.
    """

    k: int = 60
    normalization: str = "min-max"
    weights: tuple[float, ...] = ()


def interleave(rankings: Sequence[Sequence[str]], depth: int) -> Merged:
    """Merge rankings position by position, the first-named first, leaving out documents already taken.

    A ranking that ends is skipped from there on. Scores are 1/rank (CoRT paper, section 3.4).
    """
    import numpy as np

    count, longest = len(rankings), max(map(len, rankings), default=0)
    # Enough where not too many documents are in several rankings; if not, more.
    places = min(longest, 3 * depth // (2 * max(count, 1)) + 1)
    while True:
        turns: list[Any] = [None] * (count * places)
        for number, ranking in enumerate(rankings):
            part = ranking[:places]
            turns[number : count * len(part) : count] = part
        # A dictionary keeps the order in which its keys first came.
        merged = dict.fromkeys(turns)
        merged.pop(None, None)
        if len(merged) >= depth or places == longest:
            doc_ids = list(itertools.islice(merged, depth))
            return doc_ids, 1.0 / np.arange(1, len(doc_ids) + 1)
        places = min(longest, 2 * places)


def reciprocal_ranks(rankings: Sequence[Sequence[str]], depth: int, k: int = 60) -> Merged:
    """Order documents by the sum of 1 / (k + rank) over the rankings that have them (Cormack et al. 2009), then id."""
    import numpy as np

    terms: dict[str, list[float]] = {}
    for ranking in rankings:
        for rank, doc_id in enumerate(ranking, start=1):
            terms.setdefault(doc_id, []).append(1 / (k + rank))
    # `fsum` rounds once: equal terms have equal sums, whatever their order.
    best = sorted((-math.fsum(parts), doc_id) for doc_id, parts in terms.items())[:depth]
    return [doc_id for _, doc_id in best], -np.array([score for score, _ in best], dtype=np.float64)


def on_one_scale(rankings: Sequence[Ranking], normalization: str) -> tuple[list[str], list[Scores]]:
    """List all documents of several rankings by id, and for each ranking the normalised scores of all of them.

    Documents that a ranking does not have count as its lowest: with `min-max` 0, as a term that is left out.
    """
    import numpy as np

    doc_ids = sorted(set().union(*(ranking.doc_ids for ranking in rankings)))
    rows = {doc_id: row for row, doc_id in enumerate(doc_ids)}
    parts = []
    for ranking in rankings:
        scores, missing = normalize(ranking.scores, normalization)
        part = np.full(len(doc_ids), missing)
        part[[rows[doc_id] for doc_id in ranking.doc_ids]] = scores
        parts.append(part)
    return doc_ids, parts


def linear(rankings: Sequence[Ranking], depth: int, settings: Settings) -> Merged:
    """Order documents by the weighted sum of their normalised scores (Bruch et al. 2023), then id."""
    import numpy as np

    doc_ids, parts = on_one_scale(rankings, settings.normalization)
    scores = weigh(parts, settings.weights or (1 / len(rankings),) * len(rankings))
    # The sort is stable, and the documents are in the order of their ids.
    by = np.argsort(-scores, kind="stable")[:depth]
    return [doc_ids[row] for row in by.tolist()], scores[by]


@dataclass(frozen=True)
class Fusion:
    """A way of merging rankings.

    :ivar merge: merges several rankings of one query, to so many documents at most, with scores that do not increase.
    :ivar needs_all: whether the first results depend on more than as many first ones of each ranking.
    :ivar settings: keys of the config that it takes.
    """

    merge: Callable[[Sequence[Ranking], int, Settings], Merged]
    needs_all: bool
    settings: tuple[str, ...] = ()


def _ids(rankings: Sequence[Ranking]) -> list[list[str]]:
    return [ranking.doc_ids for ranking in rankings]


FUSIONS: Mapping[str, Fusion] = {
    "interleave": Fusion(lambda rankings, depth, _: interleave(_ids(rankings), depth), needs_all=False),
    "rrf": Fusion(
        lambda rankings, depth, settings: reciprocal_ranks(_ids(rankings), depth, settings.k),
        needs_all=True,
        settings=("k",),
    ),
    "linear": Fusion(linear, needs_all=True, settings=("normalization", "weights", "tune")),
}


def fuse(method: str, query_id: str, rankings: Sequence[Ranking], depth: int, settings: Settings) -> Ranking:
    """Merge the rankings of one query by a method of `FUSIONS`."""
    from cort.formats.records import Ranking

    return Ranking(query_id, *FUSIONS[method].merge(rankings, depth, settings))


def rankings_of(runs: Sequence[Run]) -> Iterator[tuple[str, list[Ranking]]]:
    """Yield every query that any run answers, in order of first mention, with its ranking in each run."""
    by_query = [run.by_query() for run in runs]
    for query_id in dict.fromkeys(query_id for run in runs for query_id in run.query_ids):
        yield query_id, [run.ranking(query_id) for run in by_query]


def fuse_runs(method: str, runs: Sequence[Run], depth: int, settings: Settings) -> Iterator[Ranking]:
    """Merge the rankings of every query that any run answers."""
    for query_id, rankings in rankings_of(runs):
        yield fuse(method, query_id, rankings, depth, settings)
