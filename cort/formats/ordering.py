"""The order of rankings: by (-score, doc_id), where ids compare by their UTF-8 bytes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.ids import sort_keys
from cort.formats.records import Integers

ROWS_PER_SORT = 10_000


def is_falling(groups: npt.NDArray[np.integer[Any]], scores: npt.NDArray[np.floating]) -> bool:
    """Whether rows are grouped, in the order of the groups' numbers, with non-increasing scores."""
    step = np.diff(groups)
    return bool(((step > 0) | ((step == 0) & (scores[1:] <= scores[:-1]))).all())


def ranked(
    scores: npt.NDArray[np.floating],
    ids: pa.Array,
    groups: npt.NDArray[np.integer[Any]] | None = None,
    descending: bool = False,
) -> Integers:
    """Return the rows by (group, -score, id), or with descending ids, as trec_eval orders them."""
    groups = np.zeros(len(scores), np.int8) if groups is None else groups
    rows = np.arange(len(scores))
    if not is_falling(groups, scores):
        rows = np.lexsort((-scores, groups))
        scores, groups = scores[rows], groups[rows]
    as_before = np.concatenate([[False], (groups[1:] == groups[:-1]) & (scores[1:] == scores[:-1]), [False]])
    tied = np.flatnonzero(as_before[1:] | as_before[:-1])
    if not len(tied):
        return rows
    tie, keys = np.cumsum(~as_before[tied], dtype=np.int32), sort_keys(ids.take(rows[tied]))
    keys = ~keys if descending else keys
    # Sorting small pieces, cut between ties, is several times faster than sorting everything at once.
    starts = np.searchsorted(tie, tie[::ROWS_PER_SORT])
    for start, end in itertools.pairwise([*np.unique(starts).tolist(), len(tied)]):
        rows[tied[start:end]] = rows[tied[start + np.lexsort((keys[start:end], tie[start:end]))]]
    return rows
