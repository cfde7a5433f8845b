"""Ways of merging rankings of one query into one. An entry in `FUSIONS` adds one.

The workflow reads this module as well: it imports nothing that is slow to import.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cort.formats.records import Ranking
    from cort.formats.runs import Run

Merged: TypeAlias = "tuple[list[str], npt.NDArray[np.float64]]"

# The constant of Cormack et al.: what keeps the first ranks from deciding all.
RRF_CONSTANT = 60


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


def reciprocal_ranks(rankings: Sequence[Sequence[str]], depth: int) -> Merged:
    """Order documents by the sum of 1 / (60 + rank) over the rankings that have them (Cormack et al. 2009), then id."""
    import numpy as np

    terms: dict[str, list[float]] = {}
    for ranking in rankings:
        for rank, doc_id in enumerate(ranking, start=1):
            terms.setdefault(doc_id, []).append(1 / (RRF_CONSTANT + rank))
    # `fsum` rounds once: equal terms have equal sums, whatever their order.
    best = sorted((-math.fsum(parts), doc_id) for doc_id, parts in terms.items())[:depth]
    return [doc_id for _, doc_id in best], -np.array([score for score, _ in best], dtype=np.float64)


@dataclass(frozen=True)
class Fusion:
    """A way of merging rankings.

    :ivar merge: merges the document ids of several rankings, best first, to so many at most, with scores that do not
        increase.
    :ivar needs_all: whether the first results depend on more than as many first ones of each ranking.
    """

    merge: Callable[[Sequence[Sequence[str]], int], Merged]
    needs_all: bool


FUSIONS: Mapping[str, Fusion] = {
    "interleave": Fusion(interleave, needs_all=False),
    "rrf": Fusion(reciprocal_ranks, needs_all=True),
}


def fuse(method: str, query_id: str, rankings: Sequence[Sequence[str]], depth: int) -> Ranking:
    """Merge the rankings of one query by a method of `FUSIONS`."""
    from cort.formats.records import Ranking

    return Ranking(query_id, *FUSIONS[method].merge(rankings, depth))


def fuse_runs(method: str, runs: Sequence[Run], depth: int) -> Iterator[Ranking]:
    """Merge the rankings of every query that any run answers."""
    by_query = [run.by_query() for run in runs]
    query_ids = dict.fromkeys(query_id for run in runs for query_id in run.query_ids)
    for query_id in query_ids:
        yield fuse(method, query_id, [rankings[query_id] for rankings in by_query], depth)
