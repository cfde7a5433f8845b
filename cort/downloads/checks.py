"""Whether a file is the one the catalogue means: size, checksums and lines, in one pass."""

from __future__ import annotations

import gzip
import hashlib
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cort.downloads.catalog import PublicFile
from cort.system.errors import shorten

log = logging.getLogger(__name__)

CHUNK = 1 << 20
# What a page begins with that somebody's server sends in the place of a file.
PAGES = (b"<!doctype html", b"<html")


class Tally:
    """What passes by in chunks: `bytes`, lines, and checksums if asked for."""

    def __init__(self, hashed: bool) -> None:
        self.bytes = self._ends = 0
        self._last = b"\n"
        # MD5 is what publishers give; it guards against accidents, not against enemies.
        names = ("md5", "sha256") if hashed else ()
        self._hashes = {name: hashlib.new(name, usedforsecurity=False) for name in names}

    def add(self, chunk: bytes) -> None:
        """Take a chunk into account."""
        self.bytes += len(chunk)
        self._ends += chunk.count(b"\n")
        self._last = chunk[-1:] or self._last
        for each in self._hashes.values():
            each.update(chunk)

    @property
    def lines(self) -> int:
        """Number of lines; the last one needs no end."""
        return self._ends + (self._last != b"\n")

    def digest(self, name: str) -> str:
        """Checksum in hexadecimal."""
        return self._hashes[name].hexdigest()


def tally_for(file: PublicFile) -> Tally:
    """Tally that finds out what the catalogue knows of a file."""
    return Tally(hashed=bool(file.md5 or file.sha256))


def difference(tally: Tally, file: PublicFile, lines: int | None = None) -> str | None:
    """Say how what passed by is not the file; None if nothing tells it apart.

    :param lines: of a compressed file, those of its text.
    """
    if file.bytes is not None and tally.bytes != file.bytes:
        return f"{tally.bytes} bytes"
    for name in ("md5", "sha256"):
        expected = getattr(file, name)
        if expected is not None and tally.digest(name) != expected:
            return f"the {name} {tally.digest(name)}"
    counted = tally.lines if lines is None else lines
    if file.lines is not None and counted != file.lines:
        return f"{counted} lines"
    return None


def problem_with(path: Path, file: PublicFile) -> str | None:
    """Say how a file on disk is not the one the catalogue means; None if it is."""
    size = path.stat().st_size
    if file.bytes is not None and size != file.bytes:
        return f"{size} bytes{_page(path)}"
    with open(path, "rb") as handle:
        tally = _count(handle, tally_for(file))
    # Whether it is the right file at all comes first, and whether it can be unpacked then.
    packed = file.lines is not None and file.name.endswith(".gz")
    found = difference(tally, file, file.lines if packed else None)
    if found is None and (file.md5 or file.sha256):
        log.info("%s: %d bytes, md5 %s, sha256 %s", path, tally.bytes, tally.digest("md5"), tally.digest("sha256"))
    if found is None and packed:
        try:
            with gzip.open(path, "rb") as handle:
                lines = _count(handle, Tally(hashed=False)).lines
        except (OSError, EOFError, zlib.error) as error:
            return f"damaged gzip data ({error})"
        found = difference(tally, file, lines)
    return found and f"{found}{_page(path)}"


def read_chunks(handle: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """Yield what is left of a file."""
    while chunk := handle.read(CHUNK):
        yield chunk


def _count(handle: IO[bytes] | gzip.GzipFile, tally: Tally) -> Tally:
    for chunk in read_chunks(handle):
        tally.add(chunk)
    return tally


def _page(path: Path) -> str:
    """Words for what is a web page."""
    with open(path, "rb") as handle:
        head = handle.read(200)
    if head.lstrip().lower().startswith(PAGES):
        return f", a web page that begins with {shorten(head.decode('utf-8', 'replace').strip(), 40)}"
    return ""
