"""Methods that merge the rankings of a query (`FUSIONS`): the settings of each, and its function.

An entry adds a method. It scores the documents that any of the merged rankings has, the `Pool`, for many queries at
once. The rankings are those of the components, the systems that are merged.

The workflow imports this module, too, so it imports no numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field

from cort.config.systems import Folds, Merged
from cort.runtime.sections import MEASURE, Maybe, Section, Several, Text

if TYPE_CHECKING:
    from cort.formats.runs import Run
    from cort.retrieval.pool import FusionSettings, Pool, Scores

Weight: TypeAlias = Annotated[float, Field(ge=0, le=1000)]
# Defaults: the constant of reciprocal ranks (Cormack et al., 2009), and a re-ranker's weight.
K, WEIGHT = 60, 1
QUERIES_PER_BLOCK = 200


class Constant(Section):
    """A setting of reciprocal rank fusion."""

    k: int = Field(K, ge=1, le=100_000)
    """With `rrf`, the constant k: the larger it is, the less the top ranks count."""


class Normalized(Section):
    """A setting of methods that add scores."""

    normalization: Literal["min-max", "z-score"] = "min-max"
    """With `linear`, how the scores of a query are normalised: `min-max`, from 0 to 1 over the results of each system,
    or `z-score`, to mean 0 and standard deviation 1. A document missing from a system's results gets the score of its
    lowest result; with `min-max`, less than that if BM25 or a sparse encoder has found all documents with a term of the
    query, fewer than `depth`: then 0 stands for the score 0, which the others have."""


class Interleaving(Merged):
    """The method interleave."""

    method: Literal["interleave"] = "interleave"
    """`interleave` as above; `rrf`, reciprocal rank fusion: by the sum of 1 / (k + rank) over the rankings with the
    document; or `linear`: by the weighted sum of normalised scores."""


class ReciprocalRanks(Merged, Constant):
    """The method rrf."""

    method: Literal["rrf"]


class Linear(Merged, Normalized):
    """The method linear."""

    method: Literal["linear"]
    weights: Maybe[Annotated[Several[Weight], Field(min_length=2)] | Text] = None
    """With `linear`, one number per system, in order, or the file of another experiment's weights for systems of these
    names, `results/<dataset>/weights/<system>.json`. Equal by default."""
    tune: Annotated[Maybe[Text | Folds], MEASURE] = None
    """With `linear`, choose the weights by this measure on `validation`, in steps of 0.05 (0.1 for more than two
    systems), or `{measure: ..., folds: 5}` by cross-validation on each evaluated split. Splits without judgements and
    searches use the weights chosen on all queries of the first such split."""


def interleave(pool: Pool, settings: FusionSettings) -> Scores:
    """Take the first document of each ranking in their order, then the second of each, and so on; scores are 1/rank.

    A document that is already there is omitted, and none takes its turn: [a, b, c, d] and [a, e, f, g] give a, b, e, c.
    Exhausted rankings are skipped (CoRT paper, section 3.4).
    """
    import numpy as np

    from cort.retrieval.pool import grouped

    ranks, count = pool.ranks(), len(pool.runs)
    turns = np.where(ranks > 0, ranks * count + np.arange(count)[:, None], np.iinfo(np.int64).max).min(axis=0)
    by = grouped(pool.queries, np.argsort(turns))
    sizes = np.bincount(pool.queries)
    scores = np.empty(len(by))
    scores[by] = 1 / (np.arange(1, len(by) + 1) - np.repeat(np.cumsum(sizes) - sizes, sizes))
    return scores


def reciprocal_ranks(pool: Pool, settings: FusionSettings) -> Scores:
    """Add 1 / (k + rank) over the rankings that have a document (Cormack et al. 2009)."""
    import numpy as np

    ranks = pool.ranks()
    terms = np.where(ranks > 0, 1 / (settings.k + ranks), 0)
    if len(terms) == 2:
        total: Scores = terms.sum(axis=0)
        return total
    # `fsum` rounds once: equal terms have equal sums, whatever their order.
    return np.array([math.fsum(own) for own in terms.T.tolist()])


def linear(pool: Pool, settings: FusionSettings) -> Scores:
    """Add normalised scores by weights (Bruch et al. 2023)."""
    from cort.retrieval.pool import weigh

    return weigh(pool.scores(settings), pool.weights(settings))


@dataclass(frozen=True)
class Fusion:
    """A method that merges rankings.

    :ivar score: scores the documents of a pool, by which they are ranked.
    :ivar section: its settings.
    :ivar needs_all: whether the top k depend on more than the top k of each ranking.
    """

    score: Callable[[Pool, FusionSettings], Scores]
    section: type[Merged]
    needs_all: bool

    @property
    def settings(self) -> set[str]:
        """Name the keys that it takes."""
        return set(self.section.model_fields)


FUSIONS: Mapping[str, Fusion] = {
    "interleave": Fusion(interleave, Interleaving, needs_all=False),
    "rrf": Fusion(reciprocal_ranks, ReciprocalRanks, needs_all=True),
    "linear": Fusion(linear, Linear, needs_all=True),
}


def fuse(method: str, runs: Sequence[Run], depth: int, settings: FusionSettings) -> Run:
    """Merge the rankings of each query by a method of `FUSIONS`; the runs have the same queries in the same order."""
    from cort.retrieval.pool import Pool

    pool = Pool.of(runs)
    return pool.ranked(FUSIONS[method].score(pool, settings), depth)


def aligned(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Divide runs into blocks of the same queries, in order of first appearance; some rankings may be empty."""
    import numpy as np

    places = [{query_id: place for place, query_id in enumerate(run.query_ids)} for run in runs]
    query_ids = list(dict.fromkeys(query_id for run in runs for query_id in run.query_ids))
    for start in range(0, len(query_ids), QUERIES_PER_BLOCK):
        block = query_ids[start : start + QUERIES_PER_BLOCK]
        yield [
            run.select(block, np.array([own.get(query_id, -1) for query_id in block]))
            for run, own in zip(runs, places, strict=True)
        ]


def fuse_runs(method: str, runs: Sequence[Run], depth: int, settings: FusionSettings) -> Iterator[Run]:
    """Merge the rankings of every query answered by any run, block by block."""
    return (fuse(method, block, depth, settings) for block in aligned(runs))
