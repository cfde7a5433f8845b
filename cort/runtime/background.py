"""A thread that consumes what this one makes."""

from __future__ import annotations

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
