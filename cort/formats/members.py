"""Files in archives: which ones have data, and streams of their lines."""

import io
import logging
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from cort.formats.lines import SMALL_BLOCK, Rows, decode_lines, iter_blocks_of
from cort.system.errors import InputError, input_error, shorten

log = logging.getLogger(__name__)

FETCH = "fetch it again"
# What the standard library raises for damaged archives.
DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, NotImplementedError, RuntimeError, OSError, ValueError, TypeError, OverflowError),
)
# Files with attributes that macOS adds to archives.
LITTER = re.compile(r"(.*/)?(__MACOSX/.*|\._[^/]*|\.DS_Store)", re.DOTALL)


def iter_member_lines(handle: IO[bytes], source: str) -> Rows[str]:
    """Yield (row counted from 1, line without its end), like `iter_lines`."""
    for block in iter_blocks_of(cast("io.BufferedIOBase", handle), source, SMALL_BLOCK):
        yield from decode_lines(source, block)


@contextmanager
def open_zip(path: str | Path) -> Iterator[tuple[zipfile.ZipFile, list[str]]]:
    """Yield a ``.zip`` and the names of its files, without those that macOS adds.

    :raises InputError: for a damaged archive, a duplicate name, or several archives in one file.
    """
    with refusing_damage(path), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if min((entry.header_offset for entry in entries), default=0):
            raise input_error(path, "bytes before its first file", "one archive", FETCH)
        names = [entry.filename for entry in entries if not entry.is_dir() and not LITTER.fullmatch(entry.filename)]
        for name, times in Counter(names).items():
            if times > 1:
                raise input_error(path, f"the file {shorten(name)} {times} times", "each name once", FETCH)
        yield archive, names


def choose(path: str | Path, names: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    """Keep the names that match, and log the others."""
    if others := [name for name in names if not pattern.fullmatch(name)]:
        log.warning("%s: files ignored because of their names: %s", path, shorten(", ".join(others), 200))
    return [name for name in names if pattern.fullmatch(name)]


def iter_tar(path: str | Path, packed: IO[bytes]) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield an unpacked archive with each member, without those that macOS adds; then read to the end of the file.

    :raises InputError: for data after the archive; `refusing_damage` handles damage.
    """
    with tarfile.open(fileobj=packed, mode="r|") as tar:
        for entry in tar:
            if not LITTER.fullmatch(entry.name):
                yield tar, entry
    # The checksum follows the padding.
    while chunk := packed.read(SMALL_BLOCK):
        if chunk.strip(b"\0"):
            raise input_error(path, "data after the end of the archive", "one archive", FETCH)


@contextmanager
def refusing_damage(path: str | Path) -> Iterator[None]:
    """Refuse an archive that cannot be read to its end."""
    try:
        yield
    except (FileNotFoundError, PermissionError, InputError):
        raise
    except DAMAGE as error:
        found = f"a damaged archive ({' '.join(str(error).split())[:200] or type(error).__name__})"
        raise input_error(path, found, "a complete one", FETCH) from error
