"""Merge runs: by turns (the CoRT paper, section 3.4), or by reciprocal ranks; each document once.

By turns, the best of each run in turn, the run named first gives the first document. A query that only some of the runs
answer is kept from those.

Reads:  two or more run.trec
Writes: run.trec, queries in the order in which the runs first name them
Usage:  python -m cort.fuse --method interleave --runs cort.trec bm25.trec --depth 1000 --tag cort+bm25
            --output run.trec
"""

from __future__ import annotations

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from cort.formats.runs import read_run, refuse_other_queries, write_run
from cort.retrieval.fusion import FUSIONS, fuse_runs
from cort.retrieval.options import RunOptions, check_positive, choice
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import required

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """Options of this stage."""

    method: str = choice(FUSIONS, "interleave", "how the rankings are merged")
    runs: tuple[str, ...] = required("TREC", "two or more runs, in order")


def stage(options: Options) -> None:
    """Read the runs, merge, write."""
    if len(options.runs) < 2:
        raise input_error("--runs", f"{len(options.runs)} run", "two or more", "name the runs to merge")
    check_positive(options, "depth")
    if len(set(options.runs)) < len(options.runs):
        found = f"{len(set(options.runs))} different runs of {len(options.runs)}"
        raise input_error("--runs", found, "each once", "drop one")
    # Arrow's default pool hands memory back at once and asks for it again, which is a tenth of all time here.
    pa.set_memory_pool(pa.system_memory_pool())
    # Reading is work of libraries that let other threads run.
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(read_run, options.runs))
    for path, run in zip(options.runs, runs, strict=True):
        log.info("%s: %d queries, %d results", path, len(run), len(run.doc_ids))
    for path, run in zip(options.runs[1:], runs[1:], strict=True):
        refuse_other_queries(options.runs[0], runs[0], path, run)
    lines = write_run(options.output, fuse_runs(options.method, runs, options.depth), options.tag)
    log.info("%d results written", lines)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
