"""Runs of searches for many queries, with their time and what they lack."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence

from cort.formats.records import Ranking
from cort.formats.runs import write_run
from cort.formats.shards import Shard, count_rows
from cort.retrieval.rankings import Index, batches_of, rank
from cort.retrieval.search_options import SearchOptions
from cort.runtime.progress import track

log = logging.getLogger(__name__)


class Counted:
    """Rankings on their way into a file; `short` counts those with fewer results than `least`."""

    def __init__(self, rankings: Iterable[Ranking], least: int) -> None:
        self._rankings, self._least, self.short = rankings, least, 0

    def __iter__(self) -> Iterator[Ranking]:
        for ranking in self._rankings:
            self.short += len(ranking.doc_ids) < self._least
            yield ranking


def write_rankings(options: SearchOptions, rankings: Iterable[Ranking], queries: int, how: str, least: int) -> None:
    """Write the rankings as a run; log the time per query, and how many have fewer than `least` results."""
    started = time.perf_counter()
    counted = Counted(track(rankings, queries, "queries"), least)
    lines = write_run(options.output, counted, options.tag, options.without_excluded)
    if counted.short:
        log.warning("%d of %d queries have fewer than %d results", counted.short, queries, least)
    milliseconds = (time.perf_counter() - started) * 1000 / max(queries, 1)
    log.info("%d queries %s, %d results, %.2f ms per query", queries, how, lines, milliseconds)


def search_vectors(options: SearchOptions, index: Index, queries: Sequence[Shard], how: str, passages: int) -> None:
    """Search for the vectors of all queries, and write a run."""
    rankings = rank(index, batches_of(queries), options.reach)
    write_rankings(options, rankings, count_rows(queries), how, min(options.reach, passages))
