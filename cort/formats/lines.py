"""Lines of a UTF-8 text file, plain or gzipped, refusing what silently corrupts ids and scores."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from cort.errors import input_error, shorten

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def iter_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (row counted from 1, line without its end); refuse a BOM, CRLF, invalid UTF-8 and truncated gzip."""
    row = 0
    try:
        with _open(path) as handle:
            for row, raw in enumerate(handle, start=1):
                yield row, _decode(path, row, raw)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise input_error(
            path,
            f"damaged gzip data after row {row} ({error})",
            "a whole gzip file",
            "download or compress it again",
        ) from error


def _open(path: str | Path) -> IO[bytes]:
    if str(path).endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return open(path, "rb")


def _decode(path: str | Path, row: int, raw: bytes) -> str:
    if row == 1 and raw.startswith(BYTE_ORDER_MARK):
        raise input_error(path, "a byte order mark", "plain UTF-8", "remove its first three bytes (`tail -c +4`)", row)
    if raw.endswith(b"\r\n") or raw.endswith(b"\r"):
        raise input_error(path, "a CRLF line end", "LF line ends", "convert the file (`dos2unix`)", row)
    raw = raw.rstrip(b"\n")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        start = max(error.start - 10, 0)
        found = shorten(raw[start : error.end + 10].decode("utf-8", "backslashreplace"))
        raise input_error(
            path, f"invalid UTF-8 at byte {error.start + 1} ({found})", "UTF-8", "convert the file (`iconv`)", row
        ) from error
