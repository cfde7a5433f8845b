"""Locks on named things, shared by the processes of one machine through a folder of files.

Requests are for so many of some names. They are served in the order of their arrival; one that needs several keeps what
becomes free while it waits, so that no stream of smaller ones starves it, and delays none that wants other names. Locks
are taken all at once, so that no two processes wait for each other.

All locks are the kernel's (`filelock`, flock) and end with their holder, whatever ends it:

    mutex            held during each look at the others
    <name>.lock      held while the name is; says who holds it
    <n>.ticket       held while request n waits; says what it asks for
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import socket
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from filelock import FileLock, Timeout

from cort.system.errors import shorten

log = logging.getLogger(__name__)

# Seconds between two looks.
INTERVAL = 0.2


class Request(NamedTuple):
    """So many of these names, any of them."""

    names: tuple[str, ...]
    amount: int


@contextmanager
def hold(folder: Path, names: Sequence[str], amount: int) -> Iterator[list[str]]:
    """Wait for `amount` of `names`, of which there are as many; yield the ones that are now locked.

    Waiting is told in one line, and ended by any exception a signal raises.
    """
    request, told = Request(tuple(names), amount), False
    with ExitStack() as held:
        with _ticket(folder, request) as number:
            while True:
                with _lock(folder / "mutex"):
                    requests = [*_earlier(folder, number), request]
                    wanted = {name for each in requests for name in each.names}
                    free = {name for name in wanted if _is_free(_lock_file(folder, name))}
                    share = allot(requests, free)[-1]
                    if len(share) == amount:
                        command = shorten(shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]]), 100)
                        for path in [_lock_file(folder, name) for name in share]:
                            held.enter_context(_lock(path))
                            path.write_text(f"pid {os.getpid()} on {socket.gethostname()}, {command}", encoding="utf-8")
                        break
                    if not told:
                        log.info("%s", _describe_waiting(folder, requests, free))
                        told = True
                time.sleep(INTERVAL)
        yield share


def allot(requests: Sequence[Request], free: Collection[str]) -> list[list[str]]:
    """Share out the free names among requests in the order of their arrival: to each as many as it asks for, or fewer.

    One that gets fewer waits, and its share is kept for it.
    """
    left, shares = set(free), []
    for request in requests:
        share = [name for name in request.names if name in left][: request.amount]
        left.difference_update(share)
        shares.append(share)
    return shares


@contextmanager
def _ticket(folder: Path, request: Request) -> Iterator[int]:
    """Queue up; yield the number."""
    with ExitStack() as stack:
        with _lock(folder / "mutex"):
            number = 1 + max((int(path.stem) for path in folder.glob("*.ticket")), default=0)
            path = folder / f"{number}.ticket"
            stack.enter_context(_lock(path))
            # Before the lock goes: others take what is not locked for dead.
            stack.callback(path.unlink, missing_ok=True)
            path.write_text(json.dumps(request), encoding="utf-8")
        yield number


def _earlier(folder: Path, number: int) -> Iterator[Request]:
    """Yield the requests that came before and still wait; remove the tickets of the dead."""
    for path in sorted(folder.glob("*.ticket"), key=lambda path: int(path.stem)):
        if int(path.stem) >= number:
            break
        # Its owner may stop waiting at any time.
        with suppress(FileNotFoundError):
            if _is_free(path):
                path.unlink()
            else:
                names, amount = json.loads(path.read_text(encoding="utf-8"))
                yield Request(tuple(names), amount)


def _lock(path: Path) -> FileLock:
    """Lock of a file, made if need be; fails where the kernel has no locks, as a marker would outlive its holder."""
    return FileLock(path, mode=0o600, fallback_to_soft=False)


def _is_free(path: Path) -> bool:
    with suppress(Timeout), _lock(path).acquire(blocking=False):
        return True
    return False


def _lock_file(folder: Path, name: str) -> Path:
    return folder / f"{quote(name, safe='')}.lock"


def _describe_waiting(folder: Path, requests: Sequence[Request], free: Collection[str]) -> str:
    names, amount = requests[-1]
    holders = []
    for name in names:
        holder = "free" if name in free else _lock_file(folder, name).read_text(encoding="utf-8", errors="replace")
        holders.append(f"{name}: {holder}")
    return f"waiting for {amount} of {len(names)}, {len(requests) - 1} before in line; {'; '.join(holders)}"
