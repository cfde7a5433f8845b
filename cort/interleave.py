"""Interleave rankings: the best of each run in turn, each document once (CoRT paper, section 3.4).

The run named first gives the first document. A query that only some of the runs answer is kept from those.

Reads:  two or more run.trec
Writes: run.trec, scores 1/rank, queries in the order in which the runs first name them
Usage:  python -m cort.interleave --runs cort.trec bm25.trec --depth 1000 --tag cort+bm25 --output run.trec
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from cort.formats.records import Ranking
from cort.formats.runs import Run, read_run, write_run
from cort.system import cli
from cort.system.errors import input_error

log = logging.getLogger(__name__)


def interleave(rankings: Sequence[Sequence[str]], depth: int) -> list[str]:
    """Merge rankings position by position, the first-named first, leaving out documents already taken.

    A ranking that ends is skipped from there on; the result has at most `depth` documents.
    """
    count, longest = len(rankings), max(map(len, rankings), default=0)
    # Enough where not too many documents are in several rankings; if not, more.
    places = min(longest, 3 * depth // (2 * max(count, 1)) + 1)
    while True:
        turns: list[Any] = [None] * (count * places)
        for number, ranking in enumerate(rankings):
            part = ranking[:places]
            turns[number : count * len(part) : count] = part
        # A dictionary keeps the order in which its keys first came.
        merged = dict.fromkeys(turns)
        merged.pop(None, None)
        if len(merged) >= depth or places == longest:
            return list(itertools.islice(merged, depth))
        places = min(longest, 2 * places)


def interleave_runs(runs: Sequence[Run], depth: int) -> Iterator[Ranking]:
    """Interleave the rankings of every query that any run answers; scores are 1/rank."""
    by_query = [run.by_query() for run in runs]
    query_ids = dict.fromkeys(query_id for run in runs for query_id in run.query_ids)
    for query_id in query_ids:
        doc_ids = interleave([rankings[query_id] for rankings in by_query], depth)
        yield Ranking(query_id, doc_ids, 1.0 / np.arange(1, len(doc_ids) + 1))


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.interleave", __doc__)
    parser.add_argument("--runs", required=True, nargs="+", metavar="TREC", help="two or more runs, in order")
    parser.add_argument("--depth", type=int, default=1000, metavar="N", help="documents kept per query")
    parser.add_argument("--tag", required=True, metavar="NAME", help="last field of each line")
    parser.add_argument("--output", required=True, metavar="TREC")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Read the runs, interleave, write."""
    if len(args.runs) < 2:
        raise input_error("--runs", f"{len(args.runs)} run", "two or more", "name the runs to interleave")
    if args.depth < 1:
        raise input_error("--depth", str(args.depth), "1 or more", "give the number of documents to keep")
    # Arrow's default pool hands memory back at once and asks for it again, which is a tenth of all time here.
    pa.set_memory_pool(pa.system_memory_pool())
    # Reading is work of libraries that let other threads run.
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(read_run, args.runs))
    for path, run in zip(args.runs, runs, strict=True):
        log.info("%s: %d queries, %d results", path, len(run), len(run.doc_ids))
    lines = write_run(args.output, interleave_runs(runs, args.depth), args.tag)
    log.info("%d results written", lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
