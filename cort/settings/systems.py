"""Systems: what is ranked and evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cort.settings.fields import setting


@dataclass(frozen=True, kw_only=True)
class Bm25Parameters:
    """Parameters of BM25."""

    k1: float = setting(ge=0, le=1000)
    """Term frequency saturation."""
    b: float = setting(ge=0, le=1)
    """Length normalisation."""


@dataclass(frozen=True, kw_only=True)
class OnngSearch:
    """Search of an ONNG."""

    epsilon: float | Literal["auto"] = setting(0.1, ge=-1, le=100)
    """Width of the search; the distance explored is (1 + epsilon) times that of the worst result. `auto` takes the
    smallest of `audit.epsilons` that reaches `recall`."""
    recall: float | None = setting(None, gt=0, le=1)
    """With `auto`, recall of the exact first `depth` to be reached, as audited on the split `validation`, or on the
    evaluated split if there is none; 0.99 if not set."""


@dataclass(frozen=True, kw_only=True)
class HnswSearch:
    """Search of an HNSW index."""

    ef: int | Literal["auto"] = setting(1000, ge=1, le=1_000_000)
    """Width of the search, the number of candidates it keeps; `depth` or more. `auto` takes the smallest of `audit.efs`
    that reaches `recall`."""
    recall: float | None = setting(None, gt=0, le=1)
    """With `auto`, recall of the exact first `depth` to be reached, as audited on the split `validation`, or on the
    evaluated split if there is none; 0.99 if not set."""


@dataclass(frozen=True, kw_only=True)
class IvfPqSearch:
    """Search of an IVF-PQ index of token vectors."""

    probes: int | Literal["auto"] = setting(32, ge=1, le=100_000_000)
    """Width of the search, the lists that are read for each token of a query (nprobe). `auto` takes the smallest of
    `audit.probes` that reaches `recall`."""
    candidates: int = setting(1024, ge=1, le=10_000_000)
    """Nearest vectors taken for each token of a query; the passages of all are scored."""
    recall: float | None = setting(None, gt=0, le=1)
    """With `auto`, recall of the exact first `depth` to be reached, as audited on the split `validation`, or on the
    evaluated split if there is none; 0.99 if not set."""


@dataclass(frozen=True, kw_only=True)
class Fusion:
    """How the rankings of several systems are merged."""

    systems: tuple[str, ...] = setting(least=2)
    """Names of the systems, in order."""
    method: str = "interleave"
    """`interleave` as above; `rrf`, reciprocal rank fusion: documents by the sum of 1 / (k + rank) over the rankings
    that have them; or `linear`: by the weighted sum of their normalised scores."""
    k: int = setting(60, ge=1, le=100_000)
    """With `rrf`, what keeps the first ranks from deciding all."""
    normalization: str = "min-max"
    """With `linear`, how the scores of a query come to one scale: `min-max`, from 0 to 1 over the results of each
    system, or `z-score`, to mean 0 and standard deviation 1. A document that a system did not find counts as its lowest
    result."""
    weights: tuple[float, ...] | None = setting(None, ge=0, le=1000, least=2)
    """With `linear`, a number per system, in their order; equal ones without it and without `tune`."""
    tune: str | None = None
    """With `linear`, the measure that the weights are chosen by on the split `validation`, in steps of .05 (of more
    than two systems .1); runs of `validation` then have `depth` results."""


@dataclass(frozen=True, kw_only=True)
class System:
    """How a run is made; which keys stand here says of which kind a system is."""

    retrieve: str | None = None
    """`bm25` or another name under `lexical`, the name of an encoder, or that of a re-ranker of the kind
    `late_interaction`, whose token vectors of all passages are then searched (ColBERT, end to end). A name that an
    encoder and a re-ranker share means the encoder."""
    bm25: Bm25Parameters | None = None
    """With `retrieve` of a name under `lexical`, k1 and b of this system only."""
    onng: OnngSearch | None = None
    """With an encoder, search its graph index instead of all vectors."""
    hnsw: HnswSearch | None = None
    """With an encoder, search its HNSW index instead of all vectors."""
    ivfpq: IvfPqSearch | None = None
    """With a re-ranker of the kind `late_interaction`, take the candidates from its IVF-PQ index and score these
    exactly, instead of all passages (ColBERT, end to end). Needs faiss, `pip install faiss-cpu==1.15.1`."""
    interleave: tuple[str, ...] | None = setting(None, least=2)
    """Systems whose rankings are merged position by position, the first-named first."""
    fuse: Fusion | None = None
    """Systems whose rankings are merged by a method of choice."""
    rerank: str | None = None
    """System whose first candidates are re-ranked."""
    reranker: str | None = None
    """Name under `rerankers`, with `rerank`."""
    depth: int | None = setting(None, ge=1, le=100_000)
    """Candidates that are re-ranked, with `rerank`; the others follow in their order."""
    weight: float | None = setting(None, ge=0, le=1)
    """With `rerank`, the weight of the re-ranker's scores; 1 minus it is that of the scores of the system that is
    re-ranked. Both go from 0 to 1 over the candidates of a query. 1 without it and without `tune`; 0 leaves the order
    as it is."""
    tune: str | None = None
    """With `rerank`, the measure that `weight` is chosen by on the split `validation`, in steps of .05; runs of
    `validation` then have `depth` results."""
    run: str | dict[str, str] | None = None
    """A run file made elsewhere: a path, with `{split}` if there are several splits, or paths by split."""
