"""What is measured, audited, timed, shown, submitted and deployed."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from cort.runtime.keys import section, setting

#: limits of submissions: results per query, and a regular expression for the id of a run
SUBMITTED, RUN_ID = 1000, "^[A-Za-z0-9_-]{1,25}$"

Target: TypeAlias = Literal["opensearch", "elasticsearch", "pgvector", "parquet"]


@section
class Explorer:
    """The page that compares two systems query by query."""

    results: int = setting(20, "results per ranking", "N", ge=1, le=1000)
    """Top results shown of each system."""
    texts: int = setting(50, "texts of each query, besides those of relevant passages", "N", ge=0, le=10_000)
    """Texts of each query, besides those of its relevant passages: of the passages that any system ranks highest."""


@section
class Consistency:
    """RepBERT's consistency factor."""

    reference: str = setting(names="systems")
    """The reference system; for RepBERT's factor, the official candidates of MS MARCO."""
    systems: tuple[str, ...] = setting(names="systems", least=1)
    """The systems that are compared with it."""
    depths: tuple[int, ...] = setting(
        (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000), "values of n", "N", ge=1, le=100_000, increasing=True, least=1
    )
    """Numbers of top documents that are compared."""


@section
class Evaluation:
    """What is measured and shown."""

    measures: tuple[str, ...] = setting(
        ("RR@10", "nDCG@20", "R@50", "R@100", "R@200", "R@500", "R@1000"), measures=True, unique=True, least=1
    )
    """Measures, named as in ir_measures. The first one decides verdicts and which system leads the report.
    `nDCG(judged_only=True)@10` ignores unjudged results, `Judged@10` is the share of judged ones, `R_cap@100` BEIR's
    capped recall."""
    baseline: str = setting("bm25", names="systems")
    """System the others are compared with."""
    contrasts: tuple[tuple[str, str], ...] = setting((), names="systems", unique=True)
    """Further pairs to compare, `[[a, b], ...]`: a against b. Each system is always compared with `baseline`, with its
    parts, and with the same search by the model that its encoder was trained from, if that is a system."""
    confidence: float = setting(0.95, "confidence of the intervals", "P", ge=0.5, le=0.999)
    """Confidence level of bootstrap intervals."""
    resamples: int = setting(10000, "of the bootstrap, and of the randomisation test", "N", ge=100, le=1_000_000)
    """Resamples of the bootstrap, and sign assignments of the randomisation test."""
    alpha: float = setting(0.05, "largest significant corrected p-value", "P", gt=0, le=0.5)
    """Significance level of p-values, corrected by Holm's method over the comparisons of a split."""
    explorer: Explorer = field(default_factory=Explorer)
    """The page that compares two systems query by query."""
    depths: tuple[int, ...] = setting(
        (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000),
        "numbers of candidates",
        "N",
        ge=1,
        le=100_000,
        increasing=True,
        least=1,
    )
    """Numbers of candidates at which every re-ranked system is measured."""
    depth_measures: tuple[str, ...] = setting(("RR@10", "nDCG@20"), measures=True, unique=True, least=1)
    """Measures at these depths."""
    consistency: Consistency | None = None
    """RepBERT's consistency factor: the share of a system's top documents that a reference system has in its top 1,000.
    """


@section
class Audit:
    """Audit of approximate indexes against exact search."""

    epsilons: tuple[float, ...] = setting((0, 0.02, 0.05, 0.1, 0.2), gt=-1, le=100, increasing=True, least=1)
    """Values of epsilon, the search width of an ONNG."""
    efs: tuple[int, ...] = setting(
        (20, 50, 100, 200, 500, 1000, 1500, 2000, 4000), ge=1, le=1_000_000, increasing=True, least=1
    )
    """Values of ef, the search width of an HNSW index."""
    probes: tuple[int, ...] = setting((1, 2, 4, 8, 16, 32, 64), ge=1, le=100_000_000, increasing=True, least=1)
    """Numbers of lists probed, the search width of an IVF-PQ index."""
    candidates: int = setting(1024, "nearest vectors of each query, or of each of its tokens", "N", ge=1, le=10_000_000)
    """Nearest vectors taken from an IVF-PQ index per query, or per query token."""
    depths: tuple[int, ...] = setting(
        (10, 100, 1000), "results per query", "N", ge=1, le=100_000, increasing=True, least=1
    )
    """Depths at which recall of the exact top results is measured."""
    queries: int | None = setting(500, nullable=True, ge=1, le=1_000_000_000)
    """Judged queries drawn from each split; null: all."""


@section
class Latency:
    """Measurement of how long searches take."""

    split: str
    """Split whose queries are searched."""
    queries: int = setting(1000, "how many queries of the split are searched", "N", ge=1, le=1_000_000_000)
    """How many queries are searched, from the first on; fewer if a system takes over five minutes."""
    systems: tuple[str, ...] = setting(unique=True, least=1)
    """Systems to measure; those with a published run cannot be."""


@section
class Submission:
    """A file for a leaderboard or TREC."""

    system: str = setting(names="systems")
    """The system whose run is submitted."""
    split: str
    """Split of the run; each of its queries needs results."""
    form: Literal["msmarco", "trec"]
    """The MS MARCO leaderboard's three columns, or a TREC run."""
    run_id: str | None = setting(
        None,
        "last field of each line of a TREC run; none: the leaderboard's format",
        "ID",
        pattern=RUN_ID,
    )
    """With `trec`, the run's id: 1 to 25 letters, digits, `-` and `_`; by default the submission's name."""


@section
class Deployment:
    """A system in the formats of search engines."""

    system: str
    """BM25 over the plain passages, exact search by a dense encoder, or `fuse` of both by `rrf`, or by `linear` with
    `min-max`. Cross-validated weights, k1 and b are those chosen on all queries."""
    targets: tuple[Target, ...] = setting(unique=True, least=1)
    """What loads it: `opensearch`, `elasticsearch`, `pgvector` (PostgreSQL), `parquet` (faiss, Qdrant, LanceDB)."""
