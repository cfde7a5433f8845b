"""Locks on named things, shared by the processes of one machine through a folder of files.

Requests are for so many of some names. They are served in the order of their arrival; one that needs several keeps what
becomes free while it waits, so that no stream of smaller ones starves it, and delays none that wants other names. Locks
are taken all at once, so that no two processes wait for each other.

All locks are the kernel's (flock) and end with their holder, whatever ends it:

    mutex            held during each look at the others
    <name>.lock      held while the name is; says who holds it
    <n>.ticket       held while request n waits; says what it asks for
"""

from __future__ import annotations

import fcntl
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
    with ExitStack() as stack:
        yield _acquire(folder, Request(tuple(names), amount), stack)


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


def _acquire(folder: Path, request: Request, stack: ExitStack) -> list[str]:
    """Leave the locks to `stack`."""
    told = ""
    with _ticket(folder, request) as number:
        while True:
            with _locked(folder / "mutex"):
                requests = [*_earlier(folder, number), request]
                free = {name for one in requests for name in one.names if _is_free(folder, name)}
                share = allot(requests, free)[-1]
                if len(share) == request.amount:
                    for name in share:
                        _write(stack.enter_context(_locked(_lock_file(folder, name))), _describe_process())
                    return share
                waiting = told or _describe_waiting(folder, requests, free)
            if not told:
                log.info("%s", waiting)
            told = waiting
            time.sleep(INTERVAL)


@contextmanager
def _ticket(folder: Path, request: Request) -> Iterator[int]:
    """Queue up; yield the number."""
    with ExitStack() as stack:
        with _locked(folder / "mutex"):
            number = 1 + max((_number(path) for path in folder.glob("*.ticket")), default=0)
            path = folder / f"{number}.ticket"
            file = stack.enter_context(_locked(path))
            # Before the lock goes: others take what is not locked for dead.
            stack.callback(path.unlink, missing_ok=True)
            _write(file, json.dumps(request))
        yield number


def _earlier(folder: Path, number: int) -> Iterator[Request]:
    """Yield the requests that came before and still wait; remove the tickets of the dead."""
    for path in sorted(folder.glob("*.ticket"), key=_number):
        if _number(path) >= number:
            break
        # Its owner may stop waiting at any time.
        with suppress(FileNotFoundError):
            if _is_unlocked(path):
                path.unlink()
            else:
                names, amount = json.loads(path.read_text(encoding="utf-8"))
                yield Request(tuple(names), amount)


def _number(path: Path) -> int:
    return int(path.stem)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Make the file if need be and hold its lock; yield its descriptor, which programs called do not inherit."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _is_unlocked(path: Path) -> bool:
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def _is_free(folder: Path, name: str) -> bool:
    try:
        return _is_unlocked(_lock_file(folder, name))
    except FileNotFoundError:
        return True


def _lock_file(folder: Path, name: str) -> Path:
    return folder / f"{quote(name, safe='')}.lock"


def _write(file: int, text: str) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, text.encode(), 0)


def _describe_process() -> str:
    command = shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]])
    return f"pid {os.getpid()} on {socket.gethostname()}, {shorten(command, 100)}"


def _describe_waiting(folder: Path, requests: Sequence[Request], free: Collection[str]) -> str:
    names, amount = requests[-1]
    holders = [
        f"{name}: {'free' if name in free else _lock_file(folder, name).read_text(encoding='utf-8', errors='replace')}"
        for name in names
    ]
    return f"waiting for {amount} of {len(names)}, {len(requests) - 1} before in line; {'; '.join(holders)}"
