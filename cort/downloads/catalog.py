"""The public files an experiment can name, with all that is known of each: catalog.yaml, read and checked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from cort.system.errors import InputError, input_error

CATALOG = Path(__file__).with_name("catalog.yaml")
NAME = re.compile(r"[a-z0-9-]+/[A-Za-z0-9][A-Za-z0-9._-]*")
HASHES = {"md5": 32, "sha256": 64}


@dataclass(frozen=True)
class PublicFile:
    """One file: `urls` in the order of trial, or the `archive` it is a `member` of; what is not known is None.

    `bytes` is exact; `size` in bytes is not, it serves plans and bounds.
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

    @property
    def about(self) -> int:
        """Size in bytes, as far as it is known; else 0."""
        return self.bytes or self.size or 0

    @property
    def can_be_checked(self) -> bool:
        """Whether a copy of unknown origin can be told from another file."""
        return bool(self.md5 or self.sha256 or self.lines)

    @property
    def facts(self) -> str:
        """What a right copy has, in words."""
        counts = [f"{value} {name}" for name, value in (("bytes", self.bytes), ("lines", self.lines)) if value]
        sums = [f"{name} {value}" for name, value in (("md5", self.md5), ("sha256", self.sha256)) if value]
        return ", ".join(counts + sums[:1]) or "a whole file"

    @property
    def own_names(self) -> list[str]:
        """Names under which somebody may have the file, the catalogue's first."""
        others = [self.member] if self.member else [urlsplit(url).path for url in self.urls]
        return list(dict.fromkeys([self.name, *(Path(name).name for name in (self.name, *others))]))


@dataclass(frozen=True)
class Catalog:
    """All files by name, and the headers that hosts want."""

    files: Mapping[str, PublicFile]
    headers: Mapping[str, Mapping[str, str]]

    def find(self, name: str) -> PublicFile:
        """Look up a file.

        :raises InputError: for an unknown name, with the nearest one.
        """
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


@cache
def load_catalog(path: str | Path = CATALOG) -> Catalog:
    """Read a catalogue.

    :raises InputError: every mistake of it, in one line.
    """
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        entries, headers = found["files"], found.get("headers", {})
        files = {name: _read(name, entry) for name, entry in entries.items()}
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError, AttributeError) as error:
        fix = "fix it as cort/downloads/catalog.yaml is"
        raise input_error(path, f"no catalogue ({error!r})", "headers and files as YAML", fix) from error
    mistakes = [line for file in files.values() for line in _mistakes(file, files)]
    if mistakes:
        raise InputError(f"{path}: " + "; ".join(mistakes))
    return Catalog(files, headers)


def _read(name: str, entry: Mapping[str, Any]) -> PublicFile:
    if unknown := entry.keys() - {field.name for field in fields(PublicFile)[1:]}:
        raise KeyError(f"{name}: {', '.join(sorted(unknown))}")
    return PublicFile(name, **{**entry, "urls": tuple(entry.get("urls", ()))})


def _mistakes(file: PublicFile, files: Mapping[str, PublicFile]) -> Iterator[str]:
    if not NAME.fullmatch(file.name):
        yield f"{file.name}: found this name, expected SOURCE/FILE in letters, digits and ._-"
    if bool(file.urls) == bool(file.archive) or bool(file.archive) != bool(file.member):
        yield f"{file.name}: found {'both' if file.urls else 'neither'}, expected urls, or archive and member"
    if file.archive and not files.get(file.archive, file).urls:
        yield f"{file.name}: found the archive {file.archive}, expected one with urls"
    if file.urls and not (file.md5 or file.sha256):
        yield f"{file.name}: found no checksum, expected md5 or sha256 of what is fetched"
    if file.urls and not file.about:
        yield f"{file.name}: found no size, expected bytes or size of what is fetched"
    for kind, length in HASHES.items():
        value = getattr(file, kind)
        if value is not None and not re.fullmatch(f"[0-9a-f]{{{length}}}", str(value)):
            yield f"{file.name}: found the {kind} {value!r}, expected {length} hexadecimal digits, in quotes"
    for kind, value in (("bytes", file.bytes), ("size", file.size), ("lines", file.lines)):
        if value is not None and (not isinstance(value, int) or value < 1):
            yield f"{file.name}: found {kind} {value!r}, expected a whole number from 1"
