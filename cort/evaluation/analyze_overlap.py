"""Measure what the rankings of systems have in common, on a split without judgements.

Reads:  a run per system, the queries of the split
Writes: overlap.json (`cort.evaluation.overlap.Overlap`): for each pair of systems the mean share of top passages
        that are in both lists, and the share of queries with the same top passage; for each system the mean number
        of top passages that no other has
"""

import logging

from cort.config.fields import Depth
from cort.evaluation.options import SplitOptions
from cort.evaluation.overlap import Overlap, overlaps
from cort.evaluation.values import check_named
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.runs import read_run, top
from cort.runtime.sections import ParquetFile, Several, Text, TrecFile, same_as

log = logging.getLogger(__name__)


class Options(SplitOptions):
    """Options of this stage."""

    systems: Several[Text]
    """Names of all systems, in the order of the files."""
    runs: Several[TrecFile]
    """A run per system."""
    queries: ParquetFile
    """All queries of the split."""
    depth: int = same_as(Depth, "depth", default=10)
    """Number of top passages to compare."""


def stage(options: Options) -> None:
    """Compare the top passages of all pairs of systems."""
    check_named(options.systems, {"--runs": options.runs})
    query_ids = list(tables.read_queries(options.queries))
    runs = (top(read_run(path), options.depth).by_query() for path in options.runs)
    tops = {name: [*map(run.__getitem__, query_ids)] for name, run in zip(options.systems, runs, strict=True)}
    overlap = Overlap(options.split, len(query_ids), options.depth, [*tops], *overlaps(tops))
    write_artifact(options.output, overlap)
    log.info("%d queries without judgements, %d pairs of systems", len(query_ids), len(overlap.pairs))
