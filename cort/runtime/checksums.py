"""Checksums of files, which say what a result was made from."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def checksum(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def describe_inputs(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return path, size in bytes and SHA-256 of each file, without duplicates, in the given order."""
    return [
        {"path": path, "bytes": Path(path).stat().st_size, "sha256": checksum(path)} for path in dict.fromkeys(paths)
    ]
