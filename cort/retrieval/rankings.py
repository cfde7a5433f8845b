"""What all searches of vectors have in common: they rank rows, and the doc_ids of passages, by row, break ties."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.ids import joined
from cort.formats.ordering import ranked
from cort.formats.records import Ranking

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
#: scores and rows of the passages that a query finds, by (-score, doc_id)
Results: TypeAlias = tuple[npt.NDArray[np.floating], Rows]

# Queries of a run that are searched for at once: exact search reads all passages once for them.
QUERIES_AT_ONCE = 512


def exact_scores(vectors: npt.NDArray[np.floating], query: Vectors) -> Vectors:
    """Multiply vectors, (rows, e), with a query in double precision, and round to single precision.

    `vecdot` computes each pair alone, so the order of its additions depends only on the dimension.
    """
    scores: Vectors = np.vecdot(vectors.astype(np.float64), query.astype(np.float64)).astype(np.float32)
    return scores


class DocIds:
    """The doc_ids of all passages by row."""

    def __init__(self, ids: pa.ChunkedArray) -> None:
        self._ids = joined(ids)

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, rows: Rows) -> list[str]:
        """Look up doc_ids."""
        doc_ids: list[str] = self._ids.take(pa.array(rows)).to_pylist()
        return doc_ids

    def best(self, scores: npt.NDArray[np.floating], rows: Rows, depth: int) -> Results:
        """Order the passages in these rows by (-score, doc_id); return the top `depth` scores and rows."""
        # Adding 0 turns -0 into 0, which is equal but has different bytes.
        scores = scores + np.float32(0)
        if len(scores) > depth > 0:
            least = np.partition(scores, len(scores) - depth)[len(scores) - depth]
            rows, scores = rows[scores >= least], scores[scores >= least]
        order = ranked(scores, self._ids.take(pa.array(rows)))[:depth]
        return scores[order], rows[order]


class Index(Protocol):
    """All passages, searched exactly or by an approximate index of a given width."""

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""

    def search(self, queries: Any, depth: int) -> list[Results]:
        """Rank passages; return the top `depth` of each query."""


class Approximate(Protocol):
    """An open approximate index."""

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""

    def search(self, query: Any, width: float, depth: int) -> Results:
        """Rank the passages found for a query with a width, in one thread."""


@dataclass(frozen=True)
class IndexSearch:
    """An approximate index with the width of its searches, used like exact search; `threads` do not change results."""

    index: Approximate
    width: float
    threads: int = 1

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""
        return self.index.ids(rows)

    def search(self, queries: Any, depth: int) -> list[Results]:
        """Rank passages for each query, several queries at a time."""
        search = partial(self.index.search, width=self.width, depth=depth)
        if self.threads == 1:
            return [*map(search, queries)]
        with ThreadPoolExecutor(self.threads) as pool:
            return [*pool.map(search, queries)]


def rank(index: Index, batches: Iterable[tuple[Sequence[str], Any]], depth: int) -> Iterator[Ranking]:
    """Rank passages for the queries of all batches, ids and vectors; yield the top `depth` of each, in order."""
    for query_ids, queries in batches:
        for query_id, (scores, rows) in zip(query_ids, index.search(queries, depth), strict=True):
            yield Ranking(query_id, index.ids(rows), scores)
