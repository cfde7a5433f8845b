"""Runs of components that are merged, read and checked against each other."""

import logging
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from cort.formats.runs import Run, read_run
from cort.retrieval.pool import bounds, untied
from cort.runtime.errors import input_error

log = logging.getLogger(__name__)

LARGEST = float(np.finfo(np.float32).max)


def read_components(paths: Sequence[str], by_scores: bool) -> list[Run]:
    """Read runs of the same queries; log how many queries only some of them answer.

    :param by_scores: whether scores are used in addition to the order.
    :raises InputError: for a run that shares no query with the others.
    """
    # Arrow's default pool frees memory immediately and allocates it again, which takes a tenth of the time here.
    pa.set_memory_pool(pa.system_memory_pool())
    # Threads help, because the libraries that read release Python's lock.
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(read_run, paths))
    for path, run in zip(paths, runs, strict=True):
        log.info("%s: %d queries, %d results", path, len(run), len(run.doc_ids))
    _compare_queries(paths, runs)
    for path, run in zip(paths, runs, strict=True) if by_scores else ():
        check_scores(path, run)
    return runs


def _compare_queries(paths: Sequence[str], runs: Sequence[Run]) -> None:
    answered = Counter(query_id for run in runs for query_id in run.query_ids)
    several = sum(map(bool, runs)) > 1
    for path, run in zip(paths, runs, strict=True):
        if several and len(run) and all(answered[query_id] == 1 for query_id in run.query_ids):
            raise input_error(path, "no query of the other runs", "runs of the same queries", "name runs of one split")
    if partly := sum(times < len(runs) for times in answered.values()):
        log.warning(
            "%d of %d queries are not answered by all runs, and are merged from those that do", partly, len(answered)
        )


def check_scores(path: str, run: Run) -> None:
    """Log in how many rankings of a run scores tell nothing apart; they count as 1 each (`min-max`) or 0 (`z-score`).

    :raises InputError: if a score exceeds single precision.
    """
    if (beyond := np.flatnonzero(np.abs(run.scores) > LARGEST)).size:
        found = f"the score {run.scores[beyond[0]]:g}"
        raise input_error(path, found, f"-{LARGEST:.3g} to {LARGEST:.3g}", "scale the scores")
    low, high = bounds(untied(run.scores, run.offsets), run.offsets)
    if level := int((low == high).sum()):
        log.warning("%s: %d of %d rankings have constant scores or a single result", path, level, len(run))
