"""Atomic writing, so that a partially written file is never mistaken for a complete one: temporary name, fsync, rename.

Unfinished files are in a folder of their own beside the target, ``.<target>.<random>.tmp``. A killed writer leaves it,
and `make clean-cache` removes it.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Event

from cort.runtime.claims import check_claim
from cort.runtime.errors import InputError

#: pattern of the names of folders with unfinished files
UNFINISHED = ".*.tmp"
DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Bytes. Some libraries do not say why they cannot write; with less free space than this, the disk is full.
NO_ROOM = 64 << 10
OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
# File names have at most 255 bytes; dots, random part and suffix take 14.
NAME_BYTES = 240
SECONDS_BETWEEN_FLUSHES = 1.0


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path; rename it into place on success, delete it on any failure.

    Several processes, even on several hosts, may write one target: it is always the complete file of one of them.

    :raises InputError: if another stage has claimed the target since this one started (`cort/runtime/claims.py`).
    """
    target = Path(path)
    with _own_folder(target) as own:
        temporary = own / target.name
        yield temporary
        _fsync(temporary)
        check_claim(target)
        os.replace(temporary, target)
        _fsync(target.parent)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder; on success it replaces the folder `path`, on failure it is deleted.

    Several processes may write one target: it is always the complete folder of one of them. While an old folder is
    replaced, there is none for an instant.

    :raises InputError: if another stage has claimed the target since this one started (`cort/runtime/claims.py`).
    """
    target = Path(path)
    with _own_folder(target) as own:
        temporary = own / target.name
        temporary.mkdir()
        yield temporary
        for part in [*sorted(temporary.rglob("*")), temporary]:
            if part.is_dir() or part.is_file():
                _fsync(part)
        check_claim(target)
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


@contextmanager
def _own_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder beside `target` that belongs to this process while it lives; delete it in any case."""
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{os.fsencode(target.name)[:NAME_BYTES].decode(errors='ignore')}."
    try:
        folder = Path(tempfile.mkdtemp(".tmp", prefix, target.parent))
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
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        ours = os.path.abspath(str(error.filename or "")).startswith(os.path.abspath(target.parent / prefix))
        if error.errno and (ours or error.errno in DISK_IS_FULL):
            # Name the target: errors about open files name no file, and the temporary name means nothing to users.
            raise OSError(error.errno, os.strerror(error.errno), str(target)) from error
        raise


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
