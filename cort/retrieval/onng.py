"""Searches in an ONNG index (Iwasaki & Miyazaki 2018), which the stage `onng` builds with NGT."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from cort.retrieval.graph import Found, Graph, Matrix, Timed, Vectors, read_ids, read_meta


class Onng(Graph):
    """An index that is open for searching; the width of a search is epsilon."""

    queries_per_block = 64

    def search(self, query: Vectors, width: float, depth: int) -> Found:
        """Follow edges to passages within (1 + width) times the distance of the last result so far.

        Scores are computed from the index's distances (1 - d^2 / 2 for unit vectors).
        """
        pairs = self.index.search(query, size=depth, epsilon=width)
        rows, distances = zip(*pairs, strict=True) if pairs else ((), ())
        return Found(np.array(rows, dtype=np.int64), 1.0 - np.array(distances, dtype=np.float64) ** 2 / 2)

    def search_blocks(self, blocks: Sequence[Matrix], width: float, depth: int, threads: int) -> Iterator[Timed]:
        """Search every query of every block; the results do not depend on `threads`."""
        if threads == 1 or len(blocks) < 2:
            for block in blocks:
                yield from _search_block(self, block, width, depth)
            return
        # NGT searches one query at a time and holds Python's lock meanwhile. Forked processes share the index's memory.
        global _shared
        _shared = self
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(min(threads, len(blocks)), mp_context=context) as pool:
            for found in pool.map(_search_shared, blocks, itertools.repeat(width), itertools.repeat(depth)):
                yield from found


_shared: Onng


def _search_shared(block: Matrix, width: float, depth: int) -> list[Timed]:
    return _search_block(_shared, block, width, depth)


def _search_block(index: Onng, block: Matrix, width: float, depth: int) -> list[Timed]:
    results: list[Timed] = []
    for query in block.astype(np.float32):
        started = time.perf_counter()
        found = index.search(query, width, depth)
        results.append(Timed(found, time.perf_counter() - started))
    return results


def open_index(folder: str | Path) -> Onng:
    """Open an index for searching.

    :raises InputError: when a file is missing or not as it was written.
    """
    import ngtpy

    folder = Path(folder)
    meta = read_meta(folder, "onng")
    index = ngtpy.Index(str(folder), read_only=True, log_disabled=True)
    return Onng(index, read_ids(folder, meta.count, index.get_num_of_objects()), meta)
