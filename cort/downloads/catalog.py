"""Public files that experiments can name, and what is known about each: catalog.yaml, read and checked.

Size, checksums and number of lines show in one pass whether a file is the one in the catalogue.
"""

import gzip
import hashlib
import logging
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from cort.downloads import rehearsal
from cort.formats.yaml_files import read_yaml
from cort.system.errors import InputError, input_error, shorten, suggest

log = logging.getLogger(__name__)

CHUNK = 1 << 20
# Beginnings of web pages that servers send instead of files.
PAGES = (b"<!doctype html", b"<html")
# Not a literal name: files that a source names belong to its program, but mirrors do not affect results.
CATALOG = Path(__file__).with_suffix(".yaml")
NAME = re.compile(r"[a-z0-9-]+/[A-Za-z0-9][A-Za-z0-9._-]*")
URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]+)?/[!-~]*")
HASHES = {"md5": 32, "sha256": 64}


@dataclass(frozen=True)
class PublicFile:
    """A file with its `urls`, in the order in which they are tried, or a `member` of an `archive`; None means unknown.

    `bytes` is exact; `size` (in bytes) and `records` (texts in the file) are estimates for plans and bounds.
    `no_checksum` says why no checksum is known; such a file is checked by unpacking it.
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
        """Exact or estimated size in bytes; 0 if unknown."""
        return self.bytes or self.size or 0

    @property
    def can_be_hashed(self) -> bool:
        """Whether to compute checksums: to compare them, or to log them if none are known."""
        return bool(self.md5 or self.sha256 or self.no_checksum)

    @property
    def facts(self) -> str:
        """Description of the right file."""
        counts = [f"{value} {name}" for name, value in (("bytes", self.bytes), ("lines", self.lines)) if value]
        sums = [f"{name} {value}" for name, value in (("md5", self.md5), ("sha256", self.sha256)) if value]
        return ", ".join(counts + sums[:1]) or "a complete file"

    def copies_in(self, folder: Path | None) -> list[Path]:
        """List files in a folder that may be this one, with the name in the catalogue, of the member, or in a URL.

        There are none if the catalogue cannot distinguish this file from others.
        """
        if folder is None or not (self.can_be_hashed or self.lines):
            return []
        names = [self.name, *([self.member] if self.member else [])]
        names += [Path(path).name for path in (*names, *(urlsplit(url).path for url in self.urls))]
        return [folder / name for name in dict.fromkeys(names) if (folder / name).is_file()]


@dataclass(frozen=True)
class Catalog:
    """All files by name, and request headers by host."""

    files: Mapping[str, PublicFile]
    headers: Mapping[str, Mapping[str, str]]

    def find(self, name: str) -> PublicFile:
        """Look up a file; the error for an unknown name suggests a similar one."""
        if name not in self.files:
            fix = suggest(name, self.files, "the names are in cort/downloads/catalog.yaml")
            raise input_error(name, "an unknown name", "a file of the catalogue", fix)
        return self.files[name]

    def source_of(self, name: str) -> PublicFile:
        """Look up what must be fetched for a file: the file itself, or its archive."""
        file = self.find(name)
        return self.files[file.archive] if file.archive else file

    def headers_for(self, url: str) -> dict[str, str]:
        """Headers that the host of a URL requires."""
        return dict(self.headers.get(urlsplit(url).hostname or "", {}))

    @property
    def archives(self) -> set[str]:
        """Names of files that have members in the catalogue."""
        return {file.archive for file in self.files.values() if file.archive}


class Tally:
    """Counts bytes and lines of chunks (the last line may be unterminated), and hashes them if `can_be_hashed`."""

    def __init__(self, file: PublicFile, chunks: Iterable[bytes] = ()) -> None:
        self.bytes = self.lines = 0
        self._last = b"\n"
        # Publishers give MD5, which protects from accidents but not from attacks.
        self._hashes = {name: hashlib.new(name, usedforsecurity=False) for name in HASHES if file.can_be_hashed}
        for chunk in chunks:
            self.add(chunk)

    def add(self, chunk: bytes) -> None:
        """Count and hash a chunk."""
        self.bytes += len(chunk)
        # A line begins after each line end, unless the chunk ends there, and at a chunk that does not continue a line.
        self.lines += chunk.count(b"\n") + (self._last == b"\n") - chunk.endswith(b"\n")
        self._last = chunk[-1:]
        for digest in self._hashes.values():
            digest.update(chunk)

    @property
    def digests(self) -> dict[str, str]:
        """Checksums in hexadecimal, by algorithm."""
        return {name: digest.hexdigest() for name, digest in self._hashes.items()}


def difference(tally: Tally, file: PublicFile) -> str | None:
    """Describe how the counted content differs from the file; None if it does not."""
    if file.bytes not in (None, tally.bytes):
        return f"{tally.bytes} bytes"
    for name, digest in tally.digests.items():
        if getattr(file, name) not in (None, digest):
            return f"the {name} {digest}"
    return None if file.lines in (None, tally.lines) else f"{tally.lines} lines"


def problem_with(path: Path, file: PublicFile) -> str | None:
    """Describe how a file on disk differs from the one in the catalogue; None if it does not."""
    if file.bytes is not None and path.stat().st_size != file.bytes:
        return f"{path.stat().st_size} bytes{_page(path)}"
    with open(path, "rb") as handle:
        tally = Tally(file, read_chunks(handle))
    # Check that it is the right file before unpacking it to check its content.
    packed = bool(file.no_checksum) or (file.lines is not None and file.name.endswith(".gz"))
    problem = difference(tally, replace(file, lines=None) if packed else file)
    if problem is None and tally.digests:
        log.info("%s: %d bytes, %s", path, tally.bytes, ", ".join(map(" ".join, tally.digests.items())))
    if problem is None and packed:
        problem = _problem_inside(path, file)
    return problem and f"{problem}{_page(path)}"


def _problem_inside(path: Path, file: PublicFile) -> str | None:
    """Unpack a .gz or .xz, which have checksums of their content, and compare the number of lines."""
    kind, opener = ("gzip", gzip.open) if file.name.endswith(".gz") else ("xz", lzma.open)
    try:
        with opener(path, "rb") as handle:
            lines = Tally(PublicFile(file.name), read_chunks(handle)).lines
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        return f"damaged {kind} data ({error})"
    return None if file.lines in (None, lines) else f"{lines} lines"


def read_chunks(handle: IO[bytes] | gzip.GzipFile | lzma.LZMAFile) -> Iterator[bytes]:
    """Yield the rest of a file."""
    while chunk := handle.read(CHUNK):
        yield chunk


def _page(path: Path) -> str:
    """Describe a file that is a web page; empty for other files."""
    with open(path, "rb") as handle:
        head = handle.read(200)
    if head.lstrip().lower().startswith(PAGES):
        return f", a web page that begins with {shorten(head.decode('utf-8', 'replace').strip(), 40)}"
    return ""


def load_catalog(path: str | Path | None = None) -> Catalog:
    """Read a catalogue, by default that of the project or rehearsal; one `InputError` lists all mistakes."""
    if path is None:
        path = rehearsal.FILE.absolute() if rehearsal.is_on() else CATALOG
    return _load(path)


@cache
def _load(path: str | Path) -> Catalog:
    try:
        content = read_yaml(path, "a catalogue")
        entries, headers = content["files"], content.get("headers", {})
        files = {name: _read(name, entry) for name, entry in entries.items()}
        values = [value for host in headers.values() for value in host.values()]
        if not all(isinstance(value, str) and value.isprintable() for value in values):
            raise TypeError("headers that are not text")
    except (TypeError, KeyError, AttributeError) as error:
        fix = "follow cort/downloads/catalog.yaml"
        raise input_error(path, f"no valid catalogue ({error!r})", "headers and files as YAML", fix) from error
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
        raise TypeError(f"{name}: urls that are not a list of http:// and https:// addresses")
    return PublicFile(name, **{**entry, "urls": tuple(urls)})


def _far_away(file: PublicFile) -> Iterator[str]:
    """Yield a line for each address outside this machine, whose files would be mistaken for the real ones."""
    for url in file.urls:
        if not rehearsal.LOOPBACK.fullmatch(url):
            yield f"{file.name}: found {shorten(url)}, expected http://127.0.0.1:PORT/ in a rehearsal; remove the file"


def _mistakes(file: PublicFile, files: Mapping[str, PublicFile]) -> Iterator[str]:
    if not NAME.fullmatch(file.name):
        yield f"{file.name}: found this name, expected SOURCE/FILE of letters, digits and ._-"
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
        yield f"{file.name}: found no_checksum, expected it only for .xz, which checks itself, and without a checksum"
    for kind, length in HASHES.items():
        value = getattr(file, kind)
        if value is not None and not re.fullmatch(f"[0-9a-f]{{{length}}}", str(value)):
            yield f"{file.name}: found the {kind} {value!r}, expected {length} hexadecimal digits, in quotes"
