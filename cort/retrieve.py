"""Exact retrieval: for each query the passages with the largest inner product, by (-score, doc_id).

The result depends neither on the shards nor on the devices (see `cort/retrieval/exact.py`). Of a part of the
passages it is a table; `merge` makes the run.

Reads:  embedding shards of the queries and of the passages, of one model
Writes: run.trec; with --part rankings.parquet
Usage:  python -m cort.retrieve --queries queries.arrow --passages 1-of-2.arrow 2-of-2.arrow --depth 1000 --threads 4
            --tag NAME --output run.trec
"""

from __future__ import annotations

import logging
import os
import sys
import time
from dataclasses import dataclass
from typing import Literal

import psutil

from cort.formats.embeddings import open_shards, part_of
from cort.formats.rankings import write_rankings
from cort.formats.runs import write_run
from cort.retrieval.options import RunOptions, check_positive
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import input_error
from cort.system.options import optional, required, thread_count
from cort.system.progress import track

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """Options of this stage."""

    queries: tuple[str, ...] = required("ARROW", "embedding shards of the queries")
    passages: tuple[str, ...] = required("ARROW", "embedding shards, all of them")
    threads: int = thread_count(len(os.sched_getaffinity(0)))
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: int = optional(1, "devices that share the passages", "N")
    part: str | None = optional(None, "of all passages, for `merge`", "I-of-N")
    memory_mb: int = optional(0, "half of it may hold the vectors", "MB")


def stage(options: Options) -> None:
    """Open the shards, retrieve, write."""
    from cort.models import transformer
    from cort.retrieval.exact import ExactIndex, retrieve

    check_positive(options, "depth", "gpus")
    passages = open_shards(options.passages)
    queries = open_shards(options.queries, model=passages[0].model)
    if queries[0].dimension != passages[0].dimension:
        found = f"{queries[0].dimension} dimensions"
        raise input_error(queries[0].path, found, f"{passages[0].dimension} as in the passages", "encode again")
    if options.part:
        passages = part_of(passages, options.part)
    asked = sum(shard.table.num_rows for shard in queries)
    with lease(0 if options.device == "cpu" else options.gpus) as leased:
        found = transformer.choose_device(options.threads, leased).type
        if options.device == "cuda" != found:
            raise input_error("--device", "cuda", "a CUDA device", "use `auto` or `cpu`")
        on_cpu = "cpu" in (options.device, found)
        devices = ["cpu"] if on_cpu else [f"cuda:{number}" for number in range(max(len(leased), 1))]
        started = time.perf_counter()
        # Half, for the rest needs some as well, and others may be at work.
        memory_mb = min(options.memory_mb, psutil.virtual_memory().available >> 20) // 2
        index = ExactIndex(passages, devices, options.threads, memory_mb)
        rankings = track(retrieve(index, queries, options.depth), asked, "queries")
        if options.part:
            lines = write_rankings(options.output, rankings)
        else:
            lines = write_run(options.output, rankings, options.tag)
        milliseconds = (time.perf_counter() - started) * 1000 / max(asked, 1)
    log.info("%d queries on %s, %d results, %.2f ms per query", asked, ", ".join(devices), lines, milliseconds)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
