"""Parquet tables with their schemas, and Arrow IPC files: checked when read, and written atomically."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import cort.formats.arrow  # noqa: F401 - first of all that uses pyarrow
from cort.formats.damage import refusing_damage
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import atomic_file, flushing
from cort.runtime.progress import track

PASSAGES = pa.schema({"doc_id": "string", "text": "string"})
DOC_IDS = pa.schema([PASSAGES.field("doc_id")])
QUERIES = pa.schema({"query_id": "string", "text": "string"})
QRELS = pa.schema({"query_id": "string", "doc_id": "string", "relevance": "int32"})
EPOCHS = pa.schema({"epoch": "int32"})
TRIPLES = pa.schema(
    {"epoch": "int32", "query_id": "string", "positive": "string", "negative": "string", "negative_rank": "int32"}
)
PAIRS = pa.schema([*EPOCHS, *QRELS])
SCORES = pa.schema({"query_id": "string", "doc_id": "string", "score": "float32"})
EXPANSIONS = pa.schema({"doc_id": "string", "queries": pa.list_(pa.string())})
TERM_WEIGHTS = pa.schema({"doc_id": "string", "terms": pa.list_(pa.string()), "weights": pa.list_(pa.int32())})
IMPACTS = pa.schema({"id": "string", "tokens": pa.list_(pa.int32()), "impacts": pa.list_(pa.int32())})
PER_QUERY = pa.schema({"query_id": "string", "measure": "string", "value": "float64"})

ROW_GROUP = 65_536
# Rows of passages that are decoded for the text of one of them.
ROWS_READ_AT_ONCE = 2_048
# What a file should be, and what to do if it is not.
WHOLE = ("parquet file", "delete it and let it be built again")


def read_table(path: str | Path, schema: pa.Schema) -> pa.Table:
    """Read a parquet table into memory; it must have the columns of `schema`."""
    with refusing_damage(path, *WHOLE):
        table = _open(path, schema).read(columns=schema.names)
        table.validate(full=True)
        return table.cast(schema)


def read_column(path: str | Path, schema: pa.Schema, name: str) -> pa.ChunkedArray:
    """Read one column of a table, for example the ids of passages without their texts."""
    return read_table(path, pa.schema([schema.field(name)]))[name]


def read_queries(path: str | Path) -> dict[str, str]:
    """Read queries, id to text, in the order of the table."""
    queries = read_table(path, QUERIES)
    return dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True))


def iter_batches(path: str | Path, schema: pa.Schema, rows: int = ROW_GROUP) -> Iterator[pa.RecordBatch]:
    """Stream a parquet table in batches of at most `rows` rows."""
    with refusing_damage(path, *WHOLE):
        file = _open(path, schema)
        for batch in file.iter_batches(rows, columns=schema.names, use_threads=len(schema) > 1):
            batch.validate(full=True)
            yield batch


def select_texts(path: str | Path, schema: pa.Schema, ids: Iterable[str]) -> dict[str, str]:
    """Stream a table of (id, text) and keep the texts of `ids`; refuse a missing id."""
    needed = sorted(set(ids))
    name = schema.names[0]
    texts: dict[str, str] = {}
    for batch in track(iter_batches(path, schema), None, "batches read"):
        kept = batch.filter(pc.is_in(batch[name], value_set=pa.array(needed, "string")))
        texts.update(zip(kept[name].to_pylist(), kept["text"].to_pylist(), strict=True))
    if missing := [key for key in needed if key not in texts]:
        expected = "every id in the runs and judgements"
        raise input_error(path, f"no {name} {shorten(missing[0])}", expected, "name the matching file")
    return texts


def regroup(batches: Iterable[pa.RecordBatch], rows: int = ROW_GROUP) -> Iterator[pa.Table]:
    """Turn a stream of batches into tables of `rows` rows (the last may be shorter) without copying."""
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
    """Count the rows, reading only the footer."""
    return int(_open(path, schema).metadata.num_rows)


def count_epochs(path: str | Path) -> int:
    """Count the epochs in a table of triples or pairs, reading one column; refuse an empty table."""
    epochs = read_table(path, EPOCHS)["epoch"]
    if not len(epochs):
        raise input_error(path, "no rows", "at least one", "rebuild the file")
    return int(epochs[-1].as_py()) + 1


def has_column(path: str | Path, name: str) -> bool:
    """Whether a parquet table has a column of that name."""
    with refusing_damage(path, *WHOLE):
        return name in pq.read_schema(path).names


def open_arrow(path: Path, kind: str, remedy: str) -> pa.Table:
    """Memory-map a file; `kind` and `remedy` go into the error for damaged bytes."""
    with refusing_damage(path, kind, remedy):
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        # Offsets outside the file would end the process.
        table.validate(full=True)
        return table


@contextmanager
def arrow_writer(path: str | Path, schema: pa.Schema) -> Iterator[pa.RecordBatchFileWriter]:
    """Yield a writer whose Arrow IPC file appears under `path` only when it is complete."""
    with atomic_file(path) as temporary, pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
        yield file


def write_arrow(path: str | Path, table: pa.Table) -> None:
    """Write a table as Arrow IPC, atomically."""
    with arrow_writer(path, table.schema) as writer:
        writer.write_table(table)


def write_table(path: str | Path, table: pa.Table) -> None:
    """Write a table atomically."""
    with open_writer(path, table.schema) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)


@contextmanager
def open_writer(path: str | Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yield a writer whose parquet file appears under `path` only when it is complete."""
    # Texts and their ids hardly repeat and are never filtered by range: dictionaries, statistics and stronger
    # compression would take most of the time.
    texts = not {"text", "queries", "terms", "score"}.isdisjoint(schema.names)
    options = {"compression": "lz4" if texts else "zstd", "use_dictionary": not texts, "write_statistics": not texts}
    with (
        atomic_file(path) as temporary,
        flushing(temporary),
        pq.ParquetWriter(temporary, schema, write_batch_size=ROW_GROUP, write_page_checksum=True, **options) as writer,
    ):
        yield writer


def open_parquet(path: str | Path) -> pq.ParquetFile:
    """Open a parquet file whose pages are compared with their checksums when they are read."""
    with refusing_damage(path, *WHOLE):
        # A map or what is read ahead would keep all compressed bytes in memory until the last batch.
        return pq.ParquetFile(path, memory_map=False, pre_buffer=False, page_checksum_verification=True)


def _open(path: str | Path, schema: pa.Schema) -> pq.ParquetFile:
    file = open_parquet(path)
    with refusing_damage(path, *WHOLE):
        names = file.schema_arrow.names
    if missing := [f"{name}: missing" for name in schema.names if name not in names]:
        expected = f"columns {', '.join(schema.names)}"
        raise input_error(path, f"columns ({'; '.join(missing)})", expected, "rebuild the file or name another")
    return file
