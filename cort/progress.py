"""Progress of long work: a bar when a person watches the terminal, plain log lines when not."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

log = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 15.0


def track(
    items: Iterable[Item], total: int | None, what: str, done: int = 0, size: Callable[[Item], int] = lambda _: 1
) -> Iterator[Item]:
    """Yield `items` unchanged and show how many of `total` are done.

    :param total: None when unknown.
    :param what: what is counted, in plural ("passages").
    :param done: how many were done before, part of `total`.
    :param size: how many an item holds, if not one.
    """
    if sys.stderr.isatty():
        from tqdm import tqdm

        with tqdm(total=total, desc=what, initial=done, leave=False, dynamic_ncols=True) as bar:
            for item in items:
                yield item
                bar.update(size(item))
        return
    started = last = time.monotonic()
    count = done
    for item in items:
        yield item
        count += size(item)
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            log.info(
                "%d%s %s, %s", count, f" of {total}" if total else "", what, rate_text(count - done, now - started)
            )


def rate_text(count: int, seconds: float) -> str:
    """Say how fast it goes, in the unit that gives a number of at least 1."""
    rate = count / seconds
    return f"{rate:.1f} per second" if rate >= 1 else f"{60 * rate:.1f} per minute"
