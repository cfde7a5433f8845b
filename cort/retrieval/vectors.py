"""The vectors of all passages, or of all their tokens, by row: in memory-mapped files or in main memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from cort.formats.records import offsets_of
from cort.formats.shards import Matrix, Shard, TokenShard, all_ids
from cort.retrieval.rankings import DocIds, Rows, Vectors

#: vectors by an encoder, or those of tokens
Shards: TypeAlias = Sequence[Shard] | Sequence[TokenShard]


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

    def held(self) -> StackedVectors:
        """Copy all vectors to main memory, in single precision."""
        return StackedVectors(self.copies(max(len(self), 1)), self.dimension)


class PassageVectors(StackedVectors):
    """The vectors of all passages, mapped from their files: one of each by an encoder, or those of their tokens."""

    def __init__(self, passages: Shards) -> None:
        self.passages = passages
        #: names of the files, in messages
        self.source = ", ".join(str(shard.path) for shard in passages)
        super().__init__((vectors for shard in passages for _, vectors in shard.blocks()), passages[0].dimension)

    @property
    def longest(self) -> float | None:
        """No vector is longer than this; None if the files do not say."""
        lengths = [float(shard.metadata.get("longest", "inf")) for shard in self.passages]
        return max(lengths) if max(lengths) < math.inf else None

    @cached_property
    def offsets(self) -> Rows:
        """The vectors of passage i are in the rows from offsets[i] to offsets[i + 1]."""
        counts = [
            first if isinstance(shard, TokenShard) else np.ones(len(first), np.int64)
            for shard in self.passages
            for first, _ in shard.blocks()
        ]
        return offsets_of(np.concatenate([np.zeros(0, np.int64), *counts]))

    def counts(self, rows: Rows) -> Rows:
        """Count the vectors of each passage in these rows."""
        counts: Rows = self.offsets[rows + 1] - self.offsets[rows]
        return counts

    def ragged(self, rows: Rows) -> tuple[Matrix, Rows]:
        """Copy the vectors of the passages in these rows, one passage after another; and count those of each."""
        counts = self.counts(rows)
        places = np.arange(counts.sum()) + np.repeat(self.offsets[rows] - np.cumsum(counts) + counts, counts)
        return self[places], counts


class PassageIndex:
    """The doc_ids and the vectors of all passages, memory-mapped."""

    def __init__(self, passages: Shards, vectors: PassageVectors | None = None) -> None:
        """Open the passages, with other `vectors` than those of their files if some are given."""
        self._doc_ids, self.vectors = DocIds(all_ids(passages)), vectors or PassageVectors(passages)

    def __len__(self) -> int:
        return len(self._doc_ids)

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""
        return self._doc_ids.of(rows)
