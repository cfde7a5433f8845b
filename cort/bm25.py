"""Rank the passages for every query by BM25, with Anserini's batch search over a Lucene index.

Anserini orders by (-score, doc_id), rounds scores to four decimals, and lowers scores that this makes equal by 0.000001
each. The run has the order of the printed scores, then of doc_ids, which differs from Lucene's own only where two
scores above 32 agree to four decimals. A query with no word left after analysis has no results.

Reads: the index, the queries (parquet). Writes: a run, in the order of the queries.
Usage: python -m cort.bm25 --index lucene --queries queries.dev.parquet --k1 0.9 --b 0.4 --depth 1000 --threads 2
       --memory-mb 2000 --tag bm25 --output bm25.trec
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from cort.formats import tables
from cort.formats.records import Ranking
from cort.formats.runs import write_run
from cort.retrieval.bm25 import K1, B, Searcher, make_grid, rank, read_parameters
from cort.retrieval.options import BM25Options, RunOptions
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import temporary_folder
from cort.system.options import optional

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options(BM25Options, RunOptions):
    """Options of this stage."""

    k1: float | None = optional(None, f"default {K1}", "X")
    b: float | None = optional(None, f"default {B}", "X")
    parameters: str | None = optional(None, "k1 and b from `tune bm25`, instead of --k1 and --b", "JSON")


def stage(options: Options) -> None:
    """Search for the queries in several commands if need be, and write one run."""
    k1, b = options.k1, options.b
    if options.parameters is None:
        [parameters] = make_grid([K1 if k1 is None else k1], [B if b is None else b])
    elif k1 is None and b is None:
        parameters = read_parameters(options.parameters)
    else:
        raise input_error("--parameters", "--k1 or --b beside it", "one of the two", "leave one out")
    searcher = Searcher(options)
    queries = tables.read_table(options.queries, tables.QUERIES)
    log.info("%d queries, k1 %g, b %g", queries.num_rows, parameters.k1, parameters.b)
    answered = 0

    def counted(rankings: Iterator[Ranking]) -> Iterator[Ranking]:
        nonlocal answered
        for ranking in rankings:
            answered += 1
            yield ranking

    with temporary_folder(options.output) as folder:
        lines = write_run(options.output, counted(rank(searcher, queries, parameters, folder)), options.tag)
    log.info("%d results written; %d queries have none", lines, queries.num_rows - answered)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
