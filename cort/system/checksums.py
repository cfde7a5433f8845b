"""Checksums of what stages wrote, kept beside it: damaged and swapped bytes are noticed before they are read.

The record of a file NAME is ``.NAME.sum`` beside it, that of a folder written as a whole is ``.sum`` in it; both are
JSON, name -> size and checksum. What has no record is taken as it is, so a file replaced by hand is accepted by
deleting its record.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from cort.system.errors import input_error

SUFFIX = ".sum"
# Of larger files, which take seconds to read, the size alone is known; a longer name has no room for the suffix.
LIMIT, NAME_BYTES = 1_000_000_000, 240
# Bytes of a checksum; the function is the fastest of those that are safe (1.4 seconds for the largest file).
DIGEST_BYTES = 16
THREADS = min(4, os.cpu_count() or 1)


class Part(NamedTuple):
    """A file as its record has it, and what is to be deleted if it is damaged."""

    path: Path
    record: Path
    whole: Path
    size: int
    digest: str | None


def record_of(path: Path) -> Path:
    """Where the record of a file or folder is."""
    if path.is_dir():
        return path / SUFFIX
    return path.with_name(f".{os.fsencode(path.name)[:NAME_BYTES].decode(errors='ignore')}{SUFFIX}")


def describe(paths: Iterable[Path], folder: Path) -> str:
    """Content of the record of files in a folder."""
    found = {path.relative_to(folder).as_posix(): [path.stat().st_size, _digest(path)] for path in paths}
    return json.dumps(found, indent=2) + "\n"


def describe_folder(folder: Path) -> str:
    """Content of the record of a whole folder."""
    return describe((path for path in sorted(folder.rglob("*")) if path.is_file()), folder)


def verify(words: Iterable[str | Path]) -> None:
    """Read all files and folders among the values of options (PATH or NAME=PATH), and compare them with their records.

    :raises InputError: names the first that is not as it was written.
    """
    places = [place for word in map(str, words) for place in (word, word.partition("=")[2])]
    parts = dict.fromkeys(part for place in places if os.path.exists(place) for part in _parts_of(Path(place)))
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(_compare, parts):
            pass


def _parts_of(path: Path) -> Iterator[Part]:
    """Files of a path that have a record: their own, or that of the folder they were written with."""
    records = [record_of(path)] if path.is_dir() else [record_of(path), path.parent / SUFFIX]
    for record in filter(os.path.isfile, records):
        folder = record.parent
        for name, (size, digest) in _read(record).items():
            if path in (folder, folder / name):
                yield Part(folder / name, record, folder if record.name == SUFFIX else path, size, digest)


def _read(record: Path) -> dict[str, tuple[int, str | None]]:
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        return {str(name): (int(size), digest and str(digest)) for name, (size, digest) in found.items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        expected = "the checksums of what is beside it"
        raise input_error(record, "a damaged record", expected, "delete it to take that as it is") from None


def _compare(part: Part) -> None:
    fix = f"delete {part.whole} and build it again (or {part.record} alone, to take it as it is)"
    found = f"{part.path.stat().st_size} bytes" if part.path.is_file() else "no such file"
    if found != f"{part.size} bytes":
        raise input_error(part.path, found, f"{part.size} bytes, as were written", fix)
    if part.digest is not None and (digest := _digest(part.path)) != part.digest:
        found = f"other bytes than were written (checksum {digest})"
        raise input_error(part.path, found, f"checksum {part.digest}", fix)


def _digest(path: Path) -> str | None:
    if path.stat().st_size > LIMIT:
        return None
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).hexdigest()
