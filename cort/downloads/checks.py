"""Whether a file is the one the catalogue means: size, checksums and lines, in one pass."""

from __future__ import annotations

import gzip
import hashlib
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cort.downloads.catalog import HASHES, PublicFile
from cort.system.errors import shorten

log = logging.getLogger(__name__)

CHUNK = 1 << 20
# What a page begins with that somebody's server sends in the place of a file.
PAGES = (b"<!doctype html", b"<html")


class Tally:
    """What passes by in chunks: bytes, lines (the last one needs no end), and checksums if asked for."""

    def __init__(self, hashed: bool) -> None:
        self.bytes = self.lines = 0
        self._last = b"\n"
        # MD5 is what publishers give; it guards against accidents, not against enemies.
        self._hashes = {name: hashlib.new(name, usedforsecurity=False) for name in HASHES if hashed}

    def add(self, chunk: bytes) -> None:
        """Take a chunk into account."""
        self.bytes += len(chunk)
        # A line begins after every end but the last, and with a chunk that continues none.
        self.lines += chunk.count(b"\n") + (self._last == b"\n") - chunk.endswith(b"\n")
        self._last = chunk[-1:]
        for each in self._hashes.values():
            each.update(chunk)

    @property
    def digests(self) -> dict[str, str]:
        """Checksums in hexadecimal, by the names of their kinds."""
        return {name: each.hexdigest() for name, each in self._hashes.items()}


def difference(tally: Tally, file: PublicFile, lines: int | None = None) -> str | None:
    """Say how what passed by is not the file; None if nothing tells it apart. `lines`: those of a compressed text."""
    if file.bytes not in (None, tally.bytes):
        return f"{tally.bytes} bytes"
    for name, digest in tally.digests.items():
        if getattr(file, name) not in (None, digest):
            return f"the {name} {digest}"
    counted = tally.lines if lines is None else lines
    return None if file.lines in (None, counted) else f"{counted} lines"


def tally_for(file: PublicFile) -> Tally:
    """Tally that finds out what the catalogue knows of a file."""
    return Tally(hashed=bool(file.md5 or file.sha256))


def problem_with(path: Path, file: PublicFile) -> str | None:
    """Say how a file on disk is not the one the catalogue means; None if it is."""
    if file.bytes is not None and path.stat().st_size != file.bytes:
        return f"{path.stat().st_size} bytes{_page(path)}"
    with open(path, "rb") as handle:
        tally = _tally(handle, tally_for(file))
    # Whether it is the right file at all comes first, and whether it can be unpacked then.
    packed = file.lines is not None and file.name.endswith(".gz")
    found = difference(tally, file, file.lines if packed else None)
    if found is None and tally.digests:
        log.info("%s: %d bytes, %s", path, tally.bytes, ", ".join(map(" ".join, tally.digests.items())))
    if found is None and packed:
        try:
            with gzip.open(path, "rb") as handle:
                found = difference(tally, file, _tally(handle, Tally(hashed=False)).lines)
        except (OSError, EOFError, zlib.error) as error:
            return f"damaged gzip data ({error})"
    return found and f"{found}{_page(path)}"


def read_chunks(handle: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """Yield what is left of a file."""
    while chunk := handle.read(CHUNK):
        yield chunk


def _tally(handle: IO[bytes] | gzip.GzipFile, tally: Tally) -> Tally:
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
