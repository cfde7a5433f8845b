"""Lines of a UTF-8 text file, plain or gzipped, refusing what silently corrupts ids and scores."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from cort.errors import InputError, input_error, shorten

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK_BYTES = 32 << 20


def iter_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (row counted from 1, line without its end); refuse a BOM, CRLF, invalid UTF-8 and truncated gzip."""
    row = 0
    try:
        with _open(path) as handle:
            for row, line in decode_lines(path, handle, 1):
                yield row, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged_gzip(path, row, error) from error


def iter_blocks(path: str | Path, size: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield (row of its first line, counted from 1; whole lines of about `size` bytes); refuse truncated gzip."""
    row, rest = 1, b""
    try:
        with _open(path) as handle:
            while chunk := handle.read1(size):
                rest += chunk
                end = rest.rfind(b"\n") + 1
                if len(rest) >= size and end:
                    yield row, rest[:end]
                    row, rest = row + rest.count(b"\n", 0, end), rest[end:]
        if rest:
            yield row, rest
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged_gzip(path, row - 1 + rest.count(b"\n"), error) from error


def decode_lines(path: str | Path, lines: Iterable[bytes], first_row: int) -> Iterator[tuple[int, str]]:
    """Yield (row, line without its end), the rows counted from `first_row`; refuse what `iter_lines` refuses."""
    for row, raw in enumerate(lines, start=first_row):
        yield row, _decode(path, row, raw)


def _damaged_gzip(path: str | Path, row: int, error: Exception) -> InputError:
    return input_error(
        path, f"damaged gzip data after row {row} ({error})", "a whole gzip file", "download or compress it again"
    )


def _open(path: str | Path) -> io.BufferedIOBase:
    if str(path).endswith(".gz"):
        return cast("io.BufferedIOBase", gzip.open(path, "rb"))
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
