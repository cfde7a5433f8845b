"""Stored vectors of all passages, their exact scores, and the order of results; imports no torch."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.embeddings import Shard, all_ids
from cort.retrieval.vectors import HeldVectors, MappedVectors, Rows, Vectors
from cort.system.errors import input_error

# Passages that are scored at once.
BLOCK = 8_192


class Alphabet:
    """The doc_ids of all passages in alphabetical order, which breaks ties."""

    def __init__(self, ids: pa.ChunkedArray) -> None:
        by_id = pc.sort_indices(ids).to_numpy()
        self._places = np.empty(len(ids), dtype=np.int64)
        self._places[by_id] = np.arange(len(ids))
        self._sorted = ids.combine_chunks().take(by_id)

    def __len__(self) -> int:
        return len(self._places)

    def ids(self, places: Rows) -> list[str]:
        """Look up doc_ids by their places in alphabetical order."""
        doc_ids: list[str] = self._sorted.take(places).to_pylist()
        return doc_ids

    def best(self, scores: Vectors, rows: Rows, depth: int) -> tuple[Vectors, Rows]:
        """Order the passages in these rows by (-score, doc_id); return the top `depth` scores and places."""
        # Adding 0 turns -0 into 0, which is equal but has different bytes.
        scores = scores + np.float32(0)
        places = self._places[rows]
        best = np.lexsort((places, -scores))[:depth]
        return scores[best], places[best]


class StoredVectors:
    """The vectors of all passages, memory-mapped, and the exact scores of some."""

    def __init__(self, passages: Sequence[Shard]) -> None:
        self._order = Alphabet(all_ids(passages))
        self._stored: Sequence[MappedVectors | HeldVectors]
        self._stored = [MappedVectors(shard) for shard in passages if len(shard.table)]
        self._first = np.cumsum([0, *map(len, self._stored)])

    def __len__(self) -> int:
        return len(self._order)

    def ids(self, places: Rows) -> list[str]:
        """Look up doc_ids by their places in alphabetical order."""
        return self._order.ids(places)

    def best_of(self, query: Vectors, rows: Rows, depth: int) -> tuple[Vectors, Rows]:
        """Score these rows in double precision, round to single precision, and return the top `depth` as `search` does.

        `vecdot` computes each pair alone, so the order of its additions depends only on the dimension.
        """
        rows = np.sort(rows)
        scores = np.empty(len(rows), dtype=np.float32)
        ends = np.searchsorted(rows, self._first)
        for shard, first, start, end in zip(self._stored, self._first[:-1], ends[:-1], ends[1:], strict=True):
            vectors = shard.vectors(rows[start:end] - first).astype(np.float64)
            scores[start:end] = np.vecdot(vectors, query.astype(np.float64))
        return self._order.best(scores, rows, depth)

    def search(self, queries: Vectors, depth: int) -> list[tuple[Vectors, Rows]]:
        """Score all passages as `best_of` does: slower than an index, but there is none to build, nor torch to import.

        :returns: for each query its top `depth` by (-score, doc_id): scores, and places for `ids`.
        :raises InputError: for NaN or infinite values.
        """
        return [self._search(query.astype(np.float64), depth) for query in queries]

    def _search(self, query: npt.NDArray[np.float64], depth: int) -> tuple[Vectors, Rows]:
        scores = np.empty(len(self), dtype=np.float32)
        for shard, first in zip(self._stored, self._first.tolist(), strict=False):
            for start in range(0, len(shard), BLOCK):
                vectors = shard.vectors(np.arange(start, min(start + BLOCK, len(shard)))).astype(np.float64)
                scores[first + start : first + start + len(vectors)] = np.vecdot(vectors, query)
        if not np.isfinite(scores).all():
            expected, fix = "finite numbers", "train or encode again"
            raise input_error("embeddings", "a vector with NaN, infinite or very large values", expected, fix)
        rows = np.arange(len(scores))
        if depth < len(scores):
            rows = np.flatnonzero(scores >= np.partition(scores, -depth)[-depth])
        return self._order.best(scores[rows], rows, depth)
