"""Methods that merge the rankings of a query (`FUSIONS`), and methods that normalise scores (`NORMALIZATIONS`).

An entry in either adds a method.

The workflow imports this module, too, so it imports nothing slow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cort.settings.systems import Fusing

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cort.formats.records import Ranking
    from cort.formats.runs import Run

Scores: TypeAlias = "npt.NDArray[np.float64]"
Merged: TypeAlias = "tuple[list[str], Scores]"
# The normalised scores of one ranking, and the score of missing documents.
Normalized: TypeAlias = "tuple[Scores, float]"
# Defaults of the config and of options: a method, its k (Cormack et al., 2009), a normalisation, a re-ranker's weight.
METHOD, K, NORMALIZATION = Fusing.method, Fusing.k, Fusing.normalization
WEIGHT = 1
NONE: Mapping[str, Any] = MappingProxyType({})
# Anserini lowers each tied score by this much more than the one before.
STEP = 1e-6


def min_max(scores: Scores) -> Normalized:
    """Scale scores from 0 (lowest) to 1 (highest); if all are equal, to 1. Missing documents get 0."""
    import numpy as np

    low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    return ((scores - low) / (high - low) if high > low else np.ones(len(scores))), 0.0


def z_score(scores: Scores) -> Normalized:
    """Scale scores to mean 0 and standard deviation 1; if all are equal, to 0. Missing documents get the lowest."""
    import numpy as np

    if not len(scores) or scores.max() == scores.min():
        return np.zeros(len(scores)), 0.0
    scaled = (scores - scores.mean()) / scores.std()
    return scaled, float(scaled.min())


NORMALIZATIONS: Mapping[str, Callable[[Scores], Normalized]] = {"min-max": min_max, "z-score": z_score}


def are_equal(scores: npt.NDArray[np.floating]) -> bool:
    """Tell whether the scores of a ranking are equal, but for the small steps by which run files keep ties in order."""
    import numpy as np

    steps = np.diff(np.sort(scores))
    # Of single precision; six decimals round Anserini's steps by up to three times as much.
    spacing = float(np.spacing(np.float32(np.abs(scores).max(initial=0))))
    return bool((steps <= spacing).all() or (np.abs(steps - STEP) <= 3 * spacing).all())


def normalize(scores: npt.NDArray[np.floating], method: str) -> Normalized:
    """Normalise the scores of one ranking by a method of `NORMALIZATIONS`.

    They are rounded to single precision, as in run files, so that live searches and runs agree.
    """
    import numpy as np

    rounded = np.asarray(scores, dtype=np.float32).astype(np.float64)
    return NORMALIZATIONS[method](np.zeros(len(rounded)) if are_equal(rounded) else rounded)


def weigh(parts: Sequence[Scores], weights: Sequence[float]) -> Scores:
    """Compute the weighted sum of several rankers' normalised scores of the same documents, in order."""
    import numpy as np

    total = np.zeros(len(parts[0]))
    for weight, scores in zip(weights, parts, strict=True):
        total += weight * scores
    return total


class Settings(NamedTuple):
    """Parameters of the methods.

    :ivar k: of reciprocal rank fusion; dampens the top ranks.
    :ivar normalization: of the scores that are added, one of `NORMALIZATIONS`.
    :ivar weights: of the rankings, in order; empty for equal weights.
    """

    k: int = K
    normalization: str = NORMALIZATION
    weights: tuple[float, ...] = ()


def interleave(rankings: Sequence[Sequence[str]], depth: int) -> Merged:
    """Merge rankings position by position, in their order, skipping documents that are already merged.

    Exhausted rankings are skipped. Scores are 1/rank (CoRT paper, section 3.4).
    """
    import numpy as np

    count, longest = len(rankings), max(map(len, rankings), default=0)
    # Enough unless many documents are in several rankings, in which case more positions are merged.
    places = min(longest, 3 * depth // (2 * max(count, 1)) + 1)
    while True:
        turns: list[Any] = [None] * (count * places)
        for number, ranking in enumerate(rankings):
            part = ranking[:places]
            turns[number : count * len(part) : count] = part
        # A dictionary keeps keys in the order of their first insertion.
        merged = dict.fromkeys(turns)
        merged.pop(None, None)
        if len(merged) >= depth or places == longest:
            doc_ids = list(itertools.islice(merged, depth))
            return doc_ids, 1.0 / np.arange(1, len(doc_ids) + 1)
        places = min(longest, 2 * places)


def reciprocal_ranks(rankings: Sequence[Sequence[str]], depth: int, k: int = 60) -> Merged:
    """Order documents by the sum of 1 / (k + rank) over their rankings (Cormack et al. 2009), then doc_id."""
    import numpy as np

    terms: dict[str, list[float]] = {}
    for ranking in rankings:
        for rank, doc_id in enumerate(ranking, start=1):
            terms.setdefault(doc_id, []).append(1 / (k + rank))
    # `fsum` rounds once: equal terms have equal sums, whatever their order.
    best = sorted((-math.fsum(parts), doc_id) for doc_id, parts in terms.items())[:depth]
    return [doc_id for _, doc_id in best], -np.array([score for score, _ in best], dtype=np.float64)


def on_one_scale(rankings: Sequence[Ranking], normalization: str) -> tuple[list[str], list[Scores]]:
    """List all documents of the rankings by doc_id, and the normalised scores of all of them in each ranking.

    Documents missing from a ranking get its lowest score: with `min-max` 0, as if the term were omitted.
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
    """Order documents by the weighted sum of their normalised scores (Bruch et al. 2023), then doc_id."""
    import numpy as np

    doc_ids, parts = on_one_scale(rankings, settings.normalization)
    scores = weigh(parts, settings.weights or (1 / len(rankings),) * len(rankings))
    # The sort is stable, and the documents are ordered by id.
    by = np.argsort(-scores, kind="stable")[:depth]
    return [doc_ids[row] for row in by.tolist()], scores[by]


@dataclass(frozen=True)
class Fusion:
    """A method that merges rankings.

    :ivar merge: merges the rankings of one query into at most `depth` documents, with non-increasing scores.
    :ivar needs_all: whether the top k depend on more than the top k of each ranking.
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
    """Yield every query answered by any run, in order of first appearance, with its ranking in each run."""
    by_query = [run.by_query() for run in runs]
    for query_id in dict.fromkeys(query_id for run in runs for query_id in run.query_ids):
        yield query_id, [run.ranking(query_id) for run in by_query]


def fuse_runs(
    method: str, runs: Sequence[Run], depth: int, settings: Settings, own: Mapping[str, tuple[float, ...]] = NONE
) -> Iterator[Ranking]:
    """Merge the rankings of every query answered by any run; some queries may have weights of their `own`."""
    for query_id, rankings in rankings_of(runs):
        chosen = settings._replace(weights=own.get(query_id, settings.weights))
        yield fuse(method, query_id, rankings, depth, chosen)
