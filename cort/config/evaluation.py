"""What is measured, audited, timed, shown, submitted and deployed."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from cort.runtime.sections import FIRST_FITTING, INCREASING, MEASURE, UNIQUE, Maybe, Names, Section, Several, Text

#: limits of submissions: results per query, and a regular expression for the id of a run
MOST_RESAMPLES = 1_000_000
SUBMITTED, RUN_ID = 1000, "^[A-Za-z0-9_-]{1,25}$"

Target: TypeAlias = Literal["opensearch", "elasticsearch", "pgvector", "parquet"]


class Explorer(Section):
    """The page that compares two systems query by query."""

    results: int = Field(20, ge=1, le=1000)
    """Top results shown of each system."""
    texts: int = Field(50, ge=0, le=10_000)
    """Texts of each query, besides those of its relevant passages: of the passages that any system ranks highest."""


class Consistency(Section):
    """RepBERT's consistency factor."""

    reference: Annotated[Text, Names("systems")]
    """The reference system; for RepBERT's factor, the official candidates of MS MARCO."""
    systems: Annotated[Several[Text], Names("systems")] = Field(min_length=1)
    """The systems that are compared with it."""
    depths: Annotated[Several[Annotated[int, Field(ge=1, le=100_000)]], INCREASING] = Field(
        (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000), min_length=1
    )
    """Numbers of top documents that are compared."""


class Evaluation(Section):
    """What is measured and shown."""

    measures: Annotated[Several[Text], MEASURE, UNIQUE] = Field(
        ("RR@10", "nDCG@20", "R@50", "R@100", "R@200", "R@500", "R@1000"), min_length=1
    )
    """Measures, named as in ir_measures. The first one decides verdicts and which system leads the report.
    `nDCG(judged_only=True)@10` ignores unjudged results, `Judged@10` is the share of judged ones, `R_cap@100` BEIR's
    capped recall."""
    baseline: Annotated[Text, Names("systems")] = "bm25"
    """System the others are compared with."""
    contrasts: Annotated[Several[Annotated[tuple[Text, Text], Field(strict=False)]], Names("systems"), UNIQUE] = ()
    """Further pairs to compare, `[[a, b], ...]`: a against b. Each system is always compared with `baseline`, with its
    parts, and with the same search by the model that its encoder was trained from, if that is a system."""
    confidence: float = Field(0.95, ge=0.5, le=0.999)
    """Confidence level of bootstrap intervals."""
    resamples: int = Field(10000, ge=100, le=MOST_RESAMPLES)
    """Resamples of the bootstrap, and sign assignments of the randomisation test."""
    alpha: float = Field(0.05, gt=0, le=0.5)
    """Significance level of p-values, corrected by Holm's method over the comparisons with the baseline, and over
    all others."""
    explorer: Explorer = Field(default_factory=Explorer)
    """The page that compares two systems query by query."""
    depths: Annotated[Several[Annotated[int, Field(ge=1, le=100_000)]], INCREASING] = Field(
        (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000), min_length=1
    )
    """Numbers of candidates at which every re-ranked system is measured."""
    depth_measures: Annotated[Several[Text], MEASURE, UNIQUE] = Field(("RR@10", "nDCG@20"), min_length=1)
    """Measures at these depths."""
    consistency: Maybe[Consistency] = None
    """RepBERT's consistency factor: the share of a system's top documents that a reference system has in its top 1,000.
    """


class Audit(Section):
    """Audit of approximate indexes against exact search."""

    epsilons: Annotated[Several[Annotated[float, Field(gt=-1, le=100)]], INCREASING] = Field(
        (0.0, 0.02, 0.05, 0.1, 0.2), min_length=1
    )
    """Values of epsilon, the search width of an ONNG."""
    efs: Annotated[Several[Annotated[int, Field(ge=1, le=1_000_000)]], INCREASING] = Field(
        (20, 50, 100, 200, 500, 1000, 1500, 2000, 4000), min_length=1
    )
    """Values of ef, the search width of an HNSW index."""
    probes: Annotated[Several[Annotated[int, Field(ge=1, le=100_000_000)]], INCREASING] = Field(
        (1, 2, 4, 8, 16, 32, 64), min_length=1
    )
    """Numbers of lists probed, the search width of an IVF-PQ index."""
    candidates: int = Field(1024, ge=1, le=10_000_000)
    """Nearest vectors taken from an IVF-PQ index per query, or per query token."""
    depths: Annotated[Several[Annotated[int, Field(ge=1, le=100_000)]], INCREASING] = Field(
        (10, 100, 1000), min_length=1
    )
    """Depths at which recall of the exact top results is measured."""
    queries: int | None = Field(500, ge=1, le=1_000_000_000)
    """Judged queries drawn from each split; null: all."""


class Latency(Section):
    """Measurement of how long searches take."""

    split: Text
    """Split whose queries are searched."""
    queries: int = Field(1000, ge=1, le=1_000_000_000)
    """How many queries are searched, from the first on; fewer if a system takes over five minutes."""
    systems: Annotated[Several[Text], UNIQUE] = Field(min_length=1)
    """Systems to measure; those with a published run cannot be."""


class Submitted(Section):
    """A file for a leaderboard or TREC."""

    system: Annotated[Text, Names("systems")]
    """The system whose run is submitted."""
    split: Text
    """Split of the run; each of its queries needs results."""


class Leaderboard(Submitted):
    """The form msmarco."""

    form: Literal["msmarco"]
    """The MS MARCO leaderboard's three columns, or a TREC run."""


class TrecRun(Submitted):
    """The form trec."""

    form: Literal["trec"]
    """The MS MARCO leaderboard's three columns, or a TREC run."""
    run_id: Maybe[Annotated[str, Field(pattern=RUN_ID)]] = None
    """With `trec`, the run's id: 1 to 25 letters, digits, `-` and `_`; by default the submission's name."""


Submission: TypeAlias = Annotated[Leaderboard | TrecRun, FIRST_FITTING]


class Deployment(Section):
    """A system in the formats of search engines."""

    system: Text
    """BM25 over the plain passages, exact search by a dense encoder, or `fuse` of both by `rrf`, or by `linear` with
    `min-max`. Cross-validated weights, k1 and b are those chosen on all queries."""
    targets: Annotated[Several[Target], UNIQUE] = Field(min_length=1)
    """What loads it: `opensearch`, `elasticsearch`, `pgvector` (PostgreSQL), `parquet` (faiss, Qdrant, LanceDB)."""
