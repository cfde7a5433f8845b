"""How long the parts of a search take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

#: in the order in which a search reaches them; BM25 runs in parallel with tokenize, encode and search
PARTS = ("tokenize", "encode", "search", "bm25", "merge", "rerank")


@contextmanager
def timed(milliseconds: dict[str, float], part: str) -> Iterator[None]:
    """Add the duration of the block to the time of a part; threads may share the times, but not a part."""
    started = time.perf_counter()
    yield
    milliseconds[part] = milliseconds.get(part, 0.0) + 1000 * (time.perf_counter() - started)
