"""Searches in an ONNG index (Iwasaki & Miyazaki 2018), which the stage `onng` builds with NGT."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cort.retrieval.graph import Found, Graph, Vectors, read_ids, read_meta


class Onng(Graph):
    """An index that is open for searching; the width of a search is epsilon."""

    def search(self, query: Vectors, width: float, depth: int) -> Found:
        """Follow edges to passages within (1 + width) times the distance of the last result so far.

        Scores are computed from the index's distances (1 - d^2 / 2 for unit vectors).
        """
        pairs = self.index.search(query, size=depth, epsilon=width)
        rows, distances = zip(*pairs, strict=True) if pairs else ((), ())
        return Found(np.array(rows, dtype=np.int64), 1.0 - np.array(distances, dtype=np.float64) ** 2 / 2)


def open_index(folder: str | Path) -> Onng:
    """Open an index for searching.

    :raises InputError: when a file is missing or not as it was written.
    """
    import ngtpy

    folder = Path(folder)
    meta = read_meta(folder, "onng")
    index = ngtpy.Index(str(folder), read_only=True, log_disabled=True)
    return Onng(index, read_ids(folder, meta.count, index.get_num_of_objects()), meta)
