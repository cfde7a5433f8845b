"""Options shared by several stages of retrieval."""

import os
from dataclasses import MISSING
from typing import Any

from cort.retrieval.exclusions import ExclusionOptions
from cort.retrieval.indexes import GRAPHS
from cort.runtime.errors import input_error
from cort.runtime.options import optional, options_class, required, thread_count
from cort.settings.collection import Aggregation, Split
from cort.settings.evaluation import Audit
from cort.settings.fields import General, PrecisionOrAuto, as_key
from cort.settings.models import Encoder

HEAP_MB = 2000


def term_based() -> Any:
    """Option that names systems which score documents by the terms that they share with the query."""
    help = "of the systems, those by whose scores documents without a term of the query get 0"
    return optional((), help, "NAME")


@options_class
class RunOptions:
    """Options of stages that write a run."""

    depth: int = as_key(General, "depth")
    tag: str = required("NAME", "last field of each line")
    output: str = required("TREC")


@options_class
class SearchOptions(ExclusionOptions, RunOptions):
    """Options of stages that search for many queries and write a run."""


@options_class
class GraphOptions:
    """Options of stages that search a graph index."""

    kind: str = optional(MISSING, "of the index", choices=tuple(GRAPHS))
    index: str = required("FOLDER", "the folder that `index` wrote")


@options_class
class TokenOptions:
    """Options of stages that search token vectors."""

    model: str = required("FOLDER", "a re-ranker of the kind late_interaction")
    queries: str = required("ARROW", "token cache")
    passages: tuple[str, ...] = required("ARROW", "all shards of token vectors")
    precision: PrecisionOrAuto = as_key(Encoder, "precision", "of token vectors that do not say it")


@options_class
class IvfPqOptions(TokenOptions):
    """Options of stages that search an IVF-PQ index; without a model, that of an encoder's vectors."""

    model: str | None = optional(None, "a re-ranker of the kind late_interaction", "FOLDER")  # type: ignore[assignment]
    queries: str = required("ARROW", "token cache, or without --model embeddings")
    passages: tuple[str, ...] = required("ARROW", "all shards of token vectors, or of embeddings")
    kind: str = optional("ivfpq", "of the index", choices=("ivfpq",))
    index: str = required("FOLDER", "the folder that `index ivfpq` wrote")
    candidates: int = as_key(Audit, "candidates")

    def check_candidates(self, depth: int) -> None:
        """Refuse fewer candidates than results, where each candidate is a passage."""
        if self.model is None and self.candidates < depth:
            raise input_error("--candidates", self.candidates, f"{depth} (the depth) or more", "raise it")


@options_class
class AuditOptions(Aggregation):
    """Options of stages that compare an approximate index with exact search."""

    qrels: str | None = optional(None, "without them, only recall and time are measured, on all queries", "PARQUET")
    widths: tuple[float, ...] = required("W", "epsilons, efs or probes")
    depths: tuple[int, ...] = as_key(Audit, "depths")
    measures: tuple[str, ...] = optional((), "whose loss to report", "NAME")
    relevance_level: int = as_key(Split, "relevance_level")
    sample: int | None = as_key(Audit, "queries", "queries to draw (default: all)", "N", default=None)
    seed: int = as_key(General, "seed", "of the sample")
    threads: int = thread_count(len(os.sched_getaffinity(0)), "for what is not timed")
    encoder: str = required("NAME", "written into the output")
    split: str = required("NAME", "written into the output")
    output: str = required("JSON")


@options_class
class JavaOptions:
    """Options of stages that run Lucene."""

    threads: int = thread_count()
    memory_mb: int = optional(HEAP_MB, f"Java heap (default: {HEAP_MB})", "MB", ge=16)


@options_class
class LuceneSearchOptions(ExclusionOptions, JavaOptions):
    """Options of stages that search for many queries with Lucene."""

    index: str = required("FOLDER", "the folder that `index bm25` or `index impacts` wrote")
    queries: str = required("PARQUET")


@options_class
class TunedOptions:
    """Options of stages that take what `tune weights` chose."""

    tuned: str | None = optional(None, "instead of fixed weights, what `tune weights` chose", "JSON")
    folded: bool = optional(False, "with what was tuned for the fold of each query")
