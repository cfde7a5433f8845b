"""Storage of the passages' vectors for a search: memory-mapped files, or main memory."""

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from cort.formats.shards import Matrix, Shard, from_batch

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
# Row of the first vector, and vectors of shape (rows, dimension) as they are stored.
Block = tuple[int, Matrix]

# Passages per block in main memory; their scores for one query fit in a core's L1 cache.
HELD_BLOCK = 8_192


class HeldVectors:
    """A copy of all vectors in main memory, in single precision, in blocks."""

    def __init__(self, passages: Sequence[Shard]) -> None:
        table = pa.concat_tables([shard.table for shard in passages])
        self._count, blocks = len(table), -(-len(table) // HELD_BLOCK)
        # By NumPy, not torch: NumPy asks the system for huge pages, which are faster to read.
        self._vectors = np.empty((blocks, HELD_BLOCK, passages[0].dimension), dtype=np.float32)
        for number, block in enumerate(self._vectors):
            copy_vectors(table.slice(number * HELD_BLOCK, HELD_BLOCK), block)

    def __len__(self) -> int:
        return self._count

    def blocks(self) -> Iterator[Block]:
        """Yield the number of the first row, and the vectors, of each block."""
        for number, block in enumerate(self._vectors):
            first = number * HELD_BLOCK
            yield first, block[: self._count - first]

    def vectors(self, rows: Rows) -> Vectors:
        """Copy the vectors in these rows; shape (rows, dimension)."""
        vectors: Vectors = self._vectors[rows // HELD_BLOCK, rows % HELD_BLOCK]
        return vectors


class MappedVectors:
    """Vectors of a memory-mapped shard, read by row without copying the shard."""

    def __init__(self, shard: Shard) -> None:
        self._blocks = [vectors for _, vectors in shard.blocks() if len(vectors)]
        sizes = [len(vectors) for vectors in self._blocks]
        self._first = np.cumsum([0, *sizes])
        addresses = np.array([vectors.ctypes.data for vectors in self._blocks])
        size = self._blocks[0].itemsize
        start, end = addresses.min(), max(a + v.nbytes for a, v in zip(addresses, self._blocks, strict=True))
        # All record batches, and the bytes between them, are in one mapped file.
        memory = pa.foreign_buffer(int(start), int(end - start), base=shard.table)
        numbers = np.frombuffer(memory, dtype=self._blocks[0].dtype)
        self._offsets = (addresses - start) // size
        self._width = shard.dimension
        # Row i of this view begins at number i, so it contains every row of every block.
        self._windows = np.lib.stride_tricks.sliding_window_view(numbers, shard.dimension)

    def __len__(self) -> int:
        return int(self._first[-1])

    def blocks(self) -> Iterator[Block]:
        """Yield the number of the first row, and the vectors, of each block."""
        yield from zip(self._first[:-1].tolist(), self._blocks, strict=True)

    def vectors(self, rows: Rows) -> Matrix:
        """Copy the vectors in these rows; shape (rows, dimension)."""
        block = np.searchsorted(self._first, rows, side="right") - 1
        starts = self._offsets[block] + (rows - self._first[block]) * self._width
        vectors: Matrix = self._windows[starts]
        return vectors


def copy_vectors(table: pa.Table, block: Vectors) -> None:
    """Copy the vectors of a table of embeddings to the first rows of a block, in the threads of torch."""
    start = 0
    for _, vectors in map(from_batch, table.to_batches()):
        as_tensor(block[start : start + len(vectors)]).copy_(as_tensor(vectors))
        start += len(vectors)


def as_tensor(vectors: Matrix) -> Tensor:
    """Make a tensor that shares the memory of an array, which may be read-only; nothing writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(vectors)
