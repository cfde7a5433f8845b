"""Lines of files within archives, read as a stream."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cort.formats.lines import LONGEST_LINE, Rows, decode_line, iter_records
from cort.system.errors import InputError, input_error

FETCH = "fetch it again"
# What the standard library raises for bytes that are no archive, besides its own errors.
DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, NotImplementedError, RuntimeError, OSError, ValueError, TypeError, OverflowError),
)


def iter_member_lines(handle: IO[bytes], source: str) -> Rows[str]:
    """Yield (row counted from 1, line without its end), as `iter_lines` does of a file."""
    return iter_records(source, enumerate(_bounded(handle, source), start=1), decode_line)


def _bounded(handle: IO[bytes], source: str) -> Iterator[bytes]:
    row = 0
    while line := handle.readline(LONGEST_LINE):
        row += 1
        if len(line) == LONGEST_LINE:
            raise input_error(source, f"a line of more than {LONGEST_LINE:,} bytes", "shorter lines", FETCH, row)
        yield line.removesuffix(b"\n").removesuffix(b"\r")


@contextmanager
def refusing_damage(path: str | Path) -> Iterator[None]:
    """Refuse an archive that cannot be read to its end."""
    try:
        yield
    except (FileNotFoundError, PermissionError, InputError):
        raise
    except DAMAGE as error:
        found = f"a damaged archive ({' '.join(str(error).split())[:200] or type(error).__name__})"
        raise input_error(path, found, "a whole one", FETCH) from error
