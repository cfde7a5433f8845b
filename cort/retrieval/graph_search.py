"""Searches in graph indexes: ONNG (Iwasaki & Miyazaki, 2018) with NGT, HNSW (Malkov & Yashunin, 2018) with faiss.

The width of a search is the epsilon of an ONNG, or the ef of an HNSW index; wider searches find more and take longer.

An index is a folder with the library's files, ids.arrow (the id of each vector, in order) and meta.json
(`cort/retrieval/index_meta.py`).
"""

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.tables import open_arrow
from cort.retrieval.index_meta import IndexMeta, read_meta
from cort.retrieval.indexes import FIX, IDS_FILE, INDEXES, load_faiss
from cort.retrieval.rankings import Approximate, DocIds, IndexSearch, Results, Rows, Vectors, exact_scores
from cort.retrieval.vectors import PassageVectors, open_vectors
from cort.runtime.errors import input_error

# Half-precision storage moves a unit vector's length by 0.0005 at most.
UNIT_TOLERANCE = 0.01
IDS = pa.schema({"id": "string"})
QUERIES_PER_BLOCK = 64

#: finds for a vector, with a width, in one thread, at most `depth` passages, fewer if no more are reached: their rows
#: and scores
Nearest: TypeAlias = Callable[[Vectors, float, int], tuple[npt.ArrayLike, npt.NDArray[np.floating]]]


@dataclass(frozen=True)
class Graph:
    """An open index: the library's search, the id of each row, and meta.json."""

    nearest: Nearest
    doc_ids: DocIds
    meta: IndexMeta

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""
        return self.doc_ids.of(rows)

    def search(self, query: Vectors, width: float, depth: int) -> Results:
        """Rank the nearest passages by inner product; for a query that is zero all, as exact search does."""
        rows: npt.ArrayLike = np.arange(self.meta.vectors)
        scores: npt.NDArray[np.floating] = np.zeros(self.meta.vectors)
        if query.any():
            rows, scores = self.nearest(query, width, depth)
        return self.doc_ids.best(scores, np.array(rows, np.int64), depth)


def _open_onng(folder: Path, meta: IndexMeta) -> Nearest:
    import ngtpy

    index = ngtpy.Index(str(folder), read_only=True, log_disabled=True)

    def nearest(query: Vectors, width: float, depth: int) -> tuple[npt.ArrayLike, npt.NDArray[np.float64]]:
        """Follow edges to passages within (1 + width) times the distance of the last result so far.

        Scores are computed from the index's distances (1 - d^2 / 2 for unit vectors).
        """
        pairs = index.search(query, size=depth, epsilon=width)
        rows, distances = zip(*pairs, strict=True) if pairs else ((), ())
        return rows, 1.0 - np.array(distances, dtype=np.float64) ** 2 / 2

    return nearest


def _open_hnsw(folder: Path, meta: IndexMeta) -> Nearest:
    faiss = load_faiss()
    # Vectors and edges are mapped, and need not fit in memory.
    index = faiss.read_index(str(folder / INDEXES["hnsw"].files[0]), faiss.IO_FLAG_MMAP_IFC)
    vectors = faiss.rev_swig_ptr(faiss.downcast_index(index.storage).get_xb(), meta.vectors * meta.dimension)
    vectors = vectors.reshape(meta.vectors, meta.dimension)

    def nearest(query: Vectors, width: float, depth: int) -> tuple[npt.ArrayLike, npt.NDArray[np.floating]]:
        """Keep the best `width` passages found so far, and stop when none of them has a better neighbour."""
        faiss.omp_set_num_threads(1)
        width_of = faiss.SearchParametersHNSW(efSearch=int(width))
        _, (rows,) = index.search(query[None], min(depth, meta.vectors), params=width_of)
        rows = np.sort(rows[rows >= 0])
        # faiss rounds equal products differently.
        return rows, exact_scores(vectors[rows], query)

    return nearest


KINDS: Mapping[str, Callable[[Path, IndexMeta], Nearest]] = {"onng": _open_onng, "hnsw": _open_hnsw}


def open_index(kind: str, folder: str | Path) -> Graph:
    """Open an index for searching.

    :raises InputError: if it is of another kind or damaged.
    """
    folder = Path(folder)
    meta = read_meta(folder, kind)
    try:
        nearest = KINDS[kind](folder, meta)
    except (RuntimeError, TypeError, MemoryError) as error:
        found = f"an index that cannot be read ({str(error).splitlines()[0]})"
        raise input_error(folder / INDEXES[kind].files[0], found, "a complete index", FIX) from error
    return Graph(nearest, DocIds(open_arrow(folder / IDS_FILE, "list of ids", FIX)["id"]), meta)


class ForkedSearch(IndexSearch):
    """An open ONNG with the width of its searches."""

    def search(self, queries: Vectors, depth: int) -> list[Results]:
        """Rank passages for each query, several blocks of queries at a time."""
        if min(self.threads, len(queries)) < 2:
            return super().search(queries, depth)
        # NGT holds Python's lock while it searches, hence processes. Forked ones share the memory of the index.
        global _shared
        _shared = self.index
        with ProcessPoolExecutor(self.threads, multiprocessing.get_context("fork")) as pool:
            search = partial(_search, width=self.width, depth=depth)
            return [*pool.map(search, queries, chunksize=QUERIES_PER_BLOCK)]


_shared: Approximate
#: searches for many queries
SEARCHES: Mapping[str, type[IndexSearch]] = {"onng": ForkedSearch, "hnsw": IndexSearch}


def _search(query: Vectors, width: float, depth: int) -> Results:
    return _shared.search(query, width, depth)


def open_queries(paths: Sequence[str], meta: IndexMeta) -> PassageVectors:
    """Open the vectors of queries, of the model and dimension of an index and of length 1 or 0."""
    queries = open_vectors(paths, model=meta.model, dimension=meta.dimension)
    unit_lengths(queries)
    return queries


def unit_lengths(vectors: PassageVectors) -> Vectors:
    """Return the lengths of all vectors; refuse others than 1 and 0, whose order by angle is not that by product."""
    lengths = vectors.lengths()
    wrong = lengths[~((np.abs(lengths - 1) <= UNIT_TOLERANCE) | (lengths == 0))]
    if len(wrong):
        fix = "use exact retrieval for a model that does not normalise, or encode again"
        raise input_error(vectors.source, f"a vector of length {wrong[0]:.4g}", "unit vectors", fix)
    return lengths
