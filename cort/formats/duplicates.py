"""Rows of files that have the same key, such as an id, found without a Python object per row."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from cort.formats.ids import Words, has_repeated, joined
from cort.formats.lines import Parts, place_of
from cort.formats.records import Integers
from cort.formats.tables import DOC_IDS, iter_batches
from cort.runtime.errors import input_error, shorten


def numbers_of(texts: pa.Array) -> Words:
    """Give equal texts equal numbers, in this process; other texts share one only by a rare collision."""
    return np.array([*map(hash, texts.to_pylist())], np.int64).view(np.uint64)


def twins_of(path: str, numbers: Words) -> dict[str, str]:
    """Map the ids of passages of a collection that have equal numbers to the first of these; 0 is no number."""
    ordered = np.sort(numbers)
    again = np.unique(ordered[1:][(ordered[1:] == ordered[:-1]) & (ordered[1:] != 0)])
    first, twins = dict[int, str](), dict[str, str]()
    for batch in iter_batches(path, DOC_IDS) if len(again) else ():
        own, numbers = numbers[: len(batch)], numbers[len(batch) :]
        rows = np.flatnonzero(np.isin(own, again))
        for number, doc_id in zip(own[rows].tolist(), batch["doc_id"].take(pa.array(rows)).to_pylist(), strict=True):
            twins[doc_id] = first.setdefault(number, doc_id)
    return twins


def kept_rows(
    parts: Parts,
    keys: pa.ChunkedArray,
    kind: str,
    values: Callable[[], Integers | Words] | None = None,
    value: str = "",
) -> Integers | None:
    """Tell which rows to keep if identical ones are dropped; None for all.

    :param kind: what error messages call a key.
    :param values: computes numbers, equal if what belongs to the keys is equal; called only if a key is repeated.
        Without it, no rows are identical.
    :raises InputError: for a key with two values, which are called `value`.
    """
    if not has_repeated(keys):
        return None
    codes = joined(keys).dictionary_encode().indices.to_numpy()
    # For each row, the first one with the same key.
    first, rows = np.unique(codes, return_index=True)[1][codes], np.arange(len(codes))
    numbers = values() if values else rows
    if len(differing := np.flatnonzero(numbers != numbers[first])):
        again = int(differing[0])
        (path, row), (other, before) = place_of(parts, again), place_of(parts, int(first[again]))
        where = f"row {before}" + f" of {other}" * (len(parts) > 1)
        how = f"again, with another {value}" if values else "again"
        found = f"{kind} {shorten(keys[again].as_py())} {how} (it is already in {where})"
        raise input_error(path, found, f"each {kind} once", "remove one of the two rows", row)
    return np.flatnonzero(first == rows)
