"""Options that several stages of retrieval have."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cort.retrieval.graphs import GRAPHS
from cort.system.errors import input_error
from cort.system.options import optional, required, thread_count

HEAP_MB = 2000


def choice(choices: Iterable[str], default: object = dataclasses.MISSING, help: str = "") -> Any:
    """Field of an option with a choice that a registry has."""
    return dataclasses.field(default=default, metadata={"choices": tuple(choices), "help": help})


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Of stages that write a run."""

    depth: int = optional(1000, "results per query", "N")
    tag: str = required("NAME", "last field of each line")
    output: str = required("TREC")


@dataclass(frozen=True, kw_only=True)
class GraphOptions:
    """Of stages that search a graph index."""

    kind: str = choice(GRAPHS, help="of the index")
    index: str = required("FOLDER", "the folder that `onng` or `hnsw` wrote")


@dataclass(frozen=True, kw_only=True)
class JavaOptions:
    """Of stages that run Lucene."""

    threads: int = thread_count()
    memory_mb: int = optional(HEAP_MB, f"heap of Java (default {HEAP_MB})", "MB")


@dataclass(frozen=True, kw_only=True)
class BM25Options(JavaOptions):
    """Of stages that search for many queries by BM25."""

    index: str = required("FOLDER", "what `bm25_index` wrote")
    queries: str = required("PARQUET")
    depth: int = optional(1000, "results per query", "N")


def check_positive(options: Any, *names: str) -> None:
    """Refuse options below 1.

    :raises InputError: names the first one.
    """
    for name in names:
        value = getattr(options, name)
        if value < 1:
            raise input_error(f"--{name.replace('_', '-')}", str(value), "1 or more", "give a positive number")
