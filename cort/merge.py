"""Merge the rankings of parts of a collection to one run, by (-score, doc_id).

The run has the same bytes for any number of parts.

Reads:  rankings.parquet of each part, of the same queries in the same order
Writes: run.trec
Usage:  python -m cort.merge --parts passages.1-of-2.parquet passages.2-of-2.parquet --depth 1000 --tag NAME
            --output run.trec
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cort.formats.records import Ranking
from cort.formats.runs import iter_rankings, order, write_run
from cort.retrieval.options import RunOptions, check_positive
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import required

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """Options of this stage."""

    parts: tuple[str, ...] = required("PARQUET", "rankings of every part, as from `retrieve exact`")


def merge(paths: Sequence[str], depth: int) -> Iterator[Ranking]:
    """Merge rankings query by query; yield the first `depth` results.

    :raises InputError: if parts have different queries, or two parts the same passage.
    """
    for parts in itertools.zip_longest(*map(iter_rankings, paths)):
        query_id = next(ranking.query_id for ranking in parts if ranking is not None)
        for path, ranking in zip(paths, parts, strict=True):
            if ranking is None or ranking.query_id != query_id:
                found = f"query {ranking.query_id}" if ranking else "no more queries"
                raise input_error(path, found, f"query {query_id}, as in the other parts", "retrieve every part again")
        yield _best(paths, query_id, parts, depth)


def _best(paths: Sequence[str], query_id: str, parts: Sequence[Ranking], depth: int) -> Ranking:
    doc_ids = np.array([doc_id for ranking in parts for doc_id in ranking.doc_ids], dtype=object)
    scores = np.concatenate([ranking.scores for ranking in parts])
    if len(set(doc_ids)) < len(doc_ids):
        found = f"a passage twice for query {query_id}"
        raise input_error(", ".join(paths), found, "each passage in one part", "name each part once")
    if depth < len(scores):
        # Sorting by ids is slow: drop what is below the last score first.
        kept = scores >= -np.partition(-scores, depth - 1)[depth - 1]
        doc_ids, scores = doc_ids[kept], scores[kept]
    best = order(doc_ids, scores)[:depth]
    return Ranking(query_id, doc_ids[best].tolist(), scores[best])


def stage(options: Options) -> None:
    """Read the parts, merge, write."""
    check_positive(options, "depth")
    lines = write_run(options.output, merge(options.parts, options.depth), options.tag)
    log.info("%d parts, %d results written", len(options.parts), lines)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
