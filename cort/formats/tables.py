"""Parquet tables: their schemas, and reading and writing them checked and whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cort.system.errors import input_error
from cort.system.files import atomic_file, flushing

PASSAGES = pa.schema([("doc_id", pa.string()), ("text", pa.string())])
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.string())])
QRELS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("relevance", pa.int32())])
TRIPLES = pa.schema(
    [
        ("epoch", pa.int32()),
        ("query_id", pa.string()),
        ("positive", pa.string()),
        ("negative", pa.string()),
        ("negative_rank", pa.int32()),
    ]
)
PAIRS = pa.schema(
    [("epoch", pa.int32()), ("query_id", pa.string()), ("doc_id", pa.string()), ("relevance", pa.int32())]
)
SCORES = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("score", pa.float32())])
PER_QUERY = pa.schema([("query_id", pa.string()), ("measure", pa.string()), ("value", pa.float64())])

EPOCHS = pa.schema([("epoch", pa.int32())])

ROW_GROUP = 65_536


def read_table(path: str | Path, schema: pa.Schema) -> pa.Table:
    """Read a whole parquet table and check that it has the columns of `schema`, without nulls."""
    file = _open(path, schema)
    try:
        table = file.read(columns=schema.names)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(path, error) from error
    for name in schema.names:
        if table.column(name).null_count:
            raise input_error(path, f"empty cells in column {name!r}", "a value in every row", "rebuild the file")
    return table.cast(schema)


def iter_batches(path: str | Path, schema: pa.Schema, rows: int = ROW_GROUP) -> Iterator[pa.RecordBatch]:
    """Stream a parquet table in batches of at most `rows` rows."""
    file = _open(path, schema)
    try:
        yield from file.iter_batches(batch_size=rows, columns=schema.names)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(path, error) from error


def regroup(batches: Iterable[pa.RecordBatch], rows: int = ROW_GROUP) -> Iterator[pa.Table]:
    """Cut a stream of batches anew, into tables of `rows` rows and a last one of the rest, without copying."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        while count >= rows:
            table = pa.Table.from_batches(held)
            yield table.slice(0, rows)
            held = table.slice(rows).to_batches()
            count -= rows
    if count:
        yield pa.Table.from_batches(held)


def count_rows(path: str | Path, schema: pa.Schema) -> int:
    """Count the rows, from the footer alone."""
    return int(_open(path, schema).metadata.num_rows)


def count_epochs(path: str | Path) -> int:
    """Count the epochs of a table of triples or pairs, whose rows are in training order; reads one column."""
    return int(read_table(path, EPOCHS)["epoch"][-1].as_py()) + 1


def write_table(path: str | Path, table: pa.Table) -> None:
    """Write a table atomically."""
    with open_writer(path, table.schema) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)


@contextmanager
def open_writer(path: str | Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yield a writer whose file appears under `path` only when everything was written."""
    # Texts and their ids do not repeat, and nobody looks for a range of them: dictionaries, statistics and a better
    # compression would take most of the time.
    texts = "text" in schema.names
    options = {"compression": "lz4" if texts else "zstd", "use_dictionary": not texts, "write_statistics": not texts}
    with (
        atomic_file(path) as temporary,
        flushing(temporary),
        pq.ParquetWriter(temporary, schema, write_batch_size=ROW_GROUP, **options) as writer,
    ):
        yield writer


def _open(path: str | Path, schema: pa.Schema) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path, memory_map=True)
    except (pa.ArrowInvalid, pa.ArrowIOError) as error:
        if not Path(path).exists():
            raise
        raise _damaged(path, error) from error
    found = {field.name: field.type for field in file.schema_arrow}
    wrong = [
        f"{field.name}: {found.get(field.name, 'missing')}" for field in schema if found.get(field.name) != field.type
    ]
    if wrong:
        expected = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise input_error(path, f"columns ({'; '.join(wrong)})", f"({expected})", "rebuild the file or name another")
    return file


def _damaged(path: str | Path, error: Exception) -> Exception:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return input_error(
        path, f"unreadable bytes ({reason})", "a whole parquet file", "delete it and let it be built again"
    )
