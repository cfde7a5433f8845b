"""Atomic writing, so that a partially written file is never mistaken for a complete one: temporary name, fsync, rename.

Unfinished files are in a folder of their own beside the target, ``.<target>.<host>-<pid>-<random>.tmp``, where their
writer holds a lock on the file `lock`. A lock ends with its holder, so a folder whose lock is free was left by a dead
writer, and is removed when the same target is written again. On some network file systems, other hosts do not see a
lock, so writers only remove folders with the name of their own host. Where files cannot be locked, leftovers remain.
"""

import errno
import logging
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Event

from filelock import FileLock, Timeout

from cort.runtime.checksums import SUFFIX, describe, record_of
from cort.runtime.errors import InputError
from cort.runtime.locks import acquire

LOCK = "lock"
LEFTOVER = re.compile(r"\..+\.(\w+)-\d+-[0-9a-f]{8}\.tmp", re.ASCII)
DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Bytes. Some libraries do not say why they cannot write; with less free space than this, the disk is full.
NO_ROOM = 64 << 10
OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
# File names have at most 255 bytes; host, process id, random part and suffix take up to 54.
NAME_BYTES, HOST_CHARACTERS = 200, 24
SECONDS_BETWEEN_FLUSHES = 1.0
#: files that this process put in place with `atomic_file`
written: set[Path] = set()
log = logging.getLogger(__name__)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path; rename it into place on success, delete it on any failure.

    Several processes, even on several hosts, may write one target: it is always the complete file of one of them.
    """
    target = Path(path)
    with _own_folder(target) as own:
        temporary = own / target.name
        yield temporary
        _fsync(temporary)
        # This is the record of the old file; no record is better than a wrong one.
        record_of(target).unlink(missing_ok=True)
        os.replace(temporary, target)
        _fsync(target.parent)
        written.add(target)


@contextmanager
def atomic_folder(path: str | Path, recorded: bool = True) -> Iterator[Path]:
    """Yield a temporary folder; on success it replaces the folder `path`, on failure it is deleted.

    If `recorded`, the checksums of its files are recorded in it. Several processes may write one target: it is always
    the complete folder of one of them. While an old folder is replaced, there is none for an instant.
    """
    target = Path(path)
    with _own_folder(target) as own:
        temporary = own / target.name
        temporary.mkdir()
        yield temporary
        if recorded:
            files = [part for part in sorted(temporary.rglob("*")) if part.is_file()]
            record_of(temporary).write_text(describe(files, temporary), encoding="utf-8")
        for part in [*sorted(temporary.rglob("*")), temporary]:
            if part.is_dir() or part.is_file():
                _fsync(part)
        _replace_folder(temporary, target, own)
        _fsync(target.parent)


@contextmanager
def temporary_folder(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder on the disk of `path`, for temporary files while `path` is made; delete it in any case."""
    with _own_folder(Path(path)) as own:
        temporary = own / "files"
        temporary.mkdir()
        yield temporary


@contextmanager
def flushing(path: Path) -> Iterator[None]:
    """Flush a file to disk while it is written, so that `atomic_file` need not wait for all of it at the end."""
    done = Event()

    def flush() -> None:
        while not done.wait(SECONDS_BETWEEN_FLUSHES):
            with suppress(OSError), open(path, "rb") as handle:  # the writer gets the same error
                os.fdatasync(handle.fileno())

    with ThreadPoolExecutor(1) as pool:
        pool.submit(flush)
        try:
            yield
        finally:
            done.set()


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def record_checksums(outputs: Iterable[str]) -> None:
    """Write the records of output files, and of the files that this process wrote into output folders.

    A file that another process replaces meanwhile is read again, so the last record written is of the last file.
    """
    tops = [Path(output) for output in outputs]
    inside = [path for path in written if path.suffix != SUFFIX and any(top in path.parents for top in tops)]
    for path in filter(Path.is_file, {*tops, *inside}):
        seen = None
        while seen != (seen := (path.stat().st_ino, path.stat().st_mtime_ns)):
            write_text(record_of(path), describe([path], path.parent))


def remove_leftovers(folders: Iterable[Path]) -> list[Path]:
    """Remove and return those folders that were left by dead writers of this host."""
    named = ((folder, LEFTOVER.fullmatch(folder.name)) for folder in folders)
    return [folder for folder, match in named if match and match[1] == _host() and _remove_if_dead(folder)]


@contextmanager
def _own_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder beside `target` that belongs to this process while it lives; delete it in any case."""
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{os.fsencode(target.name)[:NAME_BYTES].decode(errors='ignore')}.{_host()}-"
    for leftover in remove_leftovers(path for path in target.parent.iterdir() if path.name.startswith(prefix)):
        log.info("removed %s, left by a process that was killed", leftover)
    try:
        folder, lock = _new_folder(target.parent, prefix)
        try:
            yield folder
        except (OSError, InputError):
            raise
        except Exception as error:
            # Libraries raise their own exceptions for a full disk; only some quote the system's message.
            full = any(os.strerror(number) in str(error) for number in DISK_IS_FULL)
            if full or shutil.disk_usage(folder).free < NO_ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise
        finally:
            # Before deletion, because some network file systems cannot delete open files.
            if lock is not None:
                lock.release()
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        ours = str(error.filename or "").startswith(str(target.parent / prefix))
        if error.errno and (ours or error.errno in DISK_IS_FULL):
            # Name the target: errors about open files name no file, and the temporary name means nothing to users.
            raise OSError(error.errno, os.strerror(error.errno), str(target)) from error
        raise


def _new_folder(parent: Path, prefix: str) -> tuple[Path, FileLock | None]:
    """Make a folder and lock it."""
    while True:
        folder = parent / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}.tmp"
        folder.mkdir()
        try:
            return folder, acquire(folder / LOCK)
        except (FileNotFoundError, FileExistsError, Timeout):
            # Another writer was faster, and removes the folder as a leftover.
            continue
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _remove_if_dead(folder: Path) -> bool:
    """Remove a temporary folder if its lock is free.

    Its writer may be between creating and locking it. Then only one of the two gets the lock: if it is this process,
    the writer sees that its lock is taken or gone, and creates another folder.
    """
    # The lock may be held or gone, or belong to another user.
    with suppress(OSError):
        lock = acquire(folder / LOCK)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
            return True
    return False


def _replace_folder(new: Path, target: Path, own: Path) -> None:
    """Rename `new` to `target`, repeatedly moving what is there into `own`, until it works."""
    moved: Path | None = None
    try:
        for attempt in count():
            try:
                os.rename(new, target)
                return
            except OSError as error:
                if error.errno not in OCCUPIED:
                    raise
            moved = own / f"old-{attempt}"
            with suppress(FileNotFoundError):
                os.rename(target, moved)
    except BaseException:
        # Interrupted between the renames: the old folder is better than none.
        if moved is not None:
            with suppress(OSError):
                os.rename(moved, target)
        raise


def _host() -> str:
    """Return the name of this host, in characters that every file system accepts."""
    return re.sub("[^A-Za-z0-9]", "_", socket.gethostname()[:HOST_CHARACTERS])


def _fsync(path: Path) -> None:
    """Flush a file, or the renames in a folder, to disk, where the file system can do so on demand."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if path.is_file() or error.errno not in {errno.EINVAL, errno.EBADF, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)
