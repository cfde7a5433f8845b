"""What a server needs first, and imports nothing slow: a port, and a queue for a searcher that is not thread-safe."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.types import Receive

from cort.runtime.errors import input_error

Returned = TypeVar("Returned")

ADDRESS, LAST_PORT = "127.0.0.1", 65_535
#: requests that may wait for the thread
MOST_WAITING = 256


class Line:
    """A queue of work for a single thread."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        """Let at most `most` requests wait."""
        self.most, self._waiting = most, 0
        self._pool = ThreadPoolExecutor(1, "searching")
        self._open: set[Future[Any]] = set()

    def submit(self, work: Callable[[], Returned]) -> Future[Returned]:
        """Let the thread do something."""
        future = self._pool.submit(work)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    async def result(self, work: Callable[[], Returned], receive: Receive) -> Returned:
        """Wait for a result of the thread; the work does not begin if the client has disconnected by then.

        :raises HTTPException: if too many requests wait already, or the client has disconnected.
        """
        if self._waiting >= self.most:
            raise HTTPException(503, f"{self._waiting} requests wait already: ask again later")
        self._waiting += 1
        done = asyncio.wrap_future(self.submit(work))
        disconnected = asyncio.ensure_future(_disconnected(receive))
        both: set[asyncio.Future[Any]] = {done, disconnected}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise HTTPException(499, "the client has disconnected")
            return done.result()
        finally:
            self._waiting -= 1
            for future in both:
                future.cancel()

    def end(self) -> bool:
        """Accept no more work; return False if some is still running, which nothing can stop."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return all(future.done() for future in set(self._open))


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """Listen at a port of this machine's own address, or at any free one if it is 0.

    :raises InputError: if another program uses the port, or it does not exist.
    """
    fix = "give another --port, or 0 for any free one"
    if port > LAST_PORT:
        raise input_error("--port", str(port), f"{LAST_PORT} at most", fix)
    # Because the protocol is named, asyncio sends the parts of an answer at once; otherwise, every second one waits for
    # 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        # The port of a server that has just ended is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((ADDRESS, port))
            listener.listen()
        except OSError as error:
            why = "that another program uses" if error.errno == errno.EADDRINUSE else f"({error.strerror})"
            raise input_error("--port", f"{port} {why}", "a free one", fix) from None
        yield listener


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
