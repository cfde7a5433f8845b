"""Checksums of what stages wrote, kept beside it, so that damaged or swapped files are noticed before they are read.

The record of a file NAME is ``.NAME.sum`` beside it; that of a folder written as a whole is ``.sum`` inside it. Both
are JSON: name -> size and checksum. A file without a record is accepted; delete the record to accept a file that was
replaced by hand.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from cort.runtime.errors import input_error

SUFFIX = ".sum"
# Of larger files, which take seconds to read, only the size is recorded. Longer names leave no room for the suffix.
LIMIT, NAME_BYTES = 1_000_000_000, 240
# Bytes of a recorded checksum. BLAKE2b is the fastest secure hash (1.4 seconds for the largest file).
DIGEST_BYTES = 16
THREADS = min(4, os.cpu_count() or 1)


class Entry(NamedTuple):
    """A file as described by a record, and what to do if it differs."""

    path: Path
    size: int
    digest: str | None
    fix: str


def checksum(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def describe_inputs(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return path, size in bytes and SHA-256 of each file, without duplicates, in the given order."""
    return [
        {"path": path, "bytes": Path(path).stat().st_size, "sha256": checksum(path)} for path in dict.fromkeys(paths)
    ]


def record_of(path: Path) -> Path:
    """Return the path of the record of a file or folder."""
    if path.is_dir():
        return path / SUFFIX
    return path.with_name(f".{os.fsencode(path.name)[:NAME_BYTES].decode(errors='ignore')}{SUFFIX}")


def unit_of(path: Path) -> list[Path]:
    """List a file, those of its folder if this was written as a whole, and their record; some may be gone."""
    whole = record_of(path.parent)
    files = [path.parent / name for name in _read(whole)] if whole.is_file() else []
    return [*files, whole] if path in files else [path, record_of(path)]


def describe(paths: Iterable[Path], folder: Path) -> str:
    """Return the content of a record about files in a folder."""
    entries = {path.relative_to(folder).as_posix(): [path.stat().st_size, _digest(path)] for path in paths}
    return json.dumps(entries, indent=2) + "\n"


def verify(places: Iterable[str | Path]) -> None:
    """Compare files and folders with their records; what does not exist is left to its reader.

    :raises InputError: for the first file that has changed since it was written.
    """
    found = filter(os.path.exists, places)
    entries = dict.fromkeys(entry for place in found for entry in _entries_of(Path(place)))
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(_compare, entries):
            pass


def _entries_of(path: Path) -> Iterator[Entry]:
    """Yield the entries of a file or folder in its own record, or in that of its folder."""
    records = [record_of(path)] if path.is_dir() else [record_of(path), path.parent / SUFFIX]
    for record in filter(os.path.isfile, records):
        folder = record.parent
        damaged = folder if record.name == SUFFIX else path
        fix = f"delete {damaged} and build it again (or {record} alone, to accept it as it is)"
        for name, (size, digest) in _read(record).items():
            if path in (folder, folder / name):
                yield Entry(folder / name, size, digest, fix)


def _read(record: Path) -> dict[str, tuple[int, str | None]]:
    try:
        entries = json.loads(record.read_text(encoding="utf-8"))
        return {str(name): (int(size), digest and str(digest)) for name, (size, digest) in entries.items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        fix = "delete it to accept the files beside it as they are"
        raise input_error(record, "a damaged record", "the checksums of the files beside it", fix) from None


def _compare(entry: Entry) -> None:
    size = f"{entry.path.stat().st_size} bytes" if entry.path.is_file() else "no such file"
    if size != f"{entry.size} bytes":
        raise input_error(entry.path, size, f"{entry.size} bytes, as written", entry.fix)
    if entry.digest is not None and (digest := _digest(entry.path)) != entry.digest:
        raise input_error(entry.path, f"changed content (checksum {digest})", f"checksum {entry.digest}", entry.fix)


def _digest(path: Path) -> str | None:
    if path.stat().st_size > LIMIT:
        return None
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).hexdigest()
