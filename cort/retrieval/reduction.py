"""Vectors with fewer or smaller numbers, made from those that are stored: what a smaller index would find.

Fewer numbers are the first ones (Matryoshka; Kusupati et al., 2022) or, of a model that was not trained for that, the
coordinates along the principal components of the passages. The components are not centred, which keeps most of the
inner products. Vectors of length 1 get this length again. `fp16` rounds passages and queries, as an encoder with this
storage does; `int8` rounds each number of a passage to one of 256 values, evenly spaced over the range that this
component has in the collection, and leaves queries as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from cort.config.systems import Reduced
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

    def __init__(self, passages: PassageVectors, dimension: int, blocks: Callable[[], Iterator[Vectors]]) -> None:
        super().__init__([], passages.ids, replace(passages.origin, dimension=dimension), passages.source)
        self._length = len(passages)
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

    :ivar vectors: the reduced ones of the passages, in memory.
    """

    def __init__(self, passages: PassageVectors, reduced: Reduced) -> None:
        """Reduce the passages.

        :raises InputError: for more numbers than a vector has.
        """
        (dimension, storage, first), whole = reduced, passages.dimension
        if dimension is not None and not 1 <= dimension <= whole:
            raise input_error("--dimension", dimension, f"1 to {whole}, the numbers of a stored vector", "lower it")
        self._storage, self._dimension = storage or passages.storage, dimension or whole
        self._is_unit, self._components = _are_unit(passages.lengths()), None
        self._libraries = ThreadpoolController()
        if self._dimension < whole and not first:
            with self._libraries.limit(limits=1, user_api="blas"):
                self._components = _principal_components(passages, self._dimension)
        # Their longest length is not known: rounding may lengthen vectors.
        self.vectors = self._in_bytes(passages) if self._storage == "int8" else self._in_memory(passages)

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

    def _in_bytes(self, passages: PassageVectors) -> PassageVectors:
        return ByteVectors(passages, self._dimension, lambda: map(self._reduced, passages.copies(BLOCK)))

    def _in_memory(self, passages: PassageVectors) -> PassageVectors:
        # Rounded block by block: there is no second copy in single precision.
        numbers = np.empty((len(passages), self._dimension), np.float16 if self._storage == "fp16" else np.float32)
        for start, block in enumerate(passages.copies(BLOCK)):
            numbers[start * BLOCK : (start + 1) * BLOCK] = self._reduced(block)
        origin = replace(passages.origin, dimension=self._dimension)
        return PassageVectors([numbers], passages.ids, origin, passages.source)


class ReducedIndex(ExactIndex):
    """Exact search over reduced vectors, for queries as the model encodes them."""

    def __init__(self, passages: PassageVectors, reduced: Reduced, *settings: Any, **more: Any) -> None:
        self._reduction = Reduction(passages, reduced)
        super().__init__(self._reduction.vectors, *settings, **more)

    def search(self, queries: Vectors, depth: int) -> list[Results]:
        """Rank all passages."""
        return super().search(self._reduction.of_queries(queries), depth)


def _are_unit(lengths: Vectors) -> bool:
    """Tell whether all vectors have the length 1, or 0, which is that of an empty text."""
    return bool(((np.abs(lengths - 1) < TOLERANCE) | (lengths == 0)).all())


def _principal_components(vectors: PassageVectors, dimension: int) -> Doubles:
    """Compute the directions in which the vectors are longest, on average: (dimension of the model, dimension)."""
    rows = np.unique(np.linspace(0, len(vectors) - 1, min(len(vectors), FITTED)).round().astype(np.int64))
    moments = np.zeros((vectors.dimension,) * 2)
    for start in range(0, len(rows), BLOCK):
        drawn = vectors[rows[start : start + BLOCK]].astype(np.float64)
        moments += drawn.T @ drawn
    _, directions = np.linalg.eigh(moments)
    components: Doubles = directions[:, ::-1][:, :dimension]
    return components


def open_exact(passages: PassageVectors, reduced: Reduced, *settings: Any, **more: Any) -> ExactIndex:
    """Open an index over the stored vectors, or over smaller ones; `settings` are those of an `ExactIndex`."""
    if reduced.dimension or reduced.storage:
        return ReducedIndex(passages, reduced, *settings, **more)
    return ExactIndex(passages, *settings, **more)
