"""Embedding shards: Arrow IPC files with ids, vectors, count, dimension and the fingerprint of the model.

The columns are ``id: string`` and ``embedding: fixed_size_list<float32 | float16>[dimension]``, memory-mapped.
`cort.formats.token_embeddings` shares what files of vectors have in common: ids, and metadata with a count.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.blocks import shard_range
from cort.formats.ids import are_ids, has_repeated
from cort.formats.precisions import KEY, Precision, stored_precision
from cort.formats.tables import arrow_writer, open_arrow, refuse_damage
from cort.system.errors import input_error

AGAIN = "delete it and encode again"
Storage = Literal["fp32", "fp16"]
STORAGE: dict[str, pa.DataType] = {"fp32": pa.float32(), "fp16": pa.float16()}

Matrix = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Shard:
    """One checked embedding file."""

    path: Path
    table: pa.Table
    model: str
    dimension: int
    storage: str
    precision: Precision | None

    def blocks(self) -> Iterator[tuple[pa.Array, Matrix]]:
        """Yield (ids, vectors of shape (rows, dimension)) without copying."""
        return map(from_batch, self.table.to_batches())


def to_batch(ids: Sequence[str] | pa.Array, vectors: Matrix, storage: str) -> pa.RecordBatch:
    """Put ids and vectors, (rows, dimension), into the columns of a shard, as "fp32" or "fp16"."""
    schema = _schema(vectors.shape[1], storage)
    values = np.ascontiguousarray(vectors, dtype=STORAGE[storage].to_pandas_dtype()).reshape(-1)
    embeddings = pa.FixedSizeListArray.from_arrays(pa.array(values), type=schema.field("embedding").type)
    return pa.record_batch([pa.array(ids, "string"), embeddings], schema=schema)


def from_batch(batch: pa.RecordBatch) -> tuple[pa.Array, Matrix]:
    """Return ids and vectors, without copying."""
    column = batch["embedding"]
    matrix: Matrix = column.flatten().to_numpy(zero_copy_only=True).reshape(-1, column.type.list_size)
    return batch["id"], matrix


def write_shard(
    path: str | Path,
    blocks: Iterable[tuple[Sequence[str] | pa.Array, Matrix]],
    *,
    model: str,
    dimension: int,
    count: int,
    storage: str = "fp32",
    precision: str = "fp32",
) -> None:
    """Write blocks of ids and vectors, (rows, dimension), atomically, with fingerprint and precision of the `model`.

    :param count: total number of rows, checked here and by every reader.
    """
    metadata = {"model": model, "count": str(count), "dimension": str(dimension), "storage": storage, KEY: precision}
    schema = _schema(dimension, storage).with_metadata(metadata)
    write_batches(path, schema, (to_batch(ids, vectors, storage) for ids, vectors in blocks), count, "vectors")


def open_shards(paths: Sequence[str | Path], model: str | None = None) -> list[Shard]:
    """Open the shards of one set: same model (`model`, or that of the first), dimension and storage; no id twice."""
    shards = [_open(Path(path)) for path in paths]
    first = shards[0]
    for shard in shards:
        if shard.model != (expected := model or first.model):
            raise input_error(shard.path, f"embeddings of model {shard.model}", f"model {expected}", AGAIN)
        if (shard.dimension, shard.storage) != (first.dimension, first.storage):
            found = f"{shard.dimension} dimensions in {shard.storage}"
            expected = f"{first.dimension} in {first.storage} as in {first.path}"
            raise input_error(shard.path, found, expected, AGAIN)
    check_set(paths, shards)
    return shards


def open_both(passages: Sequence[str], queries: Sequence[str]) -> tuple[list[Shard], list[Shard]]:
    """Open the shards of passages and queries, of one model and dimension."""
    shards = open_shards(passages)
    asking = open_shards(queries, model=shards[0].model)
    if asking[0].dimension != (expected := shards[0].dimension):
        found = f"{asking[0].dimension} dimensions"
        raise input_error(asking[0].path, found, f"{expected} as in the passages", "encode again")
    return shards, asking


def part_of(shards: Sequence[Shard], part: str) -> list[Shard]:
    """Take the rows of part "i-of-n" of all shards, in order.

    :raises InputError: for more parts than there are rows.
    """
    first, last = shard_range(count_rows(shards), part, "--part")
    if first == last:
        raise input_error("--part", part, f"at most {count_rows(shards)} parts, one per passage", "divide into fewer")
    slices, start = [], 0
    for shard in shards:
        begin, end = max(first - start, 0), min(last - start, len(shard.table))
        if begin < end:
            slices.append(dataclasses.replace(shard, table=shard.table.slice(begin, end - begin)))
        start += len(shard.table)
    return slices


def all_vectors(shards: Sequence[Shard]) -> npt.NDArray[np.float32]:
    """Copy all vectors into one float32 matrix, (rows, dimension), which must fit in memory."""
    parts = [np.asarray(vectors, dtype=np.float32) for shard in shards for _, vectors in shard.blocks()]
    return np.concatenate(parts) if parts else np.zeros((0, shards[0].dimension), dtype=np.float32)


def _open(path: Path) -> Shard:
    with refuse_damage(path, "shard of embeddings", AGAIN):
        table, metadata = open_vectors(
            path, "shard of embeddings", {"model", "dimension", "storage"}, "embedding", "encode"
        )
        dimension, storage, count = int(metadata["dimension"]), metadata["storage"], int(metadata["count"])
        column = table.schema.field("embedding").type
        if table.num_rows != count or column != pa.list_(STORAGE[storage], dimension):
            found, expected = f"{table.num_rows} vectors of type {column}", f"{count} of {dimension} x {storage}"
            raise input_error(path, found, expected, AGAIN)
        return Shard(path, table, metadata["model"], dimension, storage, stored_precision(table.schema))


def _schema(dimension: int, storage: str) -> pa.Schema:
    return pa.schema({"id": "string", "embedding": pa.list_(STORAGE[storage], dimension)})


# What files of vectors have in common.


class HasTable(Protocol):
    """A checked file of vectors."""

    @property
    def path(self) -> Path:
        """Where it is."""

    @property
    def table(self) -> pa.Table:
        """Its rows."""

    @property
    def precision(self) -> Precision | None:
        """What a model computed it in, if it says so."""


def write_batches(
    path: str | Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], count: int, rows: str
) -> None:
    """Write batches with `count` rows in total atomically; `rows` is what a row is called, in the plural."""
    written = 0
    with arrow_writer(path, schema) as file:
        for batch in batches:
            file.write_batch(batch.cast(schema))
            written += batch.num_rows
        if written != count:
            raise RuntimeError(f"{path}: {written} {rows} written where {count} were announced")


def open_vectors(path: Path, kind: str, keys: Set[str], column: str, stage: str) -> tuple[pa.Table, dict[str, str]]:
    """Open a file with the columns id and `column`, and `keys` and a count as metadata; refuse others, and bad ids."""
    table = open_arrow(path, kind, AGAIN)
    metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    if not metadata.keys() >= keys | {"count"} or table.column_names != ["id", column]:
        raise input_error(path, "another Arrow file", f"a {kind}", f"name the file that `{stage}` wrote")
    if not are_ids(table["id"]):
        raise input_error(path, "an id that is empty or has whitespace or invisible characters", "ids", AGAIN)
    return table, metadata


def count_rows(shards: Sequence[HasTable]) -> int:
    """Count the rows of all shards."""
    return sum(shard.table.num_rows for shard in shards)


def all_ids(shards: Sequence[HasTable]) -> pa.ChunkedArray:
    """Return the ids of all shards, in order; as large strings, because those of a collection may exceed 2 GB."""
    ids = pa.chunked_array([chunk for shard in shards for chunk in shard.table["id"].chunks], "string")
    return ids.cast("large_string")


def check_set(paths: Sequence[str | Path], shards: Sequence[HasTable]) -> None:
    """Refuse shards of one set that contain an id twice, or whose machines chose different precisions."""
    first = shards[0].precision or "fp32"
    for shard in shards:
        if (precision := shard.precision or "fp32") != first:
            expected, fix = f"{first} as in {shards[0].path}", "set one of them instead of auto, and encode again"
            raise input_error(shard.path, f"vectors in {precision}", expected, fix)
    if has_repeated(all_ids(shards).cast("string")):
        source = ", ".join(map(str, paths))
        raise input_error(source, "an id twice", "each id once", "delete the shards and encode again")
