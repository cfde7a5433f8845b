"""Exact retrieval: for each query the passages with the largest inner product, by (-score, doc_id).

The result depends neither on the shards nor on the devices (see `cort/exact.py`).

Reads:  embedding shards of the queries and of the passages, of one model
Writes: run.trec
Usage:  python -m cort.retrieve --queries queries.arrow --passages 1-of-2.arrow 2-of-2.arrow --depth 1000 --threads 4
            --tag NAME --output run.trec
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import psutil

from cort.formats.embeddings import Shard, open_shards
from cort.formats.records import Ranking
from cort.formats.runs import write_run
from cort.retrieval.exact import ExactIndex
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import input_error
from cort.system.progress import track

log = logging.getLogger(__name__)

# All passages are read once per this many queries.
QUERIES_AT_ONCE = 512


def retrieve(index: ExactIndex, queries: Sequence[Shard], depth: int) -> Iterator[Ranking]:
    """Rank all passages for each query by inner product; yield the first `depth`, in the order of the queries.

    :raises InputError: for vectors with numbers that are not finite.
    """
    for shard in queries:
        for ids, vectors in shard.blocks():
            query_ids = ids.to_pylist()
            for at in range(0, len(query_ids), QUERIES_AT_ONCE):
                some = np.asarray(vectors[at : at + QUERIES_AT_ONCE], dtype=np.float32)
                found = index.search(some, depth)
                for query_id, (scores, places) in zip(query_ids[at : at + QUERIES_AT_ONCE], found, strict=True):
                    yield Ranking(query_id, index.ids(places), scores)


def choose_devices(name: str, threads: int, leased: Sequence[str]) -> list[str]:
    """Resolve "auto" to the leased devices where there are any, else to "cpu" with `threads` threads.

    :param leased: devices held for this.
    :raises InputError: when "cuda" is asked for and absent.
    """
    from cort.models import transformer

    found = transformer.choose_device(threads, leased).type
    if name == "cuda" != found:
        raise input_error("--device", "cuda", "a CUDA device", "use `auto` or `cpu`")
    if "cpu" in (name, found):
        return ["cpu"]
    return [f"cuda:{number}" for number in range(max(len(leased), 1))]


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.retrieve", __doc__)
    parser.add_argument("--queries", required=True, nargs="+", metavar="ARROW", help="embedding shards of the queries")
    parser.add_argument("--passages", required=True, nargs="+", metavar="ARROW", help="embedding shards, all of them")
    parser.add_argument("--depth", type=int, default=1000, metavar="N", help="results per query")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="devices that share the passages")
    parser.add_argument("--memory-mb", type=int, default=0, metavar="MB", help="half of it may hold the vectors")
    parser.add_argument("--tag", required=True, metavar="NAME", help="last field of each line")
    parser.add_argument("--output", required=True, metavar="TREC")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Open the shards, retrieve, write."""
    for name in ("depth", "gpus"):
        if getattr(args, name) < 1:
            raise input_error(f"--{name}", str(getattr(args, name)), "1 or more", "give a positive number")
    passages = open_shards(args.passages)
    queries = open_shards(args.queries, model=passages[0].model)
    if queries[0].dimension != passages[0].dimension:
        found = f"{queries[0].dimension} dimensions"
        raise input_error(queries[0].path, found, f"{passages[0].dimension} as in the passages", "encode again")
    asked = sum(shard.table.num_rows for shard in queries)
    with lease(0 if args.device == "cpu" else args.gpus) as leased:
        devices = choose_devices(args.device, args.threads, leased)
        started = time.perf_counter()
        # Half, for the rest needs some as well, and others may be at work.
        memory_mb = min(args.memory_mb, psutil.virtual_memory().available >> 20) // 2
        index = ExactIndex(passages, devices, args.threads, memory_mb)
        lines = write_run(args.output, track(retrieve(index, queries, args.depth), asked, "queries"), args.tag)
        milliseconds = (time.perf_counter() - started) * 1000 / max(asked, 1)
    log.info("%d queries on %s, %d results, %.2f ms per query", asked, ", ".join(devices), lines, milliseconds)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
