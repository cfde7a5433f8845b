"""Keys of systems that stages have as options, too; a kind of system declares its other keys (`cort/systems`)."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Literal, NamedTuple, TypeAlias

from cort.runtime.keys import section, setting
from cort.settings.fields import as_key
from cort.settings.lexical import LexicalIndex
from cort.settings.tuning import Folds

#: types of the numbers of a vector
Storage: TypeAlias = Literal["fp32", "fp16", "int8"]


@section
class Parameters:
    """Parameters of BM25."""

    k1: float = as_key(LexicalIndex, "k1", default=MISSING)
    """Term frequency saturation."""
    b: float = as_key(LexicalIndex, "b", default=MISSING)
    """Length normalisation."""


@section
class ExactSearch:
    """Exact search over the vectors of an encoder, or over smaller ones made from them."""

    retrieve: str
    dimension: int | None = setting(None, "search with fewer numbers of each vector", "N", ge=1, le=65_536)
    """With an encoder and exact search, search so many numbers of each vector (see `matryoshka`)."""
    storage: Storage | None = setting(None, "search with numbers of this type, instead of the stored one")
    """With an encoder and exact search, search numbers of this type, made from the stored ones."""


class Reduced(NamedTuple):
    """How exact search makes the vectors of an encoder smaller, if it does.

    :ivar dimension: numbers of a vector; None: all.
    :ivar storage: their type; None: that in which they are stored.
    :ivar first: whether they are the first ones, instead of principal components.
    """

    dimension: int | None = None
    storage: str | None = None
    first: bool = False


#: searches the vectors as they are stored
WHOLE = Reduced()


@section
class Width:
    """Keys of every search whose width an audit can choose."""

    recall: float | None = setting(None, "with --audit: of exact retrieval", "R", gt=0, le=1)
    """With `auto`, recall of the exact top `depth` to reach, as audited on `validation`, or on the evaluated split
    without one; 0.99 by default."""


@section
class OnngSearch(Width):
    """Search of an ONNG."""

    epsilon: float | Literal["auto"] = setting(0.1, ge=-1, le=100)
    """Width of the search: the distance explored is (1 + epsilon) times that of the worst result. `auto`: the smallest
    of `audit.epsilons` that reaches `recall`."""


@section
class HnswSearch(Width):
    """Search of an HNSW index."""

    ef: int | Literal["auto"] = setting(1000, ge=1, le=1_000_000)
    """Width of the search, `depth` or more. `auto`: the smallest of `audit.efs` that reaches `recall`."""


@section
class IvfPqSearch(Width):
    """Search of an IVF-PQ index."""

    probes: int | Literal["auto"] = setting(32, ge=1, le=100_000_000)
    """Lists read per query, or per query token (nprobe). `auto`: the smallest of `audit.probes` that reaches `recall`.
    """
    candidates: int = setting(1024, ge=1, le=10_000_000)
    """Nearest vectors taken per query (`depth` or more), or per query token; their passages are scored exactly."""


@section
class Fusing:
    """How the rankings of several systems are merged."""

    systems: tuple[str, ...] = setting(names="systems", unique=True, least=2)
    """Systems to merge, in order."""
    method: str = setting("interleave", "how the rankings are merged")
    """`interleave` as above; `rrf`, reciprocal rank fusion: by the sum of 1 / (k + rank) over the rankings with the
    document; or `linear`: by the weighted sum of normalised scores."""
    k: int = setting(60, "constant of rrf, which adds 1 / (k + rank)", "N", ge=1, le=100_000)
    """With `rrf`, the constant k: the larger it is, the less the top ranks count."""
    normalization: str = setting("min-max", "of linear: how scores are normalised")
    """With `linear`, how the scores of a query are normalised: `min-max`, from 0 to 1 over the results of each system,
    or `z-score`, to mean 0 and standard deviation 1. A document missing from a system's results gets the score of its
    lowest result; with `min-max`, less than that if BM25 or a sparse encoder has found all documents with a term of the
    query, fewer than `depth`: then 0 stands for the score 0, which the others have."""
    weights: tuple[float, ...] | str | None = setting(
        None, "of linear: one per run (default: equal)", "X", ge=0, le=1000, least=2
    )
    """With `linear`, one number per system, in order, or the file of another experiment's weights for systems of these
    names, `results/<dataset>/weights/<system>.json`. Equal by default."""
    tune: str | Folds | None = setting(None, measures=True)
    """With `linear`, choose the weights by this measure on `validation`, in steps of 0.05 (0.1 for more than two
    systems), or `{measure: ..., folds: 5}` by cross-validation on each evaluated split. Splits without judgements and
    searches use the weights chosen on all queries of the first such split."""


@section
class Reranking:
    """How the top candidates of a system are re-ranked."""

    rerank: str = setting(names="systems")
    """System whose top candidates are re-ranked."""
    reranker: str | None = setting(None, names="rerankers")
    """Name under `rerankers`."""
    depth: int | None = setting(None, ge=1, le=100_000)
    """With `rerank`, candidates to score and re-rank, by default the re-ranker's `depth`; the others follow in their
    order."""
    weight: float | None = setting(None, "of the re-ranker's scores against the run's own, 0 to 1", "X", ge=0, le=1)
    """Weight of the re-ranker's scores; those of the re-ranked system get 1 minus it. Both are scaled from 0 to 1 over
    the candidates of a query. By default 1; 0 keeps the order."""
    tune: str | Folds | None = setting(None, measures=True)
    """With `rerank`, choose `weight` by this measure on `validation`, in steps of 0.05, or `{measure: ..., folds: 5}`
    by cross-validation, as for `fuse`."""
