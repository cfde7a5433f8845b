"""Lines of a UTF-8 text file, plain or gzipped, refusing what silently corrupts ids and scores.

A byte order mark and CRLF line ends are read as what they mean, and said once in the log: no reader of lines or blocks
sees them.
"""

from __future__ import annotations

import functools
import gzip
import io
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cort.formats.fields import BadLine
from cort.formats.ids import are_ids
from cort.system.errors import input_error, shorten

log = logging.getLogger(__name__)

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
# What other files begin with, and what to do with them; the longer marks first.
CONVERT = "convert the file (`iconv -f {0} -t UTF-8`)"
OTHER_FILES = (
    (b"PK\x03\x04", "a zip archive", "unpack it"),
    (b"\xfd7zXZ\x00", "xz data", "unpack it (`unxz`)"),
    (b"BZh91AY&SY", "bzip2 data", "unpack it (`bunzip2`)"),
    (b"\x28\xb5\x2f\xfd", "zstd data", "unpack it (`unzstd`)"),
    (b"\xff\xfe\x00\x00", "UTF-32 text", CONVERT.format("UTF-32")),
    (b"\x00\x00\xfe\xff", "UTF-32 text", CONVERT.format("UTF-32")),
    (b"\xff\xfe", "UTF-16 text", CONVERT.format("UTF-16")),
    (b"\xfe\xff", "UTF-16 text", CONVERT.format("UTF-16")),
)
# Of lines read one by one, of those parsed together (texts, and columns), and of what Arrow parses at a time.
SMALL_BLOCK, BLOCK_BYTES, COLUMNS_BLOCK, ARROW_BLOCK = 1 << 20, 32 << 20, 16 << 20, 4 << 20
ROWS_PER_BATCH, HEAD = 65_536, 4_096
# A small gzip file may unpack to a line that fills the memory.
LONGEST_LINE = 1 << 27

Line = TypeVar("Line", str, bytes)
Record = TypeVar("Record")
#: lines, or what they became, each with its row, counted from 1
Rows: TypeAlias = Iterator[tuple[int, Record]]
#: the files that a table is of, each with the row of every record
Parts: TypeAlias = Sequence[tuple[str | Path, Sequence[int]]]


def place_of(parts: Parts, record: int) -> tuple[str | Path, int]:
    """Tell the file and the row in it of a record, counted from 0 through all files."""
    for source, rows in parts:
        if record < len(rows):
            return source, rows[record]
        record -= len(rows)
    raise IndexError(record)


def iter_lines(path: str | Path) -> Rows[str]:
    """Yield (row counted from 1, line without its end); refuse NUL, invalid UTF-8, truncated gzip and other files."""
    for first_row, block, length in iter_blocks(path, SMALL_BLOCK):
        yield from decode_lines(path, block, length, first_row)


def iter_blocks(path: str | Path, size: int = BLOCK_BYTES) -> Iterator[tuple[int, bytearray, int]]:
    """Yield (row of the first line, counted from 1; bytes; how many of them count): whole lines of up to `size` bytes.

    The next block is read into the same bytes. Truncated gzip is refused.
    """
    with open(path, "rb") as file:
        yield from iter_blocks_of(unpacked(path, file), path, size)


def iter_blocks_of(handle: io.BufferedIOBase, path: str | Path, size: int) -> Iterator[tuple[int, bytearray, int]]:
    """Yield the blocks of a stream as `iter_blocks` does those of a file; `path` is what complaints call it."""
    buffer, filled, row = bytearray(size), 0, 1
    more = True
    try:
        while more:
            while filled < len(buffer) and (got := handle.readinto1(memoryview(buffer)[filled:])):
                filled += got
            more = filled == len(buffer)
            end = buffer.rfind(b"\n", 0, filled) + 1 if more else filled
            if end:
                if row == 1:
                    _refuse_other_files(path, bytes(buffer[: min(filled, HEAD)]))
                yield row, *_plain(path, buffer, end, is_first=row == 1, is_last=not more)
                row += buffer.count(b"\n", 0, end)
            # What is left is the beginning of a line, perhaps of one that is longer than the buffer.
            rest = buffer[end:filled]
            if len(rest) >= LONGEST_LINE:
                found = f"a line of more than {LONGEST_LINE:,} bytes"
                raise input_error(path, found, "shorter lines", "name a file of text", row)
            buffer = buffer if end else bytearray(2 * len(buffer))
            buffer[: len(rest)], filled = rest, len(rest)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if not str(path).endswith(".gz"):
            raise
        whole = row - 1 + buffer.count(b"\n", 0, filled)
        found = f"damaged gzip data after row {whole} ({error})"
        raise input_error(path, found, "a whole gzip file", "download or compress it again") from error


def unpacked(path: str | Path, file: io.BufferedReader) -> io.BufferedReader | gzip.GzipFile:
    """Unpack what is named ``.gz``; a name that does not say what the file is, is refused."""
    is_gzip, named = file.peek(len(GZIP)).startswith(GZIP), str(path).endswith(".gz")
    if is_gzip and not named:
        raise input_error(path, "gzip data", "text, as the name says", "name it .gz")
    if named and not is_gzip and file.peek():
        raise input_error(path, "no gzip data", "gzip, as the name says", "remove .gz from the name, or compress it")
    return gzip.GzipFile(fileobj=file) if named else file


def _refuse_other_files(path: str | Path, head: bytes) -> None:
    found, fix = next(((what, fix) for mark, what, fix in OTHER_FILES if head.startswith(mark)), ("", ""))
    if not found and head.startswith(GZIP):
        found, fix = "gzip data in gzip data", "unpack it once"
    if not found and 4 * head.count(0) >= len(head):
        found, fix = "UTF-16 or UTF-32 text without a byte order mark, or no text", CONVERT.format("UTF-16LE")
    if found:
        raise input_error(path, found, "UTF-8 text", fix)


def _plain(path: str | Path, block: bytearray, length: int, is_first: bool, is_last: bool) -> tuple[bytearray, int]:
    """Leave out a byte order mark and the CR of CRLF; a copy only where there are any."""
    marked = is_first and block.startswith(BYTE_ORDER_MARK)
    cut = is_last and block.endswith(b"\r", 0, length)
    # One byte is found ten times as fast as two.
    crlf = cut or (block.find(b"\r", 0, length) >= 0 and block.find(b"\r\n", 0, length) >= 0)
    if marked:
        _say(str(path), "left out the byte order mark")
    if crlf:
        _say(str(path), "read CRLF line ends as LF")
    if not marked and not crlf:
        return block, length
    plain = block[len(BYTE_ORDER_MARK) * marked : length - cut].replace(b"\r\n", b"\n")
    return plain, len(plain)


@functools.cache
def _say(path: str, what: str) -> None:
    """Log once, however often a file is read."""
    log.info("%s: %s", path, what)


def decode_lines(path: str | Path, block: bytearray, length: int, first_row: int) -> Rows[str]:
    """Yield (row, line without its end) of a block, the rows counted from `first_row`, as `iter_lines` does."""
    lines = io.BytesIO(memoryview(block)[:length])
    return iter_records(path, enumerate(lines, first_row), decode_line)


def iter_records(path: str | Path, lines: Rows[Line], parse: Callable[[Line], Record]) -> Rows[Record]:
    """Yield (row, what `parse` makes of the line); what it raises as a `BadLine` is refused with its row."""
    for row, line in lines:
        try:
            record = parse(line)
        except BadLine as bad:
            found, expected, fix = bad.args
            raise input_error(path, found, expected, fix, row) from bad.__cause__
        yield row, record


def iter_record_batches(records: Rows[Any], schema: pa.Schema) -> Rows[pa.RecordBatch]:
    """Gather (row, record) pairs into (row of the first record, batch of at most `ROWS_PER_BATCH` records)."""
    while block := list(islice(records, ROWS_PER_BATCH)):
        columns = zip(*(record for _, record in block), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield block[0][0], pa.record_batch(arrays, schema=schema)


def read_columns(
    path: str | Path, names: Sequence[str], schema: pa.Schema, parse: Callable[[str], Any], separators: str = " \t"
) -> pa.Table:
    """Read the columns `schema` of a large file whose columns are `names`, in the file's order; row n is line n + 1.

    Arrow parses blocks with exactly one kind of separator and no surprises. Others are read line by line: `parse` gives
    the record of a line. Of several `separators`, any number of them stands between two fields, which are never empty.
    """
    batches: list[pa.RecordBatch] = []
    for first_row, block, length in iter_blocks(path, COLUMNS_BLOCK):
        used = [one for one in separators if block.find(one.encode(), 0, length) >= 0]
        plain = len(used) == 1 and not (len(separators) > 1 and _has_empty_field(block, length))
        table = parse_block(block, length, names, schema, used[0]) if plain else None
        if table is not None and all(_is_clean(table[field.name]) for field in schema):
            batches += table.to_batches()
        else:
            records = iter_records(path, decode_lines(path, block, length, first_row), parse)
            batches += [batch for _, batch in iter_record_batches(records, schema)]
    return pa.Table.from_batches(batches, schema)


def parse_block(
    block: bytearray, length: int, names: Sequence[str], schema: pa.Schema, separator: str
) -> pa.Table | None:
    """Let Arrow parse lines of fields without quotes; the columns `names`, of which those of `schema` are kept.

    None where reading line by line might tell something else.
    """
    # Arrow takes a lone CR for the end of a line, and leaves out a byte order mark: where two files were put together.
    if block.startswith(BYTE_ORDER_MARK) or any(block.find(one, 0, length) >= 0 for one in (b"\r", b"\x00")):
        return None
    data = pa.py_buffer(memoryview(block)[:length])
    read = pa.csv.ReadOptions(column_names=names, block_size=ARROW_BLOCK)
    parse = pa.csv.ParseOptions(delimiter=separator, quote_char=False, ignore_empty_lines=False)
    kept = {"column_types": schema, "include_columns": schema.names}
    convert = pa.csv.ConvertOptions(**kept, strings_can_be_null=False, null_values=[])
    try:
        # Columns that are not kept are checked by nobody else.
        offsets = pa.py_buffer(np.array([0, length], np.int64))
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, data]).validate(full=True)
        return pa.csv.read_csv(pa.BufferReader(data), read, parse, convert)
    except pa.ArrowInvalid:
        return None


def _has_empty_field(block: bytearray, length: int) -> bool:
    """Whether a separator begins a line, or follows another or is followed by the end of the line."""
    breaks = np.frombuffer(block, np.uint8, length) <= ord(" ")
    at_end = breaks[-1] and block[length - 1] != ord("\n")
    return bool(breaks[0] or at_end or (breaks[1:] & breaks[:-1]).any())


def _is_clean(column: pa.ChunkedArray) -> bool:
    """Whether all numbers are finite, or all texts ids."""
    return bool(pc.all(pc.is_finite(column)).as_py()) if column.type == pa.float64() else are_ids(column)


def decode_line(raw: bytes) -> str:
    """Read a line as text, for `iter_records`; NUL and bytes that are no UTF-8 are refused."""
    raw = raw.rstrip(b"\n")
    if b"\x00" in raw:
        raise BadLine(f"a NUL byte at byte {raw.index(0) + 1}", "text", "remove it, or name a file of text")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        start = max(error.start - 10, 0)
        found = shorten(raw[start : error.end + 10].decode("utf-8", "backslashreplace"))
        found = f"invalid UTF-8 at byte {error.start + 1} ({found})"
        raise BadLine(found, "UTF-8", "convert the file (`iconv`)") from error
