"""Locks of files, and leases on named things that the processes of one machine share through a folder of locks.

Locks are the kernel's (flock, through `filelock`): they end with their holder, however it ends, and are kept neither by
forked processes nor by programs that it starts.

A lease is on some of several names. Requests are served in order of arrival. While a request for several names waits,
names that become free are reserved for it, so that smaller requests cannot starve it; requests for other names are not
delayed. All locks of a request are taken at once, so that no two processes wait for each other. The folder has

    mutex            locked while a process looks at the other files
    <name>.lock      locked while the name is leased; says who holds it
    <n>.ticket       locked while request n waits; says what it requests
"""

import errno
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

#: errors of flock on file systems without locks
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})
# Seconds between attempts.
INTERVAL = 0.2


def acquire(path: Path, timeout: float = 0) -> FileLock | None:
    """Lock a file, creating it if necessary, until the lock is released or deleted; None where there are no locks.

    :raises Timeout: if another process still holds it after `timeout` seconds; -1 means no limit.
    """
    # Never fall back to marker files: they would outlive their holder.
    lock = FileLock(path, fallback_to_soft=False, thread_local=False)
    try:
        lock.acquire(timeout)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise
    return lock


class Request(NamedTuple):
    """A request for any `amount` of these names."""

    names: tuple[str, ...]
    amount: int


@contextmanager
def hold(folder: Path, names: Sequence[str], amount: int) -> Iterator[list[str]]:
    """Wait for a lease on `amount` of the `names`, of which there must be as many; yield the leased names.

    Waiting is logged once, and ends with any exception from a signal handler.
    """
    request, logged = Request(tuple(names), amount), False
    with ExitStack() as held:
        with _ticket(folder, request) as number:
            while True:
                with _lock(folder / "mutex"):
                    requests = [*_earlier(folder, number), request]
                    requested = {name for each in requests for name in each.names}
                    free = {name for name in requested if _is_free(_lock_file(folder, name))}
                    share = allot(requests, free)[-1]
                    if len(share) == amount:
                        command = shorten(shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]]), 100)
                        for path in [_lock_file(folder, name) for name in share]:
                            held.enter_context(_lock(path))
                            path.write_text(f"pid {os.getpid()} on {socket.gethostname()}, {command}", encoding="utf-8")
                        break
                    if not logged:
                        log.info("%s", _describe_waiting(folder, requests, free))
                        logged = True
                time.sleep(INTERVAL)
        yield share


def allot(requests: Sequence[Request], free: Collection[str]) -> list[list[str]]:
    """Distribute free names in the order of requests, to each as many as it needs or as are left.

    A request that gets too few waits, and its share is reserved for it.
    """
    left, shares = set(free), []
    for request in requests:
        share = [name for name in request.names if name in left][: request.amount]
        left.difference_update(share)
        shares.append(share)
    return shares


@contextmanager
def _ticket(folder: Path, request: Request) -> Iterator[int]:
    """Take a number in the queue, and yield it."""
    with ExitStack() as stack:
        with _lock(folder / "mutex"):
            number = 1 + max((int(path.stem) for path in folder.glob("*.ticket")), default=0)
            path = folder / f"{number}.ticket"
            stack.enter_context(_lock(path))
            # Before it is unlocked, because an unlocked ticket is taken for that of a dead process.
            stack.callback(path.unlink, missing_ok=True)
            path.write_text(json.dumps(request), encoding="utf-8")
        yield number


def _earlier(folder: Path, number: int) -> Iterator[Request]:
    """Yield earlier requests that still wait; remove tickets of dead processes."""
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
    """Create a lock on a file that other users cannot read; entering it fails where there are no locks."""
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
