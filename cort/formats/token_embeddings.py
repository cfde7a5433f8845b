"""Shards of token vectors: Arrow IPC files with the ids of passages, a vector per token, and how they were made.

The columns are ``id: string`` and ``vectors: list<fixed_size_list<float16>[dimension]>``, without masked tokens; files
are memory-mapped. Metadata are the count, the fingerprint of the model and the settings that the vectors depend on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.embeddings import AGAIN, Matrix, check_set, open_vectors, write_batches
from cort.formats.precisions import KEY, Precision, stored_precision
from cort.formats.records import Integers, offsets_of
from cort.formats.tables import refuse_damage
from cort.system.errors import input_error

Half = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Origin:
    """How token vectors were made: the settings that an index depends on, and the fingerprint of the model."""

    dimension: int
    passage_length: int
    similarity: str
    model: str

    def check(self, path: str | Path, expected: Origin) -> None:
        """Refuse the vectors in `path` if they were made in another way; the error names the first difference."""
        for field, value in dataclasses.asdict(self).items():
            if value != (needed := getattr(expected, field)):
                name = field.replace("_", " ")
                raise input_error(path, f"token vectors of {name} {value}", f"{name} {needed}", AGAIN)


@dataclass(frozen=True)
class TokenBlock:
    """Vectors of the tokens of consecutive passages, (tokens, dimension), not copied.

    Passage i has the rows ``offsets[i]:offsets[i + 1]``.
    """

    offsets: Integers
    vectors: Matrix

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, passage: int) -> Matrix:
        """Return the vectors of one passage."""
        return self.vectors[self.offsets[passage] : self.offsets[passage + 1]]


@dataclass(frozen=True)
class TokenShard:
    """One checked file."""

    path: Path
    table: pa.Table
    origin: Origin
    precision: Precision | None

    def blocks(self) -> Iterator[TokenBlock]:
        """Yield the record batches that have passages."""
        yield from (_from_batch(batch) for batch in self.table.to_batches() if batch.num_rows)


def to_batch(ids: pa.Array, vectors: Half, counts: npt.NDArray[np.integer]) -> pa.RecordBatch:
    """Put ids, the vectors of their tokens (tokens, dimension) and the number of tokens of each id into columns."""
    schema = _schema(vectors.shape[1])
    kind = schema.field("vectors").type
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float16).reshape(-1))
    values = pa.FixedSizeListArray.from_arrays(flat, type=kind.value_type)
    offsets = pa.array(offsets_of(counts), "int32")
    return pa.record_batch([ids, pa.ListArray.from_arrays(offsets, values, type=kind)], schema=schema)


def _from_batch(batch: pa.RecordBatch) -> TokenBlock:
    column = batch["vectors"]
    offsets = column.offsets.to_numpy().astype(np.int64)
    flat = column.flatten().flatten().to_numpy(zero_copy_only=True)
    return TokenBlock(offsets - offsets[0], flat.reshape(-1, column.type.value_type.list_size))


def write_token_shard(
    path: str | Path, batches: Iterable[pa.RecordBatch], origin: Origin, count: int, precision: str = "fp32"
) -> None:
    """Write batches from `to_batch` atomically.

    :param count: total number of passages, checked here and by every reader.
    """
    metadata = {name: str(value) for name, value in dataclasses.asdict(origin).items()}
    metadata |= {"count": str(count), KEY: precision}
    schema = _schema(origin.dimension).with_metadata(metadata)
    write_batches(path, schema, batches, count, "passages")


def open_token_shards(paths: Sequence[str | Path], expected: Origin | None = None) -> list[TokenShard]:
    """Open the shards of a collection, all of the `expected` origin (default: that of the first); no id twice."""
    shards = [_open(Path(path)) for path in paths]
    for shard in shards:
        shard.origin.check(shard.path, expected or shards[0].origin)
    check_set(paths, shards)
    return shards


def _open(path: Path) -> TokenShard:
    keys = {field.name for field in dataclasses.fields(Origin)}
    with refuse_damage(path, "shard of token vectors", AGAIN):
        table, metadata = open_vectors(path, "shard of token vectors", keys, "vectors", "encode_tokens")
        numbers = {name: int(metadata[name]) for name in ("dimension", "passage_length")}
        origin = Origin(**numbers, similarity=metadata["similarity"], model=metadata["model"])
        count = int(metadata["count"])
        kind, expected = table.schema.field("vectors").type, _schema(origin.dimension).field("vectors").type
        if table.num_rows != count or kind != expected:
            raise input_error(path, f"{table.num_rows} passages of {kind}", f"{count} of {expected}", AGAIN)
        return TokenShard(path, table, origin, stored_precision(table.schema))


def _schema(dimension: int) -> pa.Schema:
    return pa.schema({"id": "string", "vectors": pa.list_(pa.list_(pa.float16(), dimension))})
