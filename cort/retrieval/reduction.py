"""Vectors with fewer or smaller numbers, made from those that are stored: what a smaller index would find.

Fewer numbers are the first ones (Matryoshka; Kusupati et al., 2022) or, of a model that was not trained for that, the
coordinates along the principal components of the passages. The components are not centred, which keeps most of the
inner products. Vectors of length 1 get this length again. `fp16` rounds passages and queries, as an encoder with this
storage does; `int8` rounds each number of a passage to one of 256 values, evenly spaced over the range that this
component has in the collection, and leaves queries as they are.
"""

from collections.abc import Sequence
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


class Reduction:
    """A map from the vectors of a model to smaller ones.

    :ivar shards: the reduced passages, in memory, as if an encoder had stored them.
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
        self.shards = [self._stored(passages)]

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
        reduced = np.empty((count_rows(passages), self._dimension), np.float32)
        for start, block in enumerate(PassageVectors(passages).copies(BLOCK)):
            reduced[start * BLOCK : (start + 1) * BLOCK] = self._reduced(block)
        if self._storage == "int8":
            _round_to_bytes(reduced)
        storage = "fp16" if self._storage == "fp16" else "fp32"
        ids = [chunk for shard in passages for chunk in shard.table["id"].chunks]
        ends = np.cumsum([0, *map(len, ids)])
        kept = reduced.astype(np.float16) if storage == "fp16" else reduced
        batches = [vector_batch(own, kept[ends[at] : ends[at + 1]], storage) for at, own in enumerate(ids)]
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


def _round_to_bytes(vectors: Vectors) -> None:
    """Round each component, in place, to the nearest of 256 values between its smallest and its largest one."""
    low = vectors.min(axis=0, initial=np.inf).astype(np.float64)
    step = (vectors.max(axis=0, initial=-np.inf) - low) / 255
    step = np.where(step > 0, step, 1)
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK]
        block[:] = low + np.rint((block - low) / step) * step


def open_exact(passages: Sequence[Shard], reduced: Reduced, *settings: Any, **more: Any) -> ExactIndex | ReducedIndex:
    """Open an index over the stored vectors, or over smaller ones; `settings` are those of an `ExactIndex`."""
    if not (reduced.dimension or reduced.storage):
        return ExactIndex(passages, *settings, **more)
    reduction = Reduction(passages, reduced)
    return ReducedIndex(reduction, ExactIndex(reduction.shards, *settings, **more))
