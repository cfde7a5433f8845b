"""Exact retrieval: the passages with the largest inner products.

Reads:  embedding shards of the queries and of the passages, of one model
Writes: run.trec
"""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field

from cort.config.fields import Storage
from cort.config.models import FinishedVectors
from cort.config.systems import ExactSearch, Reduced
from cort.formats.shards import count_rows, open_both
from cort.retrieval.search_options import SearchOptions
from cort.retrieval.search_runs import search_vectors
from cort.runtime.devices import lease
from cort.runtime.errors import input_error
from cort.runtime.memory import free_memory
from cort.runtime.sections import ArrowFile, Maybe, Several, Threads, same_as


class Options(SearchOptions):
    """Options of this stage."""

    queries: Several[ArrowFile]
    """Embedding shards of the queries."""
    passages: Several[ArrowFile]
    """All embedding shards."""
    threads: Threads = len(os.sched_getaffinity(0))
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: int = Field(1, ge=1, le=1024)
    """GPUs that share the passages."""
    memory_mb: int = Field(0, ge=0)
    """Memory, half of which may hold the vectors."""
    dimension: Maybe[int] = same_as(ExactSearch, "dimension")
    storage: Maybe[Storage] = same_as(ExactSearch, "storage")
    matryoshka: bool = same_as(FinishedVectors, "matryoshka", default=False)


def stage(options: Options) -> None:
    """Rank all passages and write the run."""
    from cort.models import transformer
    from cort.retrieval.reduction import open_exact

    passages, queries = open_both(options.passages, options.queries)
    with lease(0 if options.device == "cpu" else options.gpus) as leased:
        device = transformer.choose_device(options.threads, leased).type
        if options.device == "cuda" != device:
            raise input_error("--device", "cuda", "a CUDA device", "use `auto` or `cpu`")
        on_cpu = "cpu" in (options.device, device)
        devices = ["cpu"] if on_cpu else [f"cuda:{number}" for number in range(max(len(leased), 1))]
        # Half, because other arrays need memory, too, and so may other processes.
        memory_mb = min(options.memory_mb, free_memory() >> 20) // 2
        reduced = Reduced(options.dimension, options.storage, options.matryoshka)
        index = open_exact(passages, reduced, devices, options.threads, memory_mb)
        search_vectors(options, index, queries, f"on {', '.join(devices)}", count_rows(passages))
