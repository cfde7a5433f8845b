"""Keys of systems that stages have as options, too; a kind of system declares its other keys (`cort/systems`)."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from cort.config.fields import Storage
from cort.runtime.sections import MEASURE, UNIQUE, Maybe, Names, Section, Several, Text


class Folds(Section):
    """What is tuned for, and in how many folds."""

    measure: Annotated[Text, MEASURE]
    """Measure that the best weights maximise."""
    folds: int = Field(ge=2, le=1000)
    """Parts of a split's judged queries, drawn with the seed; values for each are chosen on the others."""


class Bm25Parameters(Section):
    """Parameters of BM25, for one system."""

    k1: float = Field(ge=0, le=1000)
    """Term frequency saturation."""
    b: float = Field(ge=0, le=1)
    """Length normalisation."""


class Retrieving(Section):
    """Keys of every search of what a model makes of the passages."""

    retrieve: Text


class ExactSearch(Retrieving):
    """Exact search over the vectors of an encoder, or over smaller ones made from them."""

    dimension: Maybe[int] = Field(None, ge=1, le=65_536)
    """With an encoder and exact search, search so many numbers of each vector (see `matryoshka`)."""
    storage: Maybe[Storage] = None
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


class Width(Section):
    """Keys of every search whose width an audit can choose."""

    recall: Maybe[float] = Field(None, gt=0, le=1)
    """With `auto`, recall of the exact top `depth` to reach, as audited on `validation`, or on the evaluated split
    without one; 0.99 by default."""


class OnngSearch(Width):
    """Search of an ONNG."""

    epsilon: Annotated[float, Field(ge=-1, le=100)] | Literal["auto"] = 0.1
    """Width of the search: the distance explored is (1 + epsilon) times that of the worst result. `auto`: the smallest
    of `audit.epsilons` that reaches `recall`."""


class HnswSearch(Width):
    """Search of an HNSW index."""

    ef: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["auto"] = 1000
    """Width of the search, `depth` or more. `auto`: the smallest of `audit.efs` that reaches `recall`."""


class IvfPqSearch(Width):
    """Search of an IVF-PQ index."""

    probes: Annotated[int, Field(ge=1, le=100_000_000)] | Literal["auto"] = 32
    """Lists read per query, or per query token (nprobe). `auto`: the smallest of `audit.probes` that reaches `recall`.
    """
    candidates: int = Field(1024, ge=1, le=10_000_000)
    """Nearest vectors taken per query (`depth` or more), or per query token; their passages are scored exactly."""


class Merged(Section):
    """Systems whose rankings are merged; a class for each method adds its settings (`cort/retrieval/fusion.py`)."""

    systems: Annotated[Several[Text], Names("systems"), UNIQUE] = Field(min_length=2)
    """Systems to merge, in order."""


class Reranking(Section):
    """How the top candidates of a system are re-ranked."""

    rerank: Annotated[Text, Names("systems")]
    """System whose top candidates are re-ranked."""
    reranker: Annotated[Maybe[Text], Names("rerankers")] = None
    """Name under `rerankers`."""
    depth: Maybe[int] = Field(None, ge=1, le=100_000)
    """With `rerank`, candidates to score and re-rank, by default the re-ranker's `depth`; the others follow in their
    order."""
    weight: Maybe[float] = Field(None, ge=0, le=1)
    """Weight of the re-ranker's scores; those of the re-ranked system get 1 minus it. Both are scaled from 0 to 1 over
    the candidates of a query. By default 1; 0 keeps the order."""
    tune: Annotated[Maybe[Text | Folds], MEASURE] = None
    """With `rerank`, choose `weight` by this measure on `validation`, in steps of 0.05, or `{measure: ..., folds: 5}`
    by cross-validation, as for `fuse`."""
