"""Interleave rankings: the best of each run in turn, each document once (CoRT paper, section 3.4).

The run named first gives the first document. A query that only some of the runs answer is kept from those.

Reads:  two or more run.trec
Writes: run.trec, scores 1/rank, queries in the order in which the runs first name them
Usage:  python -m cort.interleave --runs cort.trec bm25.trec --depth 1000 --tag cort+bm25 --output run.trec
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cort.formats.records import Ranking
from cort.formats.runs import Run, read_run, write_run
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, required

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


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    runs: tuple[str, ...] = required("TREC", "two or more runs, in order")
    depth: int = optional(1000, "documents kept per query", "N")
    tag: str = required("NAME", "last field of each line")
    output: str = required("TREC")


def stage(options: Options) -> None:
    """Read the runs, interleave, write."""
    if len(options.runs) < 2:
        raise input_error("--runs", f"{len(options.runs)} run", "two or more", "name the runs to interleave")
    if options.depth < 1:
        raise input_error("--depth", str(options.depth), "1 or more", "give the number of documents to keep")
    # Arrow's default pool hands memory back at once and asks for it again, which is a tenth of all time here.
    pa.set_memory_pool(pa.system_memory_pool())
    # Reading is work of libraries that let other threads run.
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(read_run, options.runs))
    for path, run in zip(options.runs, runs, strict=True):
        log.info("%s: %d queries, %d results", path, len(run), len(run.doc_ids))
    lines = write_run(options.output, interleave_runs(runs, options.depth), options.tag)
    log.info("%d results written", lines)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
