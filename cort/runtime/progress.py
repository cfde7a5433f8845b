"""Progress of long work: log lines, or a bar on a terminal that no other process writes to.

Several jobs may share a terminal, which then shows the last line of each log now and then.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

Item = TypeVar("Item")

log = logging.getLogger(__name__)

#: environment variable of jobs: lowest level of messages on the terminal, while a log file has all of them
CONSOLE = "CORT_CONSOLE"
SECONDS_BETWEEN_LINES = 5.0
# Until the terminal shows how far a job is, and then again: where somebody watches, and elsewhere.
SECONDS_ON_TERMINAL, SECONDS_ELSEWHERE = 60.0, 300.0
# At the end of a log, where its last line is looked for.
LAST_BYTES = 4096
LINE = "{n_fmt} of {total_fmt}{unit}, {rate_fmt}, {remaining} left"


class Counter:
    """Counts finished `items` ("passages") and shows how many of `total` are done, how fast, and the time left.

    `done` were finished earlier; `note` returns more text to show. Use it as a context manager; nothing is shown unless
    `shown`.
    """

    def __init__(
        self,
        total: int | None,
        items: str,
        done: int = 0,
        note: Callable[[], str] | None = None,
        shown: bool = True,
    ) -> None:
        self.count, self._before = done, done
        self._total, self._items, self._note, self._shown = total, items, note, shown
        self._started = self._last = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Counter:
        if self._shown and sys.stderr.isatty() and CONSOLE not in os.environ:
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, desc=self._items, initial=self.count, leave=False, dynamic_ncols=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, number: int) -> None:
        """Count newly finished items."""
        self.count += number
        if self._bar is not None:
            self._bar.update(number)
            if self._note:
                self._bar.set_postfix_str(self._note())
        elif self._shown and (now := time.monotonic()) - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            log.info("%s", self._line(now - self._started))

    def reach(self, count: int) -> None:
        """Count items up to `count` as finished earlier, so that they do not affect the rate."""
        missing = max(count - self.count, 0)
        self.count, self._before = self.count + missing, self._before + missing
        if self._bar is not None:
            self._bar.initial += missing
            self._bar.update(missing)

    def _line(self, seconds: float) -> str:
        from tqdm import tqdm

        total: Any = self._total  # None is allowed, but not declared
        line = tqdm.format_meter(
            self.count, total, seconds, unit=f" {self._items}", initial=self._before, bar_format=LINE
        )
        return ", ".join([" ".join(line.split()), *([self._note()] if self._note else [])])


def track(
    items: Iterable[Item],
    total: int | None,
    name: str,
    done: int = 0,
    size: Callable[[Item], int] = lambda _: 1,
) -> Iterator[Item]:
    """Yield `items` unchanged and show how many of `name` are done; each item counts as `size` of them."""
    with Counter(total, name, done) as counter:
        for item in items:
            yield item
            counter.advance(size(item))


@contextmanager
def showing(path: str) -> Iterator[None]:
    """Write the last line of the log at `path` to standard error every minute, or every five without a terminal."""
    started, ended = time.monotonic(), threading.Event()

    def show() -> None:
        interval = SECONDS_ON_TERMINAL if sys.stderr.isatty() else SECONDS_ELSEWHERE
        while not ended.wait(interval):
            line = f"{path}, {(time.monotonic() - started) / 60:.0f} min: {_last_line(path)}\n"
            # In one call, so that lines of several processes do not mix. Nobody may be reading any more.
            with suppress(OSError):
                os.write(sys.stderr.fileno(), line.encode("utf-8", "backslashreplace"))

    # A thread, as a job may do nothing for minutes that counts. It reads the file, to which workers also write.
    threading.Thread(target=show, name="progress", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _last_line(path: str) -> str:
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(os.path.getsize(path) - LAST_BYTES, 0))
        if lines := file.read().decode("utf-8", "replace").splitlines():
            return lines[-1]
    return "no log"
