"""Options shared by stages that search, and by those that audit indexes."""

import os
from typing import Literal

from cort.config.collection import Aggregation, AnySplit
from cort.config.evaluation import Audit
from cort.config.fields import Cutoff, PrecisionOrAuto, Seed
from cort.config.models import Precise
from cort.retrieval.exclusions import ExclusionOptions
from cort.retrieval.options import JavaOptions, RunOptions
from cort.runtime.errors import input_error
from cort.runtime.sections import (
    ArrowFile,
    FolderPath,
    JsonFile,
    Maybe,
    ParquetFile,
    Section,
    Several,
    Text,
    Threads,
    same_as,
)


class SearchOptions(ExclusionOptions, RunOptions):
    """Options of stages that search for many queries and write a run."""


class VectorSearchOptions(SearchOptions):
    """Options of stages that search for many queries by vectors."""

    threads: Threads = len(os.sched_getaffinity(0))


class LuceneSearchOptions(ExclusionOptions, JavaOptions):
    """Options of stages that search for many queries with Lucene."""

    index: FolderPath
    """The folder that `index bm25` or `index impacts` wrote."""
    queries: ParquetFile


class GraphOptions(Section):
    """Options of stages that search a graph index."""

    kind: Literal["onng", "hnsw"]
    """Of the index."""
    index: FolderPath
    """The folder that `index` wrote."""
    queries: Several[ArrowFile]
    """Embedding shards of the queries."""


class TokenOptions(Section):
    """Options of stages that search token vectors."""

    model: FolderPath
    """A re-ranker of the kind late_interaction."""
    queries: ArrowFile
    """Token cache."""
    passages: Several[ArrowFile]
    """All shards of token vectors."""
    precision: PrecisionOrAuto = same_as(Precise, "precision")
    """Of token vectors that do not say it."""


class IvfPqOptions(TokenOptions):
    """Options of stages that search an IVF-PQ index; without a model, that of an encoder's vectors."""

    model: Maybe[FolderPath] = None  # type: ignore[assignment]
    """A re-ranker of the kind late_interaction."""
    queries: ArrowFile
    """Token cache, or without --model embeddings."""
    passages: Several[ArrowFile]
    """All shards of token vectors, or of embeddings."""
    kind: Literal["ivfpq"] = "ivfpq"
    """Of the index."""
    index: FolderPath
    """The folder that `index ivfpq` wrote."""
    candidates: int = same_as(Audit, "candidates")

    def check_candidates(self, depth: int) -> None:
        """Refuse fewer candidates than results, where each candidate is a passage."""
        if self.model is None and self.candidates < depth:
            raise input_error("--candidates", self.candidates, f"{depth} (the depth) or more", "raise it")


class AuditOptions(Aggregation):
    """Options of stages that compare an approximate index with exact search."""

    qrels: Maybe[ParquetFile] = None
    """Without them, only recall and time are measured, on all queries."""
    widths: Several[float]
    """Epsilons, efs or probes."""
    depths: Several[Cutoff] = same_as(Audit, "depths")
    measures: Several[Text] = ()
    """Whose loss to report."""
    relevance_level: int = same_as(AnySplit, "relevance_level")
    sample: Maybe[int] = same_as(Audit, "queries", default=None)
    """Queries to draw (default: all)."""
    seed: int = same_as(Seed, "seed")
    """Of the sample."""
    threads: Threads = len(os.sched_getaffinity(0))
    """For what is not timed."""
    encoder: Text
    """Written into the output."""
    split: Text
    """Written into the output."""
    output: JsonFile
