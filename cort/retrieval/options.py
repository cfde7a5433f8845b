"""Options that several stages of retrieval share, and checks of options."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cort.retrieval.graphs import GRAPHS, TOKEN_INDEXES
from cort.settings.collection import Split
from cort.settings.evaluation import Audit
from cort.settings.fields import DEPTH, SEED, Precision
from cort.settings.models import Encoder
from cort.system.errors import input_error
from cort.system.options import optional, required, thread_count

HEAP_MB = 2000


def choice(choices: Iterable[str], default: object = dataclasses.MISSING, help: str = "") -> Any:
    """Field of an option with the choices of a registry."""
    return dataclasses.field(default=default, metadata={"choices": tuple(choices), "help": help})


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Of stages that write a run."""

    depth: int = optional(DEPTH, "results per query", "N", ge=1)
    tag: str = required("NAME", "last field of each line")
    output: str = required("TREC")


@dataclass(frozen=True, kw_only=True)
class GraphOptions:
    """Of stages that search a graph index."""

    kind: str = choice(GRAPHS, help="of the index")
    index: str = required("FOLDER", "the folder that `index` wrote")


@dataclass(frozen=True, kw_only=True)
class TokenOptions:
    """Of stages that search token vectors."""

    model: str = required("FOLDER", "a re-ranker of the kind late_interaction")
    queries: str = required("ARROW", "token cache")
    passages: tuple[str, ...] = required("ARROW", "shards of token vectors, all of them")
    precision: Precision = optional(Encoder.precision, "of the transformer")


@dataclass(frozen=True, kw_only=True)
class IvfPqOptions(TokenOptions):
    """Of stages that search an IVF-PQ index of token vectors."""

    kind: str = choice(TOKEN_INDEXES, "ivfpq", help="of the index")
    index: str = required("FOLDER", "the folder that `index ivfpq` wrote")
    candidates: int = optional(Audit.candidates, "nearest vectors of each query token", "N", ge=1)


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Of stages that measure an approximate index against exact search."""

    qrels: str | None = optional(
        None, "without judgements all queries count, and only recall and time are measured", "PARQUET"
    )
    widths: tuple[float, ...] = required("W", "epsilons, efs or probes")
    depths: tuple[int, ...] = optional(Audit.depths, "results per query", "N")
    measures: tuple[str, ...] = optional((), "to measure the loss of", "NAME")
    relevance_level: int = optional(Split.relevance_level, "lowest relevant grade", "N")
    sample: int | None = optional(None, "queries to draw (default: all)", "N", ge=1)
    seed: int = optional(SEED, "of the sample", "N")
    threads: int = thread_count(len(os.sched_getaffinity(0)), "not timed")
    encoder: str = required("NAME", "for the file")
    split: str = required("NAME", "for the file")
    output: str = required("JSON")


@dataclass(frozen=True, kw_only=True)
class JavaOptions:
    """Of stages that run Lucene."""

    threads: int = thread_count()
    memory_mb: int = optional(HEAP_MB, f"heap of Java (default {HEAP_MB})", "MB")


@dataclass(frozen=True, kw_only=True)
class BM25Options(JavaOptions):
    """Of stages that search for many queries by BM25."""

    index: str = required("FOLDER", "the folder that `index bm25` wrote")
    queries: str = required("PARQUET")
    depth: int = optional(DEPTH, "results per query", "N", ge=1)


def refuse_without_effect(options: Any, why: str, *names: str) -> None:
    """Refuse options that have no effect beside, or without, another option, which `why` names.

    :raises InputError: names the first one that differs from its default.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    for name in names:
        if (value := getattr(options, name)) != defaults[name]:
            values = value if isinstance(value, tuple) else (value,)
            found = " ".join(f"{item:g}" if isinstance(item, float) else str(item) for item in values)
            raise input_error(f"--{name}", f"{found} {why}", "no value, as it has no effect", "leave it out")


def check_positive(options: Any, *names: str) -> None:
    """Refuse options below 1.

    :raises InputError: names the first one.
    """
    for name in names:
        value = getattr(options, name)
        if value < 1:
            raise input_error(f"--{name.replace('_', '-')}", str(value), "1 or more", "give a positive number")
