"""Approximate retrieval from an ONNG index (CoRT paper, section 4.5.3); a larger `epsilon` finds more and takes longer.

A search follows edges to passages within (1 + epsilon) times the distance of the last result so far. Scores are inner
products, computed from the index's distances (1 - d^2 / 2 for unit vectors): those of exact retrieval but for rounding.
With --audit, epsilon is the smallest one there with at least the --recall of exact retrieval at the audit's depth.

Reads:  embedding shards of the queries, the folder that `onng` wrote; with --audit, what `audit` found
Writes: run.trec
Usage:  python -m cort.retrieve_onng --queries queries.arrow --index onng --epsilon 0.1 --depth 1000 --threads 4
            --tag NAME --output run.trec
"""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cort.formats.audits import add_width_arguments, chosen_width
from cort.formats.embeddings import open_shards
from cort.formats.records import Ranking
from cort.formats.runs import write_run
from cort.onng import Onng, open_index
from cort.retrieval.graph import Found, query_blocks, refuse_other_queries, to_ranking
from cort.system import cli
from cort.system.errors import input_error
from cort.system.progress import track

log = logging.getLogger(__name__)

QUERIES_PER_BLOCK = 64


class Timed(NamedTuple):
    """What a search found, and how many seconds it took."""

    found: Found
    seconds: float


def search_blocks(
    index: Onng, blocks: Sequence[npt.NDArray[np.floating]], epsilon: float, depth: int, threads: int
) -> Iterator[Timed]:
    """Search every query of every block; the results do not depend on `threads`."""
    if threads == 1 or len(blocks) < 2:
        for block in blocks:
            yield from _search_block(index, block, epsilon, depth)
        return
    # NGT searches one query at a time and holds Python's lock meanwhile. Forked processes share the index in memory.
    global _shared
    _shared = index
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(threads, len(blocks)), mp_context=context) as pool:
        for found in pool.map(_search_shared, blocks, itertools.repeat(epsilon), itertools.repeat(depth)):
            yield from found


_shared: Onng


def _search_shared(block: npt.NDArray[np.floating], epsilon: float, depth: int) -> list[Timed]:
    return _search_block(_shared, block, epsilon, depth)


def _search_block(index: Onng, block: npt.NDArray[np.floating], epsilon: float, depth: int) -> list[Timed]:
    results: list[Timed] = []
    for query in block.astype(np.float32):
        started = time.perf_counter()
        found = index.search(query, epsilon, depth)
        results.append(Timed(found, time.perf_counter() - started))
    return results


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.retrieve_onng", __doc__)
    parser.add_argument("--queries", required=True, nargs="+", metavar="ARROW", help="embedding shards of the queries")
    parser.add_argument("--index", required=True, metavar="FOLDER", help="the folder that `onng` wrote")
    parser.add_argument("--epsilon", type=float, default=0.1, metavar="E", help="above -1; 0 to 0.4 in the paper")
    add_width_arguments(parser, "--epsilon")
    parser.add_argument("--depth", type=int, default=1000, metavar="N", help="results per query")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="processes that search")
    parser.add_argument("--tag", required=True, metavar="NAME", help="last field of each line")
    parser.add_argument("--output", required=True, metavar="TREC")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Open index and queries, search, write."""
    if args.depth < 1 or not -1 < args.epsilon < float("inf"):
        found = f"depth {args.depth}, epsilon {args.epsilon}"
        raise input_error("--depth, --epsilon", found, "a depth from 1 and an epsilon above -1", "fix the options")
    index = open_index(args.index)
    epsilon = chosen_width(args, "onng", index.meta.model, args.epsilon)
    queries = open_shards(args.queries, model=index.meta.model)
    refuse_other_queries(queries, index.meta, args.index)
    query_ids, blocks = query_blocks(queries, QUERIES_PER_BLOCK)
    seconds: list[float] = []

    def rankings() -> Iterator[Ranking]:
        results = search_blocks(index, blocks, epsilon, args.depth, args.threads)
        for query_id, timed in zip(query_ids, track(results, len(query_ids), "queries"), strict=True):
            seconds.append(timed.seconds)
            yield to_ranking(query_id, index.ids, timed.found)

    lines = write_run(args.output, rankings(), args.tag)
    mean = 1000 * sum(seconds) / max(len(seconds), 1)
    log.info("%d queries, %d results, mean %.2f ms per query at epsilon %g", len(seconds), lines, mean, epsilon)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
