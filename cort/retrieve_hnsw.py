"""Approximate retrieval from an HNSW index; a larger `ef` finds more and takes longer.

A search keeps the best `ef` passages found so far, so ef must be the depth at least. Scores are inner products,
computed in single precision by hnswlib: those of exact retrieval but for rounding.
With --audit, ef is the smallest one there with at least the --recall of exact retrieval at the audit's depth.

Reads:  embedding shards of the queries, the folder that `hnsw` wrote; with --audit, what `audit` found
Writes: run.trec
Usage:  python -m cort.retrieve_hnsw --queries queries.arrow --index hnsw --ef 1000 --depth 1000 --threads 4
            --tag NAME --output run.trec
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from cort.formats.audits import add_width_arguments, chosen_width
from cort.formats.embeddings import open_shards
from cort.formats.records import Ranking
from cort.formats.runs import write_run
from cort.hnsw import open_index
from cort.retrieval.graph import query_blocks, refuse_other_queries, to_ranking
from cort.system import cli
from cort.system.errors import input_error
from cort.system.progress import track

log = logging.getLogger(__name__)

QUERIES_PER_BLOCK = 1_024


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.retrieve_hnsw", __doc__)
    parser.add_argument("--queries", required=True, nargs="+", metavar="ARROW", help="embedding shards of the queries")
    parser.add_argument("--index", required=True, metavar="FOLDER", help="the folder that `hnsw` wrote")
    parser.add_argument("--ef", type=int, default=1000, metavar="N", help="width of the search, from --depth on")
    add_width_arguments(parser, "--ef")
    parser.add_argument("--depth", type=int, default=1000, metavar="N", help="results per query")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--tag", required=True, metavar="NAME", help="last field of each line")
    parser.add_argument("--output", required=True, metavar="TREC")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Open index and queries, search, write."""
    if args.depth < 1:
        raise input_error("--depth", str(args.depth), "1 or more", "give the number of results per query")
    index = open_index(args.index)
    ef = int(chosen_width(args, "hnsw", index.meta.model, args.ef))
    if ef < args.depth:
        raise input_error("--ef", str(ef), f"{args.depth} (--depth) or more", "raise it or lower the depth")
    queries = open_shards(args.queries, model=index.meta.model)
    refuse_other_queries(queries, index.meta, args.index)
    query_ids, blocks = query_blocks(queries, QUERIES_PER_BLOCK)
    seconds = 0.0

    def rankings() -> Iterator[Ranking]:
        nonlocal seconds
        at = 0
        for block in track(blocks, len(query_ids), "queries", size=len):
            started = time.perf_counter()
            results = index.search_all(block.astype(np.float32), ef, args.depth, args.threads)
            seconds += time.perf_counter() - started
            for found in results:
                yield to_ranking(query_ids[at], index.ids, found)
                at += 1

    lines = write_run(args.output, rankings(), args.tag)
    mean = 1000 * seconds / max(len(query_ids), 1)
    log.info("%d queries, %d results, mean %.2f ms per query at ef %d", len(query_ids), lines, mean, ef)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
