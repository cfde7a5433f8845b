"""The public files an experiment can name, with all that is known of each: catalog.yaml, read and checked.

Whether a file is the one the catalogue means is told by size, checksums and lines, in one pass.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import logging
import lzma
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from cort.downloads import rehearsal
from cort.formats.yaml_files import read_yaml
from cort.system.errors import InputError, input_error, shorten

log = logging.getLogger(__name__)

CHUNK = 1 << 20
# What a page begins with that somebody's server sends in the place of a file.
PAGES = (b"<!doctype html", b"<html")
# A file that a source names belongs to the program of its stages. Not this one: where files come from decides nothing.
CATALOG = Path(__file__).with_suffix(".yaml")
NAME = re.compile(r"[a-z0-9-]+/[A-Za-z0-9][A-Za-z0-9._-]*")
URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]+)?/[!-~]*")
HASHES = {"md5": 32, "sha256": 64}


@dataclass(frozen=True)
class PublicFile:
    """One file: `urls` in the order of trial, or the `archive` it is a `member` of; what is not known is None.

    `bytes` is exact; `size` in bytes is not, it serves plans and bounds, as `records`, the texts in it, serves plans.
    `no_checksum` is the reason why none is known: the file is unpacked to be checked.
    """

    name: str
    urls: tuple[str, ...] = ()
    archive: str | None = None
    member: str | None = None
    bytes: int | None = None
    size: int | None = None
    md5: str | None = None
    sha256: str | None = None
    lines: int | None = None
    records: int | None = None
    no_checksum: str | None = None

    @property
    def about(self) -> int:
        """Size in bytes, as far as it is known; else 0."""
        return self.bytes or self.size or 0

    @property
    def can_be_hashed(self) -> bool:
        """Whether checksums say something: to be compared, or noted where there are none to compare with."""
        return bool(self.md5 or self.sha256 or self.no_checksum)

    @property
    def facts(self) -> str:
        """What a right copy has, in words."""
        counts = [f"{value} {name}" for name, value in (("bytes", self.bytes), ("lines", self.lines)) if value]
        sums = [f"{name} {value}" for name, value in (("md5", self.md5), ("sha256", self.sha256)) if value]
        return ", ".join(counts + sums[:1]) or "a whole file"

    def copies_in(self, folder: Path | None) -> list[Path]:
        """Files of a folder that may be this one: under the catalogue's name, its own, or that of its URLs.

        None if a copy of unknown origin cannot be told from another file.
        """
        if folder is None or not (self.can_be_hashed or self.lines):
            return []
        paths = [self.name, *([self.member] if self.member else [urlsplit(url).path for url in self.urls])]
        names = dict.fromkeys(
            [self.name, *([self.member] if self.member else []), *(Path(path).name for path in paths)]
        )
        return [folder / name for name in names if (folder / name).is_file()]


@dataclass(frozen=True)
class Catalog:
    """All files by name, and the headers that hosts want."""

    files: Mapping[str, PublicFile]
    headers: Mapping[str, Mapping[str, str]]

    def find(self, name: str) -> PublicFile:
        """Look up a file; an unknown name is refused with the nearest one."""
        if name not in self.files:
            near = difflib.get_close_matches(name, self.files, 1)
            fix = f"did you mean {near[0]}?" if near else "the names are in cort/downloads/catalog.yaml"
            raise input_error(name, "a name of no file", "a file of the catalogue", fix)
        return self.files[name]

    def source_of(self, name: str) -> PublicFile:
        """Look up what must be fetched for a file: itself, or the archive it is in."""
        file = self.find(name)
        return self.files[file.archive] if file.archive else file

    def headers_for(self, url: str) -> dict[str, str]:
        """Headers the host of a URL wants."""
        return dict(self.headers.get(urlsplit(url).hostname or "", {}))

    @property
    def archives(self) -> set[str]:
        """Names of the files that others are members of."""
        return {file.archive for file in self.files.values() if file.archive}


class Tally:
    """What passes by in chunks: bytes, lines (the last one needs no end), and checksums if the catalogue knows any."""

    def __init__(self, file: PublicFile) -> None:
        self.bytes = self.lines = 0
        self._last = b"\n"
        # MD5 is what publishers give; it guards against accidents, not against enemies.
        self._hashes = {name: hashlib.new(name, usedforsecurity=False) for name in HASHES if file.can_be_hashed}

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


def difference(tally: Tally, file: PublicFile) -> str | None:
    """Say how what passed by is not the file; None if nothing tells it apart."""
    if file.bytes not in (None, tally.bytes):
        return f"{tally.bytes} bytes"
    for name, digest in tally.digests.items():
        if getattr(file, name) not in (None, digest):
            return f"the {name} {digest}"
    return None if file.lines in (None, tally.lines) else f"{tally.lines} lines"


def problem_with(path: Path, file: PublicFile) -> str | None:
    """Say how a file on disk is not the one the catalogue means; None if it is."""
    if file.bytes is not None and path.stat().st_size != file.bytes:
        return f"{path.stat().st_size} bytes{_page(path)}"
    with open(path, "rb") as handle:
        tally = _tally(handle, Tally(file))
    # Whether it is the right file at all comes first, and then whether it can be unpacked and has those lines.
    packed = file.lines is not None and file.name.endswith(".gz")
    found = difference(tally, replace(file, lines=None) if packed else file)
    if found is None and tally.digests:
        log.info("%s: %d bytes, %s", path, tally.bytes, ", ".join(map(" ".join, tally.digests.items())))
    if found is None and packed:
        try:
            with gzip.open(path, "rb") as handle:
                tally.lines = _tally(handle, Tally(PublicFile(file.name))).lines
            found = difference(tally, file)
        except (OSError, EOFError, zlib.error) as error:
            return f"damaged gzip data ({error})"
    if found is None and file.no_checksum:
        found = _damage(path)
    return found and f"{found}{_page(path)}"


def _damage(path: Path) -> str | None:
    """Say how an .xz, which holds checksums of its content, is damaged."""
    try:
        with lzma.open(path) as handle:
            for _ in read_chunks(handle):
                pass
    except (OSError, EOFError, lzma.LZMAError) as error:
        return f"damaged xz data ({error})"
    return None


def read_chunks(handle: IO[bytes] | gzip.GzipFile | lzma.LZMAFile) -> Iterator[bytes]:
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


def load_catalog(path: str | Path | None = None) -> Catalog:
    """Read a catalogue, by default the project's or that of the rehearsal; all its mistakes are one `InputError`."""
    if path is None:
        path = rehearsal.FILE.absolute() if rehearsal.is_on() else CATALOG
    return _load(path)


@cache
def _load(path: str | Path) -> Catalog:
    try:
        found = read_yaml(path, "a catalogue")
        entries, headers = found["files"], found.get("headers", {})
        files = {name: _read(name, entry) for name, entry in entries.items()}
        if not all(isinstance(value, str) and value.isprintable() for of in headers.values() for value in of.values()):
            raise TypeError("headers that are no text")
    except (TypeError, KeyError, AttributeError) as error:
        fix = "fix it as cort/downloads/catalog.yaml is"
        raise input_error(path, f"no catalogue ({error!r})", "headers and files as YAML", fix) from error
    mistakes = [line for file in files.values() for line in _mistakes(file, files)]
    if Path(path).name == rehearsal.FILE.name:
        log.warning("%s: %s", path, rehearsal.NOTICE)
        mistakes += [line for file in files.values() for line in _far_away(file)]
    if mistakes:
        raise InputError(f"{path}: " + "; ".join(mistakes))
    return Catalog(files, headers)


def _read(name: str, entry: Mapping[str, Any]) -> PublicFile:
    if unknown := entry.keys() - {field.name for field in fields(PublicFile)[1:]}:
        raise KeyError(f"{name}: {', '.join(sorted(unknown))}")
    urls = entry.get("urls", [])
    if not isinstance(urls, list) or not all(isinstance(url, str) and URL.fullmatch(url) for url in urls):
        raise TypeError(f"{name}: urls that are no list of http:// and https://")
    return PublicFile(name, **{**entry, "urls": tuple(urls)})


def _far_away(file: PublicFile) -> Iterator[str]:
    """Yield a line for each address that no rehearsal has: its files would pass for those of the world."""
    for url in file.urls:
        if not rehearsal.LOOPBACK.fullmatch(url):
            yield f"{file.name}: found {shorten(url)}, expected http://127.0.0.1:PORT/ in a rehearsal; remove the file"


def _mistakes(file: PublicFile, files: Mapping[str, PublicFile]) -> Iterator[str]:
    if not NAME.fullmatch(file.name):
        yield f"{file.name}: found this name, expected SOURCE/FILE in letters, digits and ._-"
    if bool(file.urls) == bool(file.archive) or bool(file.archive) != bool(file.member):
        yield f"{file.name}: found {'both' if file.urls else 'neither'}, expected urls, or archive and member"
    if file.archive and not files.get(file.archive, file).urls:
        yield f"{file.name}: found the archive {file.archive}, expected one with urls"
    if file.urls and not file.about:
        yield f"{file.name}: found no size, expected bytes or size of what is fetched"
    yield from _mistakes_of_checksums(file)
    for kind, value in (("bytes", file.bytes), ("size", file.size), ("lines", file.lines), ("records", file.records)):
        if value is not None and (not isinstance(value, int) or value < 1):
            yield f"{file.name}: found {kind} {value!r}, expected a whole number from 1"


def _mistakes_of_checksums(file: PublicFile) -> Iterator[str]:
    if file.urls and not file.can_be_hashed:
        yield f"{file.name}: found no checksum, expected md5 or sha256 of what is fetched"
    if file.no_checksum and (file.md5 or file.sha256 or not file.name.endswith(".xz")):
        yield f"{file.name}: found no_checksum, expected it of .xz alone, which checks itself, and without a checksum"
    for kind, length in HASHES.items():
        value = getattr(file, kind)
        if value is not None and not re.fullmatch(f"[0-9a-f]{{{length}}}", str(value)):
            yield f"{file.name}: found the {kind} {value!r}, expected {length} hexadecimal digits, in quotes"
