"""Searches in an HNSW index (Malkov & Yashunin 2018), which the stage `hnsw` builds with hnswlib."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cort.retrieval.graph import Found, Graph, Matrix, Timed, Vectors, damaged, read_ids, read_meta
from cort.retrieval.graphs import GRAPHS
from cort.system.errors import input_error

(GRAPH_FILE,) = GRAPHS["hnsw"].files
SPACE = "ip"


class Hnsw(Graph):
    """An index that is open for searching; the width of a search is ef, the results it keeps while it goes on."""

    queries_per_block = 1_024

    def search(self, query: Vectors, width: float, depth: int) -> Found:
        """Keep the best `width` passages found so far, and end when none of them leads to a better one."""
        self.index.set_ef(int(width))
        rows, distances = _search(self.index, query, min(depth, self.meta.count))
        return Found(rows, 1.0 - distances.astype(np.float64))

    def search_blocks(self, blocks: Sequence[Matrix], width: float, depth: int, threads: int) -> Iterator[Timed]:
        """Search every query of every block; the results do not depend on `threads`."""
        for block in blocks:
            started = time.perf_counter()
            results = self._search_block(block.astype(np.float32), width, depth, threads)
            seconds = (time.perf_counter() - started) / len(block)
            yield from (Timed(found, seconds) for found in results)

    def _search_block(self, queries: Vectors, width: float, depth: int, threads: int) -> list[Found]:
        self.index.set_ef(int(width))
        try:
            rows, distances = self.index.knn_query(queries, k=min(depth, self.meta.count), num_threads=threads)
        except RuntimeError:
            # The graph does not lead some query to so many passages.
            return [self.search(query, width, depth) for query in queries]
        scores = 1.0 - distances.astype(np.float64)
        return [Found(*found) for found in zip(rows.astype(np.int64), scores, strict=True)]


def open_index(folder: str | Path) -> Hnsw:
    """Open an index for searching.

    :raises InputError: when a file is missing or not as it was written, or hnswlib is not installed.
    """
    folder = Path(folder)
    meta = read_meta(folder, "hnsw")
    index = library().Index(space=SPACE, dim=meta.dimension)
    try:
        index.load_index(str(folder / GRAPH_FILE))
    except RuntimeError as error:
        raise damaged(folder / GRAPH_FILE, error) from error
    return Hnsw(index, read_ids(folder, meta.count, index.get_current_count()), meta)


def library() -> Any:
    """Import hnswlib, the one dependency that must be compiled.

    :raises InputError: it is not there.
    """
    try:
        import hnswlib
    except ImportError as error:
        fix = "install g++ and the headers of Python, then `make hnswlib` or `pip install hnswlib==0.8.0`"
        raise input_error("hnswlib", "no such package", "hnswlib 0.8.0", fix) from error
    return hnswlib


def _search(index: Any, query: Vectors, depth: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Search for `depth` results, or for as many as the graph leads to: hnswlib refuses to return fewer than asked."""
    found, least, most, asked = None, 0, depth, depth
    while least < most:
        try:
            found = index.knn_query(query, k=asked, num_threads=1)
            least = asked
        except RuntimeError:
            most = asked - 1
        asked = (least + most + 1) // 2
    if found is None:
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    return found[0][0].astype(np.int64), found[1][0]
