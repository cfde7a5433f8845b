"""Searches in an HNSW index (Malkov & Yashunin 2018), which the stage `hnsw` builds with hnswlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cort.retrieval.graph import FIX, Found, Graph, Vectors, read_ids, read_meta
from cort.retrieval.graphs import GRAPHS
from cort.system.errors import input_error

(GRAPH_FILE,) = GRAPHS["hnsw"].files
SPACE = "ip"


class Hnsw(Graph):
    """An index that is open for searching; the width of a search is ef, the results it keeps while it goes on."""

    def search(self, query: Vectors, width: float, depth: int) -> Found:
        """Keep the best `width` passages found so far, and end when none of them leads to a better one."""
        self.index.set_ef(int(width))
        found = np.zeros((1, 0), np.int64), np.zeros((1, 0), np.float32)
        least, most = 0, min(depth, self.meta.count)
        asked = most
        # hnswlib refuses to return fewer than asked, where the graph does not lead the query to so many.
        while least < most:
            try:
                found = self.index.knn_query(query, k=asked, num_threads=1)
                least = asked
            except RuntimeError:
                most = asked - 1
            asked = (least + most + 1) // 2
        (rows,), (distances,) = found
        return Found(rows.astype(np.int64), 1.0 - distances.astype(np.float64))


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
        found = f"an index that cannot be read ({error})"
        raise input_error(folder / GRAPH_FILE, found, "a whole one", FIX) from error
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
