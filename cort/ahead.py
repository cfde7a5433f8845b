"""Work on the next item while this one is used: for what spends its time outside Python, as Arrow's readers do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, each made in a thread of its own while the one before is in use; errors come in their turn."""
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(next, iterator, end)
        while (item := future.result()) is not end:
            future = pool.submit(next, iterator, end)
            yield item  # type: ignore[misc]
