"""Damaged files: what libraries say of bytes that they cannot read becomes one line."""

import errno
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

import cort.formats.arrow  # noqa: F401 - first of all that uses pyarrow
from cort.runtime.errors import InputError, input_error

# What libraries raise for damaged bytes; an ArrowException may also be any of the others.
DAMAGE = (
    *(pa.ArrowException, OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError),
    *(RuntimeError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile),
)
LONGEST = 200


@contextmanager
def refusing_damage(path: str | Path, kind: str, remedy: str, rows: Callable[[], int] | None = None) -> Iterator[None]:
    """Turn a library's errors about damaged bytes into ours, and those about a missing file into the system's.

    :param kind: what the file should be.
    :param rows: counts the rows before the damage.
    """
    try:
        yield
    except (InputError, PermissionError):
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    except DAMAGE as error:
        reason = " ".join(str(error).partition("\n")[0].split())[:LONGEST] or type(error).__name__
        found = f"unreadable bytes{f' after row {rows()}' if rows else ''} ({reason})"
        raise input_error(path, found, f"a complete {kind}", remedy) from error
