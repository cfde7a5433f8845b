"""What changes the texts of an index: queries that are appended to each passage, and weights of each passage's terms.

Both tables have a row per passage, in the order of the passages; of several files, the rows of the first come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.lines import Parts, place_of
from cort.system.errors import InputError, input_error, shorten

OTHERS = ("a row per passage, in the order of the collection", "delete it and let it be built again")


def iter_expanded(passages: str, files: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the passages in batches, each text followed by its queries, all with blanks between them."""
    for batch, queries in iter_beside(passages, files, tables.EXPANSIONS, rows):
        appended = pc.binary_join(queries["queries"], " ")
        expanded = pc.binary_join_element_wise(batch["text"], appended, " ")
        text = pc.if_else(pc.equal(pc.binary_length(appended), 0), batch["text"], expanded)
        yield pa.record_batch([batch["doc_id"], text], schema=tables.PASSAGES)


def iter_beside(
    passages: str, files: Sequence[str], schema: pa.Schema, rows: int
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield the passages in batches, and the rows of the files that are theirs.

    :raises InputError: files of another collection, or not of all of it.
    """
    others = chain.from_iterable(tables.iter_batches(path, schema, rows) for path in files)
    ahead, done = tables.regroup(others, rows), 0
    for table in tables.regroup(tables.iter_batches(passages, tables.PASSAGES, rows), rows):
        batch = _whole(table)
        found = _whole(next(ahead, schema.empty_table()))
        _compare(batch["doc_id"], found["doc_id"], files, schema, done)
        yield batch, found
        done += batch.num_rows
    if next(ahead, None) is not None:
        raise _more(files[-1], done)


def parts_of(files: Sequence[str], schema: pa.Schema) -> Parts:
    """Count the rows of each file from 1."""
    return [(path, range(1, tables.count_rows(path, schema) + 1)) for path in files]


def _more(source: str, passages: int) -> InputError:
    return input_error(source, f"more rows than the {passages} passages", *OTHERS)


def _whole(table: pa.Table) -> pa.RecordBatch:
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)


def _compare(ids: pa.Array, others: pa.Array, files: Sequence[str], schema: pa.Schema, done: int) -> None:
    """Refuse rows that are not those of the passages with these ids."""
    if ids.equals(others):
        return
    if len(others) < len(ids):
        raise input_error(files[-1], f"{done + len(others)} rows for more passages", *OTHERS)
    row = next((row for row, (one, other) in enumerate(zip(ids, others, strict=False)) if one != other), None)
    if row is None:
        raise _more(files[-1], done + len(ids))
    found = f"passage {shorten(others[row].as_py())} where the collection has {shorten(ids[row].as_py())}"
    source, place = place_of(parts_of(files, schema), done + row)
    raise input_error(source, found, *OTHERS, row=place)
