"""How long the parts of a search take."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: in the order in which a search comes to them; BM25 runs beside tokenize, encode and search
PARTS = ("tokenize", "encode", "search", "bm25", "merge", "rerank")


class Stopwatch:
    """Milliseconds by part, added up where a part comes several times; threads may share one."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure what happens within."""
        started = time.perf_counter()
        try:
            yield
        finally:
            elapsed = 1000 * (time.perf_counter() - started)
            with self._lock:
                self.milliseconds[name] = self.milliseconds.get(name, 0.0) + elapsed


def in_sequence(milliseconds: dict[str, float]) -> float:
    """Add up the parts, as if each had waited for the one before."""
    return sum(value for name, value in milliseconds.items() if name in PARTS)
