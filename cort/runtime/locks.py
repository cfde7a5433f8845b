"""Locks of files, and of named things that the processes of one machine share through a folder of locks.

Locks are the kernel's (flock, through `filelock`): they end with their holder, however it ends, and are kept neither by
forked processes nor by programs that it starts.
"""

import errno
import logging
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)

#: errors of flock on file systems without locks
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})
# Mean seconds between attempts.
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


@contextmanager
def hold(folder: Path, names: Sequence[str], amount: int) -> Iterator[list[str]]:
    """Wait for the locks of any `amount` of the `names`, of which there must be as many; yield these names.

    Waiting is logged once, and ends with any exception from a signal handler.
    """
    logged = False
    while True:
        with ExitStack() as held:
            share: list[str] = []
            for name in names:
                path = folder / f"{quote(name, safe='')}.lock"
                with suppress(Timeout):
                    if len(share) < amount:
                        held.enter_context(FileLock(path, mode=0o600, timeout=0, fallback_to_soft=False))
                        path.write_text(f"pid {os.getpid()}", encoding="utf-8")
                        share.append(name)
            if len(share) == amount:
                yield share
                return
        # What was locked is free again, so that no two processes wait for each other.
        if not logged:
            log.info("waiting for %d of %d, of which %d are free", amount, len(names), len(share))
            logged = True
        time.sleep(INTERVAL * random.uniform(0.5, 1.5))  # noqa: S311
