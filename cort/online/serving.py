"""A server on this machine's own address that ends at once, and the line in which requests wait for one thread."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import uvicorn
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive

from cort.system.errors import input_error

Found = TypeVar("Found")

ADDRESS, LAST_PORT = "127.0.0.1", 65_535
#: requests that may wait for the thread
MOST_WAITING = 256
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """Hold a port of this machine's own address, any that is free if it is 0.

    :raises InputError: another program has it, or it is no port.
    """
    fix = "give another --port, or 0 for any that is free"
    if port > LAST_PORT:
        raise input_error("--port", str(port), f"{LAST_PORT} at most", fix)
    # With the protocol named, asyncio sends the parts of an answer at once: else each second one waits for 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as found:
        # What a server left behind that has just ended is no other program.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((ADDRESS, port))
            found.listen()
        except OSError as error:
            why = "that another program listens at" if error.errno == errno.EADDRINUSE else f"({error.strerror})"
            raise input_error("--port", f"{port} {why}", "a free one", fix) from None
        yield found


class Line:
    """One thread that does all that is asked of it, one after the other."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        """Take `most` as the number of requests that may wait."""
        self.most, self._waiting = most, 0
        self._pool = ThreadPoolExecutor(1, "searching")
        self._open: set[Future[Any]] = set()

    def submit(self, work: Callable[[], Found]) -> Future[Found]:
        """Let the thread do something."""
        found = self._pool.submit(work)
        self._open.add(found)
        found.add_done_callback(self._open.discard)
        return found

    async def result(self, work: Callable[[], Found], receive: Receive) -> Found:
        """Wait for the thread's turn and its result; what nobody waits for any more is not begun.

        :raises HTTPException: too many wait already, or the one who asked has left.
        """
        if self._waiting >= self.most:
            raise HTTPException(503, f"{self._waiting} requests wait already: ask again later")
        self._waiting += 1
        done = asyncio.wrap_future(self.submit(work))
        left = asyncio.ensure_future(_leaving(receive))
        both: set[asyncio.Future[Any]] = {done, left}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise HTTPException(499, "the one who asked has left")
            return done.result()
        finally:
            self._waiting -= 1
            for one in both:
                one.cancel()

    def end(self) -> bool:
        """Take no more work; False if the thread is still at some, which nothing can stop."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return all(one.done() for one in set(self._open))


async def _leaving(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def serve(app: ASGIApp, listener: socket.socket, ready: Callable[[], None]) -> int:
    """Answer requests until a signal comes, and return its number; requests that wait then get no answer.

    :param ready: is called when the first request can be made.
    """
    config = uvicorn.Config(
        app, http="h11", ws="none", lifespan="off", log_config=None, log_level="critical", server_header=False
    )
    return asyncio.run(_serve(uvicorn.Server(config), listener, ready))


async def _serve(server: uvicorn.Server, listener: socket.socket, ready: Callable[[], None]) -> int:
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        server.should_exit = server.force_exit = True

    # In the place of uvicorn's own, which wait for requests, and raise the signal again in the end.
    setattr(server, "capture_signals", nullcontext)  # noqa: B010
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        # A job in the background of a shell ignores Ctrl-C.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end, number)
    serving = asyncio.ensure_future(server.serve([listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    ready()
    await serving
    return received[0] if received else signal.SIGTERM
