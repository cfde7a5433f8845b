"""Shards of token vectors: Arrow IPC files with the ids of passages, a vector per token, and what made them.

Columns ``id: string`` and ``vectors: list<fixed_size_list<float16>[dimension]>``, without the tokens that do not count;
read memory-mapped. The metadata have count, fingerprint of the model, and the settings that vectors depend on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.tables import open_arrow, refuse_damage
from cort.formats.vector_files import AGAIN, check_ids, read_metadata, refuse_twice, write_batches
from cort.system.errors import input_error

Half = npt.NDArray[np.float16]
DAMAGED = "token vectors", AGAIN


@dataclass(frozen=True)
class Origin:
    """What token vectors were made with: settings by which an index of others is told, and the model as a whole."""

    dimension: int
    passage_length: int
    similarity: str
    model: str

    def check(self, path: str | Path, expected: Origin) -> None:
        """Refuse vectors of `path` that were made with others than expected: the first difference is named.

        :raises InputError: names both.
        """
        for field in dataclasses.fields(self):
            found, wanted = (getattr(one, field.name) for one in (self, expected))
            if found != wanted:
                name = field.name.replace("_", " ")
                raise input_error(
                    path, f"token vectors of {name} {found}", f"{name} {wanted}", "delete the file and encode again"
                )


@dataclass(frozen=True)
class TokenBlock:
    """Vectors of the tokens of some passages, one after the other: (tokens, dimension), not copied.

    Those of passage i are from row ``offsets[i]`` to before ``offsets[i + 1]``.
    """

    offsets: npt.NDArray[np.int64]
    vectors: Half

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, passage: int) -> Half:
        """Vectors of one passage."""
        return self.vectors[self.offsets[passage] : self.offsets[passage + 1]]


@dataclass(frozen=True)
class TokenShard:
    """One checked file."""

    path: Path
    table: pa.Table
    origin: Origin

    def blocks(self) -> Iterator[TokenBlock]:
        """Yield the record batches that have passages."""
        yield from (_from_batch(batch) for batch in self.table.to_batches() if batch.num_rows)


def to_batch(ids: pa.Array, vectors: Half, counts: npt.NDArray[np.integer]) -> pa.RecordBatch:
    """Put ids, vectors of all their tokens (tokens, dimension), and the number of tokens of each into columns."""
    schema = _schema(vectors.shape[1])
    kind = schema.field("vectors").type
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float16).reshape(-1))
    values = pa.FixedSizeListArray.from_arrays(flat, type=kind.value_type)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    return pa.record_batch([ids, pa.ListArray.from_arrays(offsets, values, type=kind)], schema=schema)


def _from_batch(batch: pa.RecordBatch) -> TokenBlock:
    column = batch["vectors"]
    offsets = column.offsets.to_numpy().astype(np.int64)
    flat = column.flatten().flatten().to_numpy(zero_copy_only=True)
    return TokenBlock(offsets - offsets[0], flat.reshape(-1, column.type.value_type.list_size))


def write_token_shard(path: str | Path, batches: Iterable[pa.RecordBatch], origin: Origin, count: int) -> None:
    """Write what `to_batch` made, atomically.

    :param count: passages to come; checked, and again by every reader.
    """
    metadata = {"count": str(count)} | {name: str(value) for name, value in dataclasses.asdict(origin).items()}
    schema = _schema(origin.dimension).with_metadata(metadata)
    write_batches(path, schema, batches, count, "passages")


def open_token_shards(paths: Sequence[str | Path], expected: Origin | None = None) -> list[TokenShard]:
    """Open the shards of one collection, which must be of that origin, or all of one; no id twice."""
    shards = [_open(Path(path)) for path in paths]
    for shard in shards:
        shard.origin.check(shard.path, expected or shards[0].origin)
    refuse_twice(paths, shards)
    return shards


def _open(path: Path) -> TokenShard:
    with refuse_damage(path, *DAMAGED):
        return _check(path, open_arrow(path, *DAMAGED))


def _check(path: Path, table: pa.Table) -> TokenShard:
    metadata = read_metadata(table)
    fields: dict[str, Any] = {field.name: metadata.get(field.name) for field in dataclasses.fields(Origin)}
    if None in fields.values() or "count" not in metadata or table.column_names != ["id", "vectors"]:
        raise input_error(path, "another Arrow file", "token vectors", "name the file that `encode_tokens` wrote")
    numbers = {name: int(fields[name]) for name in ("dimension", "passage_length")}
    origin, count = Origin(**(fields | numbers)), int(metadata["count"])
    kind, wanted = table.schema.field("vectors").type, _schema(origin.dimension).field("vectors").type
    if table.num_rows != count or kind != wanted:
        found, expected = f"{table.num_rows} passages of {kind}", f"{count} of {wanted}"
        raise input_error(path, found, expected, AGAIN)
    check_ids(path, table)
    return TokenShard(path, table, origin)


def _schema(dimension: int) -> pa.Schema:
    return pa.schema([("id", pa.string()), ("vectors", pa.list_(pa.list_(pa.float16(), dimension)))])
