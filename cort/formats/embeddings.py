"""Embedding shards: Arrow IPC files with ids, vectors, count, dimension and the fingerprint of the model.

Columns ``id: string`` and ``embedding: fixed_size_list<float32 | float16>[dimension]``; read memory-mapped.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.blocks import shard_range
from cort.formats.tables import open_arrow, refuse_damage
from cort.formats.vector_files import AGAIN, check_ids, read_metadata, refuse_twice, write_batches
from cort.system.errors import input_error

Storage: TypeAlias = Literal["fp32", "fp16"]
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

    def blocks(self) -> Iterator[tuple[pa.Array, Matrix]]:
        """Yield (ids, vectors of shape (rows, dimension)) without copying."""
        return map(from_batch, self.table.to_batches())


def to_batch(ids: Sequence[str] | pa.Array, vectors: Matrix, storage: str) -> pa.RecordBatch:
    """Put ids and vectors of shape (rows, dimension) into the columns of a shard, as "fp32" or "fp16"."""
    schema = _schema(vectors.shape[1], storage)
    values = np.ascontiguousarray(vectors, dtype=STORAGE[storage].to_pandas_dtype()).reshape(-1)
    embeddings = pa.FixedSizeListArray.from_arrays(pa.array(values), type=schema.field("embedding").type)
    return pa.record_batch([pa.array(ids, pa.string()), embeddings], schema=schema)


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
) -> None:
    """Write (ids, vectors of shape (rows, dimension)) blocks atomically, with the fingerprint of their `model`.

    :param count: rows to come; checked, and again by every reader.
    """
    metadata = {"model": model, "count": str(count), "dimension": str(dimension), "storage": storage}
    schema = _schema(dimension, storage).with_metadata(metadata)
    write_batches(path, schema, (to_batch(ids, vectors, storage) for ids, vectors in blocks), count, "vectors")


def open_shards(paths: Sequence[str | Path], model: str | None = None) -> list[Shard]:
    """Open the shards of one set: same model (that given, else the first one's), dimension, storage; no id twice."""
    shards = [_open(Path(path)) for path in paths]
    expected = shards[0]
    for shard in shards:
        if shard.model != (wanted := model or expected.model):
            found = f"embeddings of model {shard.model}"
            raise input_error(shard.path, found, f"model {wanted}", "delete the file and encode again")
        if (shard.dimension, shard.storage) != (expected.dimension, expected.storage):
            found = f"{shard.dimension} dimensions in {shard.storage}"
            same = f"{expected.dimension} in {expected.storage} as in {expected.path}"
            raise input_error(shard.path, found, same, "delete the file and encode again")
    refuse_twice(paths, shards)
    return shards


def part_of(shards: Sequence[Shard], part: str) -> list[Shard]:
    """Take the rows of part "i-of-n" of all shards, one after the other.

    :raises InputError: for more parts than there are rows.
    """
    ends = list(itertools.accumulate(len(shard.table) for shard in shards))
    first, last = shard_range(ends[-1], part, "--part")
    if first == last:
        raise input_error("--part", part, f"at most {ends[-1]} parts, one per passage", "divide into fewer")
    found = []
    for shard, end in zip(shards, ends, strict=True):
        start = end - len(shard.table)
        rows = max(first - start, 0), min(last, end) - start
        if rows[0] < rows[1]:
            found.append(dataclasses.replace(shard, table=shard.table.slice(rows[0], rows[1] - rows[0])))
    return found


def all_vectors(shards: Sequence[Shard]) -> npt.NDArray[np.float32]:
    """Copy all vectors into one float32 matrix of shape (rows, dimension); only for sets that fit in memory."""
    parts = [np.asarray(vectors, dtype=np.float32) for shard in shards for _, vectors in shard.blocks()]
    return np.concatenate(parts) if parts else np.zeros((0, shards[0].dimension), dtype=np.float32)


def _open(path: Path) -> Shard:
    with refuse_damage(path, "embedding shard", AGAIN):
        return _check(path, open_arrow(path, "embedding shard", AGAIN))


def _check(path: Path, table: pa.Table) -> Shard:
    metadata = read_metadata(table)
    if not metadata.keys() >= {"model", "count", "dimension", "storage"} or table.column_names != ["id", "embedding"]:
        raise input_error(path, "another Arrow file", "an embedding shard", "name the file that `encode` wrote")
    dimension, count = int(metadata["dimension"]), int(metadata["count"])
    kind = table.schema.field("embedding").type
    if table.num_rows != count or kind != pa.list_(STORAGE[metadata["storage"]], dimension):
        found, expected = f"{table.num_rows} vectors of type {kind}", f"{count} of {dimension} x {metadata['storage']}"
        raise input_error(path, found, expected, AGAIN)
    check_ids(path, table)
    return Shard(path, table, metadata["model"], dimension, metadata["storage"])


def _schema(dimension: int, storage: str) -> pa.Schema:
    return pa.schema([("id", pa.string()), ("embedding", pa.list_(STORAGE[storage], dimension))])
