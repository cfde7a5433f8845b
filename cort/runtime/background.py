"""A thread that consumes what this one makes, or makes what this one consumes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event, Semaphore
from typing import TypeVar

Item = TypeVar("Item")


def in_background(items: Iterable[Item], consume: Callable[[Iterator[Item]], None], ahead: int = 2) -> None:
    """Make items while a thread of its own consumes them; the first error of either ends both, and is raised.

    :param ahead: items that may wait.
    """
    # In a tuple, as an item may be anything; an exception ends them, None is their end.
    waiting: SimpleQueue[tuple[Item] | BaseException | None] = SimpleQueue()
    room, ended = Semaphore(ahead), Event()

    def received() -> Iterator[Item]:
        while (one := waiting.get()) is not None:
            if isinstance(one, BaseException):
                raise one
            room.release()
            yield one[0]

    def run() -> None:
        try:
            consume(received())
        finally:
            ended.set()
            room.release()

    with ThreadPoolExecutor(1, "background") as pool:
        consumed = pool.submit(run)
        try:
            for item in items:
                room.acquire()
                if ended.is_set():
                    break
                waiting.put((item,))
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)
            raise
        consumed.result()


def ahead(items: Iterable[Item], depth: int) -> Iterator[Item]:
    """Yield items, up to `depth` of which a thread prepares in advance; errors are raised in order."""
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1) as pool:
        futures = deque(pool.submit(next, iterator, end) for _ in range(depth))
        try:
            while (item := futures.popleft().result()) is not end:
                futures.append(pool.submit(next, iterator, end))
                yield item  # type: ignore[misc]
        finally:
            pool.shutdown(cancel_futures=True)
