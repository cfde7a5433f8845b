"""Measure what the rankings of systems have in common, on a split without judgements.

Reads:  a run per system, the queries of the split
Writes: overlap.json (`cort.evaluation.overlap.Overlap`): for each pair of systems the mean share of top passages that
        are in both lists, and the share of queries with the same top passage
Usage:  python -m cort.overlap --split eval --systems bm25 cort --runs bm25.trec cort.trec --queries queries.parquet
            --output overlap.json
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

import numpy as np

from cort.evaluation.overlap import Overlap, overlaps
from cort.evaluation.values import check_named
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.runs import read_run
from cort.reporting.explorer.rankings import UNKNOWN, combine, first_results, relevant_passages
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, required

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    split: str = required("NAME", "written into the output")
    systems: tuple[str, ...] = required("NAME", "names of all systems, in the order of the files")
    runs: tuple[str, ...] = required("TREC", "a run per system")
    queries: str = required("PARQUET", "all queries of the split")
    depth: int = optional(10, "number of top passages to compare", "N")
    output: str = required("JSON")


def stage(options: Options) -> None:
    """Read, compare, write."""
    check_named(options.systems, {"--runs": options.runs})
    if options.depth < 1:
        raise input_error("--depth", str(options.depth), "1 or more", "raise it")
    query_ids = list(tables.read_queries(options.queries))
    tops = [first_results(read_run(path), query_ids, options.depth) for path in options.runs]
    none = relevant_passages({query_id: {} for query_id in query_ids}, query_ids, 1)
    top = combine(tops, none, [np.zeros(0, dtype=np.int32)] * len(tops)).top
    pairs = overlaps([*options.systems], top, UNKNOWN)
    write_artifact(options.output, Overlap(options.split, len(query_ids), options.depth, [*options.systems], pairs))
    log.info("%d queries without judgements, %d pairs of systems", len(query_ids), len(pairs))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
