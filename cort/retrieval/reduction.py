"""Vectors with fewer or smaller numbers, made from those that are stored: what a smaller index would find.

Fewer numbers are the first ones (Matryoshka; Kusupati et al., 2022) or, of a model that was not trained for that, the
coordinates along the principal components of the passages. The components are not centred, which keeps most of the
inner products. Vectors of length 1 get this length again. `fp16` rounds passages and queries, as an encoder with this
storage does; `int8` rounds each number of a passage to one of 256 values, evenly spaced over the range that this
component has in the collection, and leaves queries as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from threadpoolctl import ThreadpoolController

from cort.config.systems import Reduced
from cort.formats.shards import Shard, count_rows, vector_batch
from cort.retrieval.exact import ExactIndex
from cort.retrieval.rankings import Results, Rows, Vectors
from cort.retrieval.vectors import PassageVectors
from cort.runtime.errors import input_error

Doubles: TypeAlias = npt.NDArray[np.float64]
# Passages at once, and passages, evenly spaced, that determine the components.
BLOCK, FITTED = 8_192, 65_536
# Largest deviation from the length 1: of vectors in half precision.
TOLERANCE = 1e-3


class ByteVectors(PassageVectors):
    """The vectors of all passages with a byte for each number; they are computed from these in blocks.

    That takes longer than a product: where memory allows, an `ExactIndex` holds them in single precision.

    :param blocks: yields the vectors before they are rounded; called twice.
    """

    def __init__(self, passages: Sequence[Shard], dimension: int, blocks: Callable[[], Iterator[Vectors]]) -> None:
        super().__init__(passages)
        self._length, self.dimension = super().__len__(), dimension
        low, high = np.full(dimension, np.inf, np.float32), np.full(dimension, -np.inf, np.float32)
        for block in blocks():
            low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
        self._low = low.astype(np.float64)
        step = high - self._low
        #: between neighbours of 256 values, evenly spaced from the smallest to the largest of a component
        self._step = np.where(step > 0, step, 255) / 255
        self._bytes = np.empty((self._length, dimension), np.uint8)
        start = 0
        for block in blocks():
            self._bytes[start : start + len(block)] = np.rint((block - self._low) / self._step)
            start += len(block)

    @property
    def longest(self) -> float | None:
        """Not known: rounding may lengthen vectors."""
        return None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, rows: Rows) -> Vectors:
        """Compute the vectors in these rows; shape (rows, dimension)."""
        return self._of(self._bytes[rows])

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, Vectors]]:
        """Yield the vectors from row `start` to row `end` in blocks, each with its first row."""
        for row in range(start, end, BLOCK):
            yield row, self._of(self._bytes[row : min(row + BLOCK, end)])

    def _of(self, numbers: npt.NDArray[np.uint8]) -> Vectors:
        vectors: Vectors = (self._low + numbers * self._step).astype(np.float32)
        return vectors


class Reduction:
    """A map from the vectors of a model to smaller ones.

    :ivar shards: the reduced passages, in memory, as if an encoder had stored them; with int8 the stored ones.
    :ivar vectors: those of the passages.
    """

    def __init__(self, passages: Sequence[Shard], reduced: Reduced) -> None:
        """Reduce the passages.

        :raises InputError: for more numbers than a vector has.
        """
        (dimension, storage, first), whole = reduced, passages[0].dimension
        if dimension is not None and not 1 <= dimension <= whole:
            raise input_error("--dimension", dimension, f"1 to {whole}, the numbers of a stored vector", "lower it")
        self._storage, self._dimension = storage or passages[0].storage, dimension or whole
        self._is_unit, self._components = all(map(_are_unit, PassageVectors(passages).copies(BLOCK))), None
        self._libraries = ThreadpoolController()
        if self._dimension < whole and not first:
            with self._libraries.limit(limits=1, user_api="blas"):
                self._components = _principal_components(passages, self._dimension)
        self.shards: Sequence[Shard]
        if self._storage == "int8":
            self.shards, blocks = passages, lambda: map(self._reduced, PassageVectors(passages).copies(BLOCK))
            self.vectors: PassageVectors = ByteVectors(passages, self._dimension, blocks)
        else:
            self.shards = [self._stored(passages)]
            self.vectors = PassageVectors(self.shards)

    def of_queries(self, vectors: Vectors) -> Vectors:
        """Reduce queries, (queries, dimension of the model)."""
        reduced = self._reduced(vectors)
        return reduced.astype(np.float16).astype(np.float32) if self._storage == "fp16" else reduced

    def _reduced(self, vectors: Vectors) -> Vectors:
        if self._dimension == vectors.shape[1]:
            return np.asarray(vectors, np.float32)
        if self._components is None:
            doubles = vectors[:, : self._dimension].astype(np.float64)
        else:
            # The number of threads must not change the last bits.
            with self._libraries.limit(limits=1, user_api="blas"):
                doubles = vectors @ self._components
        lengths = np.linalg.norm(doubles, axis=1, keepdims=True) if self._is_unit else np.ones(1)
        # Zero vectors stay what they are.
        return (doubles / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def _stored(self, passages: Sequence[Shard]) -> Shard:
        storage = "fp16" if self._storage == "fp16" else "fp32"
        # Rounded block by block: there is no second copy in single precision.
        numbers = np.float16 if storage == "fp16" else np.float32
        reduced = np.empty((count_rows(passages), self._dimension), numbers)
        for start, block in enumerate(PassageVectors(passages).copies(BLOCK)):
            reduced[start * BLOCK : (start + 1) * BLOCK] = self._reduced(block)
        ids = [chunk for shard in passages for chunk in shard.table["id"].chunks]
        ends = np.cumsum([0, *map(len, ids)])
        batches = [vector_batch(own, reduced[ends[at] : ends[at + 1]], storage) for at, own in enumerate(ids)]
        metadata = {**passages[0].metadata, "dimension": str(self._dimension), "storage": storage}
        # Rounding may lengthen vectors.
        metadata.pop("longest", None)
        return Shard(passages[0].path, pa.Table.from_batches(batches), metadata)


class ReducedIndex:
    """Exact search over reduced vectors."""

    def __init__(self, reduction: Reduction, index: ExactIndex) -> None:
        self._reduction, self._index = reduction, index

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""
        return self._index.ids(rows)

    def search(self, queries: Vectors, depth: int) -> list[Results]:
        """Rank all passages, as `ExactIndex.search` does, for queries as the model encodes them."""
        return self._index.search(self._reduction.of_queries(queries), depth)


def _are_unit(vectors: Vectors) -> bool:
    """Tell whether all vectors have the length 1, or 0, which is that of an empty text."""
    lengths = np.linalg.norm(vectors, axis=1)
    return bool(((np.abs(lengths - 1) < TOLERANCE) | (lengths == 0)).all())


def _principal_components(passages: Sequence[Shard], dimension: int) -> Doubles:
    """Compute the directions in which the vectors are longest, on average: (dimension of the model, dimension)."""
    vectors = PassageVectors(passages)
    rows = np.unique(np.linspace(0, len(vectors) - 1, min(len(vectors), FITTED)).round().astype(np.int64))
    moments = np.zeros((vectors.dimension,) * 2)
    for start in range(0, len(rows), BLOCK):
        drawn = vectors[rows[start : start + BLOCK]].astype(np.float64)
        moments += drawn.T @ drawn
    _, directions = np.linalg.eigh(moments)
    components: Doubles = directions[:, ::-1][:, :dimension]
    return components


def open_exact(passages: Sequence[Shard], reduced: Reduced, *settings: Any, **more: Any) -> ExactIndex | ReducedIndex:
    """Open an index over the stored vectors, or over smaller ones; `settings` are those of an `ExactIndex`."""
    if not (reduced.dimension or reduced.storage):
        return ExactIndex(passages, *settings, **more)
    reduction = Reduction(passages, reduced)
    return ReducedIndex(reduction, ExactIndex(reduction.shards, *settings, **more, vectors=reduction.vectors))
