"""Runs to be merged, read and checked against each other."""

import logging
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from cort.formats.runs import Run, read_run
from cort.system.errors import input_error

log = logging.getLogger(__name__)

LARGEST = float(np.finfo(np.float32).max)


def read_parts(paths: Sequence[str], by_scores: bool) -> list[Run]:
    """Read runs of the same queries; log how many queries only some of them answer.

    :param by_scores: whether scores are used in addition to the order.
    :raises InputError: for a single run, one that shares no query with the others, or one with constant scores.
    """
    if len(paths) < 2:
        raise input_error("--runs", f"{len(paths)} run", "two or more", "name the runs to merge")
    if len(set(paths)) < len(paths):
        found = f"{len(set(paths))} different runs of {len(paths)}"
        raise input_error("--runs", found, "each once", "drop one")
    # Arrow's default pool frees memory immediately and allocates it again, which takes a tenth of the time here.
    pa.set_memory_pool(pa.system_memory_pool())
    # Threads help, because the libraries that read release Python's lock.
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(read_run, paths))
    for path, run in zip(paths, runs, strict=True):
        log.info("%s: %d queries, %d results", path, len(run), len(run.doc_ids))
    _compare_queries(paths, runs)
    for path, run in zip(paths, runs, strict=True) if by_scores else ():
        refuse_constant_scores(path, run)
    return runs


def _compare_queries(paths: Sequence[str], runs: Sequence[Run]) -> None:
    answered = Counter(query_id for run in runs for query_id in run.query_ids)
    for path, run in zip(paths, runs, strict=True):
        if all(answered[query_id] == 1 for query_id in run.query_ids):
            raise input_error(path, "no query of the other runs", "runs of the same queries", "name runs of one split")
    if partly := sum(times < len(runs) for times in answered.values()):
        log.warning(
            "%d of %d queries are not answered by all runs, and are merged from those that do", partly, len(answered)
        )


def refuse_constant_scores(path: str, run: Run) -> None:
    """Refuse a run with constant scores in most rankings, and log how many rankings have them.

    Scores count as constant if they differ by no more than the steps that keep tied scores in order in run files.

    :raises InputError: also if a score exceeds single precision.
    """
    if (beyond := np.flatnonzero(np.abs(run.scores) > LARGEST)).size:
        found = f"the score {run.scores[beyond[0]]:g}"
        raise input_error(path, found, f"-{LARGEST:.3g} to {LARGEST:.3g}", "scale the scores")
    scores = run.scores.astype(np.float32)
    first, last = scores[run.offsets[:-1]], scores[run.offsets[1:] - 1]
    steps = (np.diff(run.offsets) - 1) * np.spacing(np.maximum(np.abs(first), np.abs(last))).astype(np.float64)
    constant = int(np.count_nonzero(first.astype(np.float64) - last <= steps))
    if 2 * constant > len(run):
        found = f"constant scores, or a single result, in {constant} of {len(run)} rankings"
        raise input_error(path, found, "scores that tell documents apart", "merge this run by rrf or interleave")
    if constant:
        log.warning("%s: %d of %d rankings have constant scores or a single result", path, constant, len(run))
