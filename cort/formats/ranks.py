"""The rank column of a run with six fields, which trec_eval ignores: what it says of the scores."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cort.system.errors import input_error

log = logging.getLogger(__name__)

Codes: TypeAlias = npt.NDArray[np.int32]
Numbers: TypeAlias = npt.NDArray[np.float64]


def compare_ranks(path: str | Path, queries: Codes, scores: Numbers, ranks: Numbers) -> None:
    """Say how many queries have ranks that their scores contradict, or scores that are all equal; refuse distances.

    As for trec_eval, scores alone count; the rows are grouped by query and sorted by them. A query is upside down if
    its scores rise with the rank at more than three of four steps.
    """
    same, falls, rises = queries[1:] == queries[:-1], scores[1:] < scores[:-1], ranks[1:] > ranks[:-1]
    if (~same | (falls & rises)).all():
        return
    falls &= same
    of = queries[1:]
    every = queries, of[falls], of[falls & rises], of[falls & (ranks[1:] < ranks[:-1])]
    sizes, falling, right, wrong = (np.bincount(codes, minlength=queries[-1] + 1) for codes in every)
    ranked, upside_down = int((right + wrong > 0).sum()), int((wrong > 3 * right).sum())
    if 2 * upside_down > ranked:
        found = f"scores that rise with the rank, as distances do, in {upside_down} of {ranked} queries"
        fix = "change the sign of the scores, or number the ranks from the highest score on"
        raise input_error(path, found, "higher scores at better ranks", fix)
    if contradicted := int((wrong > 0).sum()):
        log.warning("%s: scores contradict ranks in %d of %d queries; scores count", path, contradicted, len(sizes))
    if level := int(((sizes > 1) & (falling == 0)).sum()):
        log.warning("%s: all scores are equal in %d of %d queries; document ids decide", path, level, len(sizes))
