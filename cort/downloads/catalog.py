"""Public files that experiments can name, and what is known about each: catalog.yaml."""

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cort.formats.yaml_files import read_yaml
from cort.runtime.errors import input_error, shorten, suggest

CHUNK = 1 << 20
# Beginnings of web pages that servers send instead of files.
PAGES = (b"<!doctype html", b"<html")
# Not a literal name: files that a source names belong to its program, but mirrors do not affect results.
CATALOG = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class PublicFile:
    """A file with its `urls`, in the order in which they are tried, or a `member` of an `archive`; None means unknown.

    `bytes` is exact; `size` (in bytes) and `records` (texts in the file) are estimates for plans.
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
    def facts(self) -> str:
        """Description of the right file."""
        facts = {"{} bytes": self.bytes, "{} lines": self.lines, "md5 {}": self.md5}
        return ", ".join(text.format(value) for text, value in facts.items() if value) or "a complete file"

    def copies_in(self, folder: Path | None) -> list[Path]:
        """List files in a folder that may be this one, with the name in the catalogue, of the member, or in a URL.

        There are none if the catalogue cannot distinguish this file from others.
        """
        if folder is None or not (self.md5 or self.sha256 or self.lines or self.no_checksum):
            return []
        names = [self.name, self.member or self.name]
        names += [Path(urlsplit(place).path).name for place in (*names, *self.urls)]
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


@cache
def load_catalog(path: str | Path | None = None) -> Catalog:
    """Read a catalogue, by default that of the project."""
    path = path or CATALOG
    content = read_yaml(path, "a catalogue")
    entries = content["files"].items()
    files = {name: PublicFile(name, **{**entry, "urls": tuple(entry.get("urls", ()))}) for name, entry in entries}
    return Catalog(files, content.get("headers", {}))


def problem_with(path: Path, file: PublicFile) -> str | None:
    """Describe how a file on disk differs from the one in the catalogue; None if it does not.

    Without a checksum, the file is unpacked, and its lines are counted.
    """
    size = path.stat().st_size
    problem = f"{size} bytes" if file.bytes not in (None, size) else _other_content(path, file)
    return problem and f"{problem}{_page(path)}"


def _other_content(path: Path, file: PublicFile) -> str | None:
    for name in ("sha256", "md5"):
        if expected := getattr(file, name):
            with open(path, "rb") as handle:
                # Publishers give MD5, which protects from accidents but not from attacks.
                digest = hashlib.file_digest(handle, partial(hashlib.new, name, usedforsecurity=False)).hexdigest()
            return None if digest == expected else f"the {name} {digest}"
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    lines, last = 0, b"\n"
    try:
        with openers.get(Path(file.name).suffix, open)(path, "rb") as handle:
            while chunk := handle.read(CHUNK):
                lines, last = lines + chunk.count(b"\n"), chunk[-1:]
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        return f"damaged data ({error})"
    # The last line may lack its end.
    lines += last != b"\n"
    return None if file.lines in (None, lines) else f"{lines} lines"


def _page(path: Path) -> str:
    """Describe a file that is a web page; empty for other files."""
    with open(path, "rb") as handle:
        head = handle.read(200).strip()
    is_page = head.lower().startswith(PAGES)
    return f", a web page that begins with {shorten(head.decode('utf-8', 'replace'), 40)}" if is_page else ""
