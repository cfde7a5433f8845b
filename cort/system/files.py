"""Writing files so that nothing half-written is ever taken for whole: temporary name, fsync, rename.

What is not yet whole lies in a folder of its own beside the target, ``.<target>.<host>-<pid>-<random>.tmp``, where its
writer holds a file `lock`. The kernel lets go of a lock when the holder dies, however it dies and whoever gets its
process id afterwards. So a folder whose lock is free is a leftover of a dead writer, and it goes when the same target
is written again. Some network file systems tell only one host of a lock, so a writer judges only what bears its own
host's name. Where files cannot be locked at all, leftovers stay.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
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

from cort.system.checksums import SUFFIX, describe, describe_folder, record_of
from cort.system.errors import InputError

LOCK = "lock"
OWN = re.compile(r"\..+\.(\w+)-\d+-[0-9a-f]{8}\.tmp", re.ASCII)
DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Bytes; some libraries do not say why a file cannot be written.
NO_ROOM = 64 << 10
OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
# Longest name of a file is 255 bytes; host, process id, random part and suffix take 54 at most.
NAME_BYTES, HOST_CHARACTERS = 200, 24
SECONDS_BETWEEN_FLUSHES = 1.0
#: what this process put in place with `atomic_file`
written: set[Path] = set()
log = logging.getLogger(__name__)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path; rename it into place on success, delete it on any failure.

    Several processes may write one target at once, also on several hosts: it is always a whole file of one of them.
    """
    target = Path(path)
    with _own_folder(target) as own:
        temporary = own / target.name
        yield temporary
        _fsync(temporary)
        # Of what was there before: better none than a wrong one.
        record_of(target).unlink(missing_ok=True)
        os.replace(temporary, target)
        _fsync(target.parent)
        written.add(target)


@contextmanager
def atomic_folder(path: str | Path, recorded: bool = True) -> Iterator[Path]:
    """Yield a temporary folder; on success it replaces `path` as a whole, on failure it is deleted.

    It gets a record of its files' checksums, if that is wanted.

    Several processes may write one target at once: it is always a whole folder of one of them. Between the renames that
    replace an old folder there is none for an instant.
    """
    target = Path(path)
    with _own_folder(target) as own:
        temporary = own / target.name
        temporary.mkdir()
        yield temporary
        if recorded:
            record_of(temporary).write_text(describe_folder(temporary), encoding="utf-8")
        for part in [*sorted(temporary.rglob("*")), temporary]:
            if part.is_dir() or part.is_file():
                _fsync(part)
        _replace_folder(temporary, target, own)
        _fsync(target.parent)


@contextmanager
def temporary_folder(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder for what is needed while `path` is made, on the same disk; it is deleted in any case."""
    with _own_folder(Path(path)) as own:
        temporary = own / "files"
        temporary.mkdir()
        yield temporary


@contextmanager
def flushing(path: Path) -> Iterator[None]:
    """Put a new file on the disk while it is written: `atomic_file` then has little left to wait for."""
    done = Event()

    def flush() -> None:
        while not done.wait(SECONDS_BETWEEN_FLUSHES):
            with suppress(OSError), open(path, "rb") as handle:  # the writer will run into it too
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
    """Write the records of outputs: files, and folders, of which what this process wrote into them counts.

    A file that another process replaced meanwhile is read again: the last one to write a record has seen the last file.
    """
    tops = [Path(output) for output in outputs]
    inside = [path for path in written if path.suffix != SUFFIX and any(top in path.parents for top in tops)]
    for path in filter(Path.is_file, {*tops, *inside}):
        seen = None
        while seen != (seen := (path.stat().st_ino, path.stat().st_mtime_ns)):
            write_text(record_of(path), describe([path], path.parent))


def checksum(path: str | Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def try_lock(descriptor: int) -> bool | None:
    """Lock an open file exclusively without waiting: whether it worked, None where files cannot be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def remove_leftovers(folders: Iterable[Path]) -> list[Path]:
    """Remove those of the folders that dead writers of this host left; return them."""
    host = _host()
    named = ((folder, OWN.fullmatch(folder.name)) for folder in folders)
    return [folder for folder, match in named if match and match[1] == host and _remove_if_dead(folder)]


@contextmanager
def _own_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder beside `target` that is ours while we live; delete it in any case."""
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{os.fsencode(target.name)[:NAME_BYTES].decode(errors='ignore')}.{_host()}-"
    for leftover in remove_leftovers(path for path in target.parent.iterdir() if path.name.startswith(prefix)):
        log.info("removed %s, left by a process that was killed", leftover)
    try:
        folder, descriptor = _new_folder(target.parent, prefix)
        try:
            yield folder
        except (OSError, InputError):
            raise
        except Exception as error:
            # A library that is not Python's stumbled over a full disk: it says so, or no room is left.
            said = any(os.strerror(number) in str(error) for number in DISK_IS_FULL)
            if said or shutil.disk_usage(folder).free < NO_ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise
        finally:
            # First, because some network file systems cannot delete what is open.
            os.close(descriptor)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        ours = str(error.filename or "").startswith(str(target.parent / prefix))
        if error.errno and (ours or error.errno in DISK_IS_FULL):
            # Writing to an open file does not say which; nobody knows the temporary name.
            raise OSError(error.errno, os.strerror(error.errno), str(target)) from error
        raise


def _new_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    """Make a folder and lock it; the descriptor holds the lock, and is not passed on to other programs."""
    while True:
        folder = parent / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}.tmp"
        folder.mkdir()
        try:
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            # Swept by another writer, who found it without a lock.
            continue
        except BaseException:
            folder.rmdir()
            raise
        if try_lock(descriptor) is not False and (folder / LOCK).exists():
            return folder, descriptor
        os.close(descriptor)


def _remove_if_dead(folder: Path) -> bool:
    """Remove a temporary folder if its lock is free.

    Its writer may be between making and locking it. Then only one of us gets the lock: if it is us, the writer sees
    that its lock is taken or gone, and makes another folder.
    """
    # Gone meanwhile, or somebody else's.
    with suppress(OSError), open(folder / LOCK, "ab") as lock:
        if try_lock(lock.fileno()):
            shutil.rmtree(folder, ignore_errors=True)
            return True
    return False


def _replace_folder(new: Path, target: Path, own: Path) -> None:
    """Put `new` in the place of `target`, moving into `own` whatever others put there, until it works."""
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
        # Interrupted while there was none: the old one is better than that.
        if moved is not None:
            with suppress(OSError):
                os.rename(moved, target)
        raise


def _host() -> str:
    """Name of this host, in characters that every file system takes."""
    name = socket.gethostname()[:HOST_CHARACTERS]
    return "".join(character if character.isascii() and character.isalnum() else "_" for character in name)


def _fsync(path: Path) -> None:
    """Make a file's bytes last, or renames in a folder, where the file system can do so on demand."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if path.is_file() or error.errno not in {errno.EINVAL, errno.EBADF, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)
