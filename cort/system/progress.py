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
    items: Iterable[Item],
    total: int | None,
    what: str,
    done: int = 0,
    size: Callable[[Item], int] = lambda _: 1,
    note: Callable[[], str] | None = None,
) -> Iterator[Item]:
    """Yield `items` unchanged and show how many `what` ("passages") of `total`, if that is known, are done.

    `done` of the total were so before; an item holds `size` of them; a `note` says more about the last item.
    """
    if sys.stderr.isatty():
        from tqdm import tqdm

        with tqdm(total=total, desc=what, initial=done, leave=False, dynamic_ncols=True) as bar:
            for item in items:
                yield item
                bar.update(size(item))
                if note:
                    bar.set_postfix_str(note())
        return
    started = last = time.monotonic()
    count = done
    for item in items:
        yield item
        count += size(item)
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            parts = [f"{count}{f' of {total}' if total else ''} {what}", rate_text(count - done, now - started)]
            if total and count > done:
                parts.append(left_text((total - count) * (now - started) / (count - done)))
            if note:
                parts.append(note())
            log.info("%s", ", ".join(parts))


def left_text(seconds: float) -> str:
    """Say how long it will still take, in the unit that gives a small number of at least 1."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit} left"
    return f"{max(seconds, 0):.0f} s left"


def rate_text(count: int, seconds: float) -> str:
    """Say how fast it goes, in the unit that gives a number of at least 1."""
    rate = count / seconds
    return f"{rate:.1f} per second" if rate >= 1 else f"{60 * rate:.1f} per minute"
