"""Exact retrieval: the passages with the largest inner products.

Reads:  embedding shards of the queries and of the passages, of one model
Writes: run.trec
"""

from __future__ import annotations

from pydantic import Field

from cort.config.fields import Storage
from cort.config.models import FinishedVectors
from cort.config.systems import ExactSearch, Reduced
from cort.retrieval.search_options import VectorSearchOptions
from cort.retrieval.search_runs import search_vectors
from cort.retrieval.vectors import open_vectors
from cort.runtime.devices import lease
from cort.runtime.memory import free_memory
from cort.runtime.sections import ArrowFile, Maybe, Several, same_as


class Options(VectorSearchOptions):
    """Options of this stage."""

    queries: Several[ArrowFile]
    """Embedding shards of the queries."""
    passages: Several[ArrowFile]
    """All embedding shards."""
    gpus: int = Field(1, ge=0, le=1024)
    """GPUs that share the passages; 0 for the CPU."""
    memory_mb: int = Field(0, ge=0)
    """Memory, half of which may hold the vectors."""
    dimension: Maybe[int] = same_as(ExactSearch, "dimension")
    storage: Maybe[Storage] = same_as(ExactSearch, "storage")
    matryoshka: bool = same_as(FinishedVectors, "matryoshka", default=False)


def stage(options: Options) -> None:
    """Rank all passages and write the run."""
    from cort.models.transformer import choose_device
    from cort.retrieval.reduction import open_exact

    passages = open_vectors(options.passages)
    queries = passages.open_queries(options.queries)
    with lease(options.gpus) as leased:
        on_cpu = choose_device(options.threads, leased).type == "cpu" or not options.gpus
        devices = ["cpu"] if on_cpu else [f"cuda:{number}" for number in range(max(len(leased), 1))]
        # Half, because other arrays need memory, too, and so may other processes.
        memory_mb = min(options.memory_mb, free_memory() >> 20) // 2
        reduced = Reduced(options.dimension, options.storage, options.matryoshka)
        index = open_exact(passages, reduced, devices, options.threads, memory_mb)
        search_vectors(options, index, queries, f"on {', '.join(devices)}", len(passages))
