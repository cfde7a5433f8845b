"""Pairs of query and document, compared by 64-bit hashes: no pair is joined to one string."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.ids import MULTIPLIER, Words, hashes, joined
from cort.formats.records import Integers


class Pairs(NamedTuple):
    """The query_id and doc_id of each pair."""

    query_ids: pa.Array
    doc_ids: pa.Array

    @classmethod
    def of(cls, table: pa.Table) -> Pairs:
        """Take the pairs of a table."""
        return cls(joined(table["query_id"]), joined(table["doc_id"]))


def match(left: Pairs, right: Pairs) -> Integers:
    """Return for each pair on the left a row with the same pair on the right, or -1; of several, the first."""
    wanted, known = (_hash(hashes(pairs.query_ids), pairs.doc_ids) for pairs in (left, right))
    order = np.argsort(known, kind="stable")
    places, found = np.searchsorted(known[order], wanted), np.full(len(wanted), -1)
    pending = np.arange(len(wanted))
    while True:
        pending = pending[places[pending] < len(order)]
        pending = pending[known[order[places[pending]]] == wanted[pending]]
        if not len(pending):
            return found
        rows = order[places[pending]]
        same = [_equal(*columns, pending, rows) for columns in zip(left, right, strict=True)]
        equal = same[0] & same[1]
        found[pending[equal]] = rows[equal]
        # Other pairs may share a hash.
        pending = pending[~equal]
        places[pending] += 1


def _equal(left: pa.Array, right: pa.Array, left_rows: Integers, right_rows: Integers) -> Integers:
    same = pc.equal(left.take(left_rows).cast("large_string"), right.take(right_rows).cast("large_string"))
    return np.asarray(same)


def find_repeated(queries: npt.NDArray[np.integer[Any]], doc_ids: pa.Array) -> int | None:
    """Return the first row whose document occurs before with the same query, a number; None if there is none."""
    pairs = np.sort(_hash(queries, doc_ids))
    repeated = pairs[1:][pairs[1:] == pairs[:-1]]
    suspects = np.flatnonzero(np.isin(_hash(queries, doc_ids), repeated)) if len(repeated) else repeated
    seen: set[tuple[int, str]] = set()
    for row in suspects.tolist():
        pair = int(queries[row]), doc_ids[row].as_py()
        if pair in seen:
            return int(row)
        seen.add(pair)
    return None


def _hash(queries: npt.NDArray[np.integer[Any]], doc_ids: pa.Array) -> Words:
    pairs = queries.astype(np.uint64)
    pairs *= MULTIPLIER
    pairs += hashes(doc_ids)
    return pairs
