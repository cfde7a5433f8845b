"""Work on the next items while one is used: for what spends its time outside Python, as Arrow's readers do."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def ahead(items: Iterable[Item], depth: int = 4) -> Iterator[Item]:
    """Yield the items; a thread makes up to `depth` of them before they are asked for. Errors come in their turn."""
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1) as pool:
        futures = deque(pool.submit(next, iterator, end) for _ in range(depth))
        try:
            while (item := futures.popleft().result()) is not end:
                futures.append(pool.submit(next, iterator, end))
                yield item  # type: ignore[misc]
        finally:
            pool.shutdown(cancel_futures=True)
