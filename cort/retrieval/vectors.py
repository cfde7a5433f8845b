"""The vectors of all passages, or of all their tokens, by row: in memory-mapped files or in main memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.records import offsets_of
from cort.formats.shards import (
    AGAIN,
    STORAGE,
    TOKEN_VECTORS,
    VECTORS,
    Kind,
    Matrix,
    Origin,
    Precision,
    open_shards,
)
from cort.formats.tables import open_arrow
from cort.retrieval.rankings import QUERIES_AT_ONCE, DocIds, Rows, Vectors
from cort.runtime.errors import input_error

# Vectors that are measured at once.
MEASURED_AT_ONCE = 65_536


class StackedVectors:
    """Several arrays of vectors, each (rows, dimension), one after the other; they are not copied."""

    def __init__(self, arrays: Iterable[Matrix], dimension: int) -> None:
        self._arrays = [array for array in arrays if len(array)]
        lengths = np.array([len(array) for array in self._arrays], dtype=np.int64)
        self._ends, self.dimension = np.cumsum(lengths), dimension
        # Row i of `_windows` begins at number i of the memory from the first array to the last one, most of which may
        # be of others; only rows of the arrays are read. Row 0 of an array would begin at its origin if rows were
        # counted as in the whole.
        self._windows, self._origins = np.empty((0, dimension), np.float32), lengths
        if self._arrays:
            addresses = np.array([array.ctypes.data for array in self._arrays])
            start, item = addresses.min(), self._arrays[0].itemsize
            end = (addresses + lengths * dimension * item).max()
            memory = pa.foreign_buffer(int(start), int(end - start))
            numbers = np.frombuffer(memory, dtype=self._arrays[0].dtype)
            self._windows = np.lib.stride_tricks.sliding_window_view(numbers, dimension)
            self._origins = (addresses - start) // item - (self._ends - lengths) * dimension

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._arrays else 0

    def __getitem__(self, rows: Rows) -> Matrix:
        """Copy the vectors in these rows as they are stored; shape (rows, dimension)."""
        array = np.searchsorted(self._ends, rows, side="right")
        vectors: Matrix = self._windows[self._origins[array] + rows * self.dimension]
        return vectors

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, Matrix]]:
        """Yield the vectors from row `start` to row `end` without copying: views of arrays, each with its first row."""
        if start >= end:
            return
        first, last = np.searchsorted(self._ends, (start, end - 1), side="right").tolist()
        for array, stop in zip(self._arrays[first : last + 1], self._ends[first : last + 1].tolist(), strict=True):
            origin = stop - len(array)
            yield max(origin, start), array[max(start - origin, 0) : end - origin]

    def copies(self, size: int) -> Iterator[Vectors]:
        """Copy all vectors in single precision, `size` at a time; the last may be fewer."""
        for at in range(0, len(self), size):
            block = np.empty((min(size, len(self) - at), self.dimension), dtype=np.float32)
            for row, piece in self.pieces(at, at + len(block)):
                block[row - at : row - at + len(piece)] = piece
            yield block

    def matrix(self) -> Vectors:
        """Copy all vectors in single precision, (rows, dimension)."""
        return next(self.copies(max(len(self), 1)), np.empty((0, self.dimension), np.float32))


class PassageVectors(StackedVectors):
    """The vectors of all passages: one of each by an encoder, or those of their tokens.

    :ivar origin: how the vectors were made.
    :ivar source: names of the files, in messages.
    :ivar precision: what the model computed in; None if the files do not say.
    :ivar longest: no vector is longer than this; None if this is not known.
    """

    def __init__(
        self,
        arrays: Iterable[Matrix],
        ids: pa.ChunkedArray,
        origin: Origin,
        source: str,
        *,
        offsets: Rows | None = None,
        storage: str = "fp32",
        precision: Precision | None = None,
        longest: float | None = None,
    ) -> None:
        """Take the vectors of these passages, and where those of each begin and end (default: each has one)."""
        super().__init__(arrays, origin.dimension)
        self._ids, self.origin, self.source, self._offsets = ids, origin, source, offsets
        self.storage, self.precision, self.longest = storage, precision, longest

    def held(self) -> PassageVectors:
        """Copy all vectors to main memory, in single precision."""
        return PassageVectors([self.matrix()], self._ids, self.origin, self.source, longest=self.longest)

    @property
    def ids(self) -> pa.ChunkedArray:
        """The ids of the passages, by row; as large strings, because those of a collection may exceed 2 GB."""
        return self._ids.cast("large_string")

    @cached_property
    def offsets(self) -> Rows:
        """The vectors of passage i are in the rows from offsets[i] to offsets[i + 1]."""
        return np.arange(len(self) + 1) if self._offsets is None else self._offsets

    def counts(self, rows: Rows) -> Rows:
        """Count the vectors of each passage in these rows."""
        counts: Rows = self.offsets[rows + 1] - self.offsets[rows]
        return counts

    def ragged(self, rows: Rows) -> tuple[Matrix, Rows]:
        """Copy the vectors of the passages in these rows, one passage after another; and count those of each."""
        counts = self.counts(rows)
        places = np.arange(counts.sum()) + np.repeat(self.offsets[rows] - np.cumsum(counts) + counts, counts)
        return self[places], counts

    def lengths(self) -> Vectors:
        """Measure all vectors."""
        blocks = (np.linalg.norm(block, axis=1) for block in self.copies(MEASURED_AT_ONCE))
        return np.concatenate([np.zeros(0, np.float32), *blocks])

    def rounded(self, vectors: Matrix) -> Vectors:
        """Round vectors, (rows, dimension), as these are stored."""
        return vectors.astype(STORAGE[self.storage].to_pandas_dtype()).astype(np.float32)

    def batches(self, rows: Rows | None = None) -> Iterator[tuple[list[str], Vectors]]:
        """Yield ids and vectors of at most `QUERIES_AT_ONCE` queries at once: those in some rows, or all.

        :raises InputError: for NaN or infinite values.
        """
        ids, rows = self.ids, np.arange(len(self)) if rows is None else rows
        for start in range(0, len(rows), QUERIES_AT_ONCE):
            block = rows[start : start + QUERIES_AT_ONCE]
            vectors = self[block].astype(np.float32)
            if not np.isfinite(vectors).all():
                found = "a vector with NaN or infinite values"
                raise input_error(self.source, found, "finite values", "encode again")
            yield ids.take(pa.array(block)).to_pylist(), vectors

    def open_queries(self, paths: Sequence[str | Path]) -> PassageVectors:
        """Open the vectors of queries for these passages: of the same model and dimension."""
        return open_vectors(paths, model=self.origin.model, dimension=self.dimension)


def open_vectors(paths: Sequence[str | Path], kind: Kind | None = VECTORS, **expected: object) -> PassageVectors:
    """Map all shards of a set to memory.

    :param kind: None if both kinds will do.
    :param expected: as `open_shards` takes it.
    """
    if kind is None:
        columns = open_arrow(Path(paths[0]), "shard of vectors", AGAIN).column_names
        kind = VECTORS if VECTORS.column in columns else TOKEN_VECTORS
    shards = open_shards(paths, kind, **expected)
    table = pa.concat_tables([shard.table for shard in shards])
    longest = max(float(shard.metadata.get("longest", "inf")) for shard in shards)
    return PassageVectors(
        (block for shard in shards for block in shard.blocks()),
        table["id"],
        shards[0].origin,
        ", ".join(str(shard.path) for shard in shards),
        offsets=None if kind is VECTORS else offsets_of(pc.list_value_length(table[kind.column])),
        storage=shards[0].metadata.get("storage", "fp16"),
        precision=shards[0].precision,
        longest=longest if longest < math.inf else None,
    )


class PassageIndex:
    """The doc_ids and the vectors of all passages."""

    def __init__(self, vectors: PassageVectors) -> None:
        self._doc_ids, self.vectors = DocIds(vectors.ids), vectors

    def __len__(self) -> int:
        return len(self._doc_ids)

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""
        return self._doc_ids.of(rows)
