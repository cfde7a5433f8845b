"""Shards: Arrow IPC files of texts' ids and what a model or tokenizer made of each text, memory-mapped.

| kind | column beside ``id: string`` |
|---|---|
| vectors | ``embedding: fixed_size_list<float32 or float16>[dimension]`` |
| token vectors | ``vectors: list<fixed_size_list<float16>[dimension]>``, without masked tokens |
| tokens | ``tokens: list<int32>``, without special tokens and not truncated: each reader truncates |

Metadata are the fingerprint of the model or tokenizer, and the settings that the column depends on.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cort.formats.damage import refusing_damage
from cort.formats.records import Integers, offsets_of
from cort.formats.tables import WHOLE, arrow_writer, open_arrow
from cort.runtime.errors import input_error, shorten

Storage = Literal["fp32", "fp16"]
STORAGE: dict[str, pa.DataType] = {"fp32": pa.float32(), "fp16": pa.float16()}
#: what a model computed vectors or scores in; metadata of their files
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
KEY = "precision"

Matrix = npt.NDArray[np.floating]
Half = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Kind:
    """A kind of shard: what errors call it, the stage that writes it, and the column beside the ids.

    `decisive` are the metadata in which the shards of one set agree.
    """

    name: str
    stage: str
    column: str
    decisive: tuple[str, ...]
    type: Callable[[Mapping[str, str]], pa.DataType]

    def schema(self, metadata: Mapping[str, str]) -> pa.Schema:
        """Return the columns of a file with these metadata."""
        return pa.schema({"id": "string", self.column: self.type(metadata)}, metadata=dict(metadata))

    def again(self) -> str:
        """Say how to replace a file."""
        return f"delete it and {self.stage.removesuffix('_tokens')} again"


def _half_lists(of: Mapping[str, str]) -> pa.DataType:
    return pa.list_(pa.list_(pa.float16(), int(of["dimension"])))


def _vector(of: Mapping[str, str]) -> pa.DataType:
    return pa.list_(STORAGE[of["storage"]], int(of["dimension"]))


ORIGIN = ("dimension", "passage_length", "similarity", "model")
VECTORS = Kind("shard of embeddings", "encode", "embedding", ("model", "dimension", "storage"), _vector)
TOKEN_VECTORS = Kind("shard of token vectors", "encode_tokens", "vectors", ORIGIN, _half_lists)
TOKENS = Kind("token cache", "tokenize", "tokens", ("tokenizer",), lambda _: pa.list_(pa.int32()))
AGAIN = VECTORS.again()


def _write(path: str | Path, kind: Kind, metadata: Mapping[str, str], batches: Iterable[tuple[object, object]]) -> int:
    """Write (ids, column) batches atomically; return the number of rows, which is checked if it was announced."""
    schema, rows = kind.schema(metadata), 0
    with arrow_writer(path, schema) as file:
        for ids, column in batches:
            columns = [pa.array(ids, "string"), pa.array(column, schema.field(1).type)]
            file.write_batch(pa.record_batch(columns, schema=schema))
            rows += len(columns[0])
        if rows != int(metadata.get("count", rows)):
            raise RuntimeError(f"{path}: {rows} rows written where {metadata['count']} were announced")
    return rows


def _open(path: str | Path, kind: Kind) -> tuple[pa.Table, dict[str, str]]:
    """Map a file and return it with its metadata; refuse damaged files and those of another kind."""
    with refusing_damage(path, kind.name, kind.again()):
        table = open_arrow(Path(path), kind.name, kind.again())
        metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        if not {*kind.decisive} <= {*metadata} or not table.schema.equals(kind.schema(metadata)):
            raise input_error(path, "another Arrow file", f"a {kind.name}", f"name the file that `{kind.stage}` wrote")
        return table, metadata


@dataclass(frozen=True)
class Origin:
    """How vectors were made: the settings that an index depends on, and the fingerprint of the model."""

    dimension: int
    passage_length: int
    similarity: str
    model: str


@dataclass(frozen=True)
class Shard:
    """A file of vectors, one per text, or of those of its tokens."""

    path: Path
    kind: Kind
    table: pa.Table
    metadata: Mapping[str, str]

    @property
    def origin(self) -> Origin:
        """How the vectors were made; those of texts are compared by their inner product, whatever their length."""
        of = {"passage_length": "1", "similarity": "dot", **self.metadata}
        return Origin(int(of["dimension"]), int(of["passage_length"]), of["similarity"], of["model"])

    @property
    def precision(self) -> Precision | None:
        """What the model computed in; files of earlier versions do not say."""
        return cast("Precision | None", self.metadata.get(KEY))

    def blocks(self) -> Iterator[Matrix]:
        """Yield vectors, (rows, dimension), without copying."""
        dimension = self.origin.dimension
        for numbers in self.table[self.kind.column].chunks:
            while not pa.types.is_floating(numbers.type):
                numbers = numbers.flatten()
            yield numbers.to_numpy(zero_copy_only=True).reshape(-1, dimension)


def vector_batch(ids: Sequence[str] | pa.Array, vectors: Matrix, storage: str) -> pa.RecordBatch:
    """Put ids and vectors, (rows, dimension), into the columns of a shard, as "fp32" or "fp16"."""
    schema = VECTORS.schema({"dimension": str(vectors.shape[1]), "storage": storage}).remove_metadata()
    values = np.ascontiguousarray(vectors, dtype=STORAGE[storage].to_pandas_dtype()).reshape(-1)
    column = pa.FixedSizeListArray.from_arrays(pa.array(values), type=schema.field(1).type)
    return pa.record_batch([pa.array(ids, "string"), column], schema=schema)


def token_vector_batch(ids: pa.Array, vectors: Half, counts: npt.NDArray[np.integer]) -> pa.RecordBatch:
    """Put ids, the vectors of their tokens (tokens, dimension) and the number of tokens of each id into columns."""
    schema = TOKEN_VECTORS.schema({"dimension": str(vectors.shape[1])}).remove_metadata()
    kind = schema.field(1).type
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float16).reshape(-1))
    values = pa.FixedSizeListArray.from_arrays(flat, type=kind.value_type)
    lists = pa.ListArray.from_arrays(pa.array(offsets_of(counts), "int32"), values, type=kind)
    return pa.record_batch([ids, lists], schema=schema)


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
    longest: float | None = None,
) -> None:
    """Write blocks of ids and vectors, (rows, dimension), atomically, with fingerprint and precision of the `model`.

    :param count: total number of rows.
    :param longest: no vector is longer; None if this is not known.
    """
    made = {"model": model, "count": count, "dimension": dimension, "storage": storage, "longest": longest}
    metadata = _texts(made) | {KEY: precision}
    batches = (vector_batch(ids, vectors, storage) for ids, vectors in blocks)
    _write(path, VECTORS, metadata, (batch.columns for batch in batches))


def write_token_shard(
    path: str | Path, batches: Iterable[pa.RecordBatch], origin: Origin, count: int, precision: str = "fp32"
) -> None:
    """Write batches from `token_vector_batch` atomically.

    :param count: total number of passages.
    """
    metadata = {**_texts(dataclasses.asdict(origin)), "count": str(count), KEY: precision}
    _write(path, TOKEN_VECTORS, metadata, (batch.columns for batch in batches))


def open_shards(paths: Sequence[str | Path], kind: Kind = VECTORS, **expected: object) -> list[Shard]:
    """Open the shards of one set; refuse one that was made in another way.

    :param expected: what files must say, as `model`; what is None or not given, they must say like the first one.
    """
    shards = [Shard(Path(path), kind, *_open(path, kind)) for path in paths]
    first = shards[0]
    needed = {key: first.metadata[key] for key in kind.decisive} | _texts(expected)
    for shard in shards:
        for key, value in needed.items():
            if (found := shard.metadata[key]) != value:
                what, name = kind.name.removeprefix("shard of "), key.replace("_", " ")
                raise input_error(shard.path, f"{what} of {name} {found}", f"{name} {value}", AGAIN)
        if (precision := shard.precision or "fp32") != (other := first.precision or "fp32"):
            fix = "set one of them instead of auto, and encode again"
            raise input_error(shard.path, f"vectors in {precision}", f"{other} as in {first.path}", fix)
    return shards


def _texts(metadata: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in metadata.items() if value is not None}


def shard_range(count: int, shard: str, option: str) -> tuple[int, int]:
    """Return the range of shard "i-of-n" among `count` items: its first, and the first of the next shard."""
    match = re.fullmatch(r"([0-9]+)-of-([0-9]+)", shard)
    number, shards = (int(part) for part in match.groups()) if match else (0, 0)
    if not 1 <= number <= shards:
        raise input_error(option, repr(shard), "i-of-n with 1 <= i <= n", "fix it")
    return count * (number - 1) // shards, count * number // shards


def read_precision(path: str | Path) -> Precision | None:
    """Read the precision of a file of vectors (Arrow IPC) or scores (parquet)."""
    with refusing_damage(path, *WHOLE):
        is_table = Path(path).suffix == ".parquet"
        schema = pq.read_schema(path) if is_table else pa.ipc.open_file(str(path)).schema
        stored = (schema.metadata or {}).get(KEY.encode())
        return cast(Precision, stored.decode()) if stored else None


def precision_of_queries(stored: Precision | None, configured: Precision | Literal["auto"]) -> Precision:
    """Return the precision of the passages, which queries share.

    Vectors of earlier versions are of the configured precision, which was not `auto` then.
    """
    return stored or ("fp32" if configured == "auto" else configured)


class Tokens:
    """Token ids of many texts, by row."""

    def __init__(self, path: str | Path, tokenizer: str | None = None) -> None:
        """Open a cache, which must have the fingerprint `tokenizer` if one is given."""
        self.path = Path(path)
        self._map(_open(path, TOKENS)[0])
        if tokenizer not in (None, self.tokenizer):
            found = f"tokens of tokenizer {self.tokenizer}"
            raise input_error(path, found, f"tokenizer {tokenizer}", TOKENS.again())

    @classmethod
    def of_texts(cls, texts: Sequence[npt.NDArray[np.int32]]) -> Tokens:
        """Hold the token ids of texts that are not in a file; their ids are row numbers."""
        tokens = cls.__new__(cls)
        tokens.path = Path()
        values = np.concatenate([np.empty(0, np.int32), *texts])
        lists = pa.ListArray.from_arrays(pa.array(offsets_of([*map(len, texts)]), "int32"), pa.array(values))
        tokens._map(pa.table([[str(row) for row in range(len(texts))], lists], schema=TOKENS.schema({})))
        return tokens

    def _map(self, table: pa.Table) -> None:
        self.tokenizer = (table.schema.metadata or {}).get(b"tokenizer", b"").decode()
        self.ids: pa.ChunkedArray = table["id"]
        self._tokens: pa.ChunkedArray = table["tokens"]
        self._values: list[npt.NDArray[np.int32]] = [chunk.values.to_numpy() for chunk in self._tokens.chunks]
        offsets = [chunk.offsets.to_numpy() for chunk in self._tokens.chunks]
        self._first_row = offsets_of([len(ends) - 1 for ends in offsets])
        #: number of tokens of each row, shape (rows,)
        self.lengths: Integers = np.concatenate([np.empty(0, np.int64), *map(np.diff, offsets)])
        #: position of each row's first token in its chunk, shape (rows,)
        self._starts = np.concatenate([np.empty(0, np.int32), *(ends[:-1] for ends in offsets)])

    def batches(self) -> Iterator[tuple[pa.Array, pa.ListArray]]:
        """Yield (ids, token ids) in the batches in which they were written."""
        return zip(self.ids.chunks, self._tokens.chunks, strict=True)

    def __len__(self) -> int:
        return int(self._first_row[-1])

    def __getitem__(self, row: int) -> npt.NDArray[np.int32]:
        return self.beginnings(np.array([row]), self.lengths[[row]])

    def beginnings(self, rows: npt.NDArray[np.integer], counts: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """Concatenate the first `counts[i]` tokens of each of the rows, (sum of counts,)."""
        chunks, starts = np.searchsorted(self._first_row, rows, side="right") - 1, self._starts[rows]
        places = zip(chunks.tolist(), starts.tolist(), (starts + counts).tolist(), strict=True)
        return np.concatenate(
            [np.empty(0, np.int32), *(self._values[chunk][start:end] for chunk, start, end in places)]
        )

    def rows_of(self, ids: pa.Array | pa.ChunkedArray, source: str | Path) -> Integers:
        """Return the rows of ids; the error for an unknown id names `source`."""
        rows = pc.index_in(ids.cast("large_string"), value_set=self.ids.cast("large_string"))
        if rows.null_count:
            unknown = ids.filter(pc.is_null(rows))[0].as_py()
            found = f"the unknown id {shorten(unknown)}"
            raise input_error(source, found, f"ids of {self.path}", "rebuild both from one collection")
        return np.asarray(rows, np.int64)


def write_tokens(
    path: str | Path, batches: Iterable[tuple[pa.Array, list[list[int]] | pa.ListArray]], tokenizer: str
) -> int:
    """Write (ids, token ids) batches atomically; return the number of rows."""
    return _write(path, TOKENS, {"tokenizer": tokenizer}, batches)
