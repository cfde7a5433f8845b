"""Lines of a UTF-8 text file, plain or gzipped, refusing what silently corrupts ids and scores."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from cort.system.errors import InputError, input_error, shorten

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


def iter_blocks(path: str | Path, size: int = BLOCK_BYTES) -> Iterator[tuple[int, bytearray, int]]:
    """Yield (row of the first line, counted from 1; bytes; how many of them count): whole lines of up to `size` bytes.

    The next block is read into the same bytes. Truncated gzip is refused.
    """
    buffer, filled, row = bytearray(size), 0, 1
    try:
        with _open(path) as handle:
            more = True
            while more:
                while filled < len(buffer) and (got := handle.readinto1(memoryview(buffer)[filled:])):
                    filled += got
                more = filled == len(buffer)
                end = buffer.rfind(b"\n", 0, filled) + 1 if more else filled
                if end:
                    yield row, buffer, end
                    row += buffer.count(b"\n", 0, end)
                # What is left is the beginning of a line, perhaps of one that is longer than the buffer.
                rest = buffer[end:filled]
                buffer = buffer if end else bytearray(2 * len(buffer))
                buffer[: len(rest)], filled = rest, len(rest)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged_gzip(path, row - 1 + buffer.count(b"\n", 0, filled), error) from error


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
