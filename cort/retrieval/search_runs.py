"""Runs of searches for many queries, with their time and what they lack."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator

from cort.formats.records import Ranking
from cort.formats.runs import write_run
from cort.retrieval.rankings import Index, rank
from cort.retrieval.search_options import SearchOptions
from cort.retrieval.vectors import PassageVectors
from cort.runtime.progress import track

log = logging.getLogger(__name__)


def write_rankings(options: SearchOptions, rankings: Iterable[Ranking], queries: int, how: str, least: int) -> None:
    """Write the rankings as a run; log the time per query, and how many have fewer than `least` results."""
    started, short = time.perf_counter(), 0

    def counted() -> Iterator[Ranking]:
        nonlocal short
        for ranking in track(rankings, queries, "queries"):
            short += len(ranking.doc_ids) < least
            yield ranking

    lines = write_run(options.output, counted(), options.tag, options.without_excluded)
    if short:
        log.warning("%d of %d queries have fewer than %d results", short, queries, least)
    milliseconds = (time.perf_counter() - started) * 1000 / max(queries, 1)
    log.info("%d queries %s, %d results, %.2f ms per query", queries, how, lines, milliseconds)


def search_vectors(options: SearchOptions, index: Index, queries: PassageVectors, how: str, passages: int) -> None:
    """Search for the vectors of all queries, and write a run."""
    rankings = rank(index, queries.batches(), options.reach)
    write_rankings(options, rankings, len(queries), how, min(options.reach, passages))
