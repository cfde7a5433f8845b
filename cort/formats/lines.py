"""Lines of a UTF-8 text file, plain or compressed; anything that could silently corrupt ids or scores is refused.

The content decides how a file is compressed (`cort.formats.unpacking`), not its name. A byte order mark is dropped and
CRLF is read as LF, with one message per file in the log.
"""

import functools
import io
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cort.formats.decoding import decode
from cort.formats.fields import BadLine
from cort.formats.ids import are_ids
from cort.formats.unpacking import HEAD, kind_of, refusing_cuts, unpacked
from cort.runtime.errors import input_error, shorten

log = logging.getLogger(__name__)

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ZIP = b"PK\x03\x04"
# Bytes per block: of lines read one by one, of texts, of columns, and of Arrow's parser.
SMALL_BLOCK, BLOCK_BYTES, COLUMNS_BLOCK, ARROW_BLOCK = 1 << 20, 4 << 20, 16 << 20, 4 << 20
ROWS_PER_BATCH = 65_536

Line = TypeVar("Line")
Record = TypeVar("Record")
#: lines, or the records parsed from them, each with its row, counted from 1
Rows = Iterator[tuple[int, Record]]
#: files that a table was read from, each with the row of every record
Parts = Sequence[tuple[str | Path, Sequence[int]]]


class Block(NamedTuple):
    """Complete lines of a file: the first `length` bytes of `data`; `row` is the number of the first line, from 1."""

    row: int
    data: bytearray
    length: int

    def has(self, part: bytes) -> bool:
        """Whether the lines contain these bytes."""
        return self.data.find(part, 0, self.length) >= 0


def place_of(parts: Parts, record: int) -> tuple[str | Path, int]:
    """Return the file and row of a record; records are counted from 0 over all files."""
    for source, rows in parts:
        if record < len(rows):
            return source, rows[record]
        record -= len(rows)
    raise IndexError(record)


def none_of(kind: str, path: str | Path) -> str:
    """Describe a file without passages, queries or judgements, for an error message."""
    return "an empty file" if Path(path).is_file() and not Path(path).stat().st_size else f"no {kind}"


def iter_lines(path: str | Path) -> Rows[str]:
    """Yield (row counted from 1, line without its end); refuse NUL, invalid UTF-8, truncated gzip and other types."""
    for block in iter_blocks(path, SMALL_BLOCK):
        yield from decode_lines(path, block)


def iter_text(path: str | Path, counts: Counter[str] | None = None, has_nul: bool = True) -> Rows[str]:
    """Yield (row, line) like `iter_lines`, but read rows that are not UTF-8 (`cort.formats.decoding`).

    :param counts: gets the number of such rows, by what is doubtful; the log has it, too.
    :param has_nul: NUL is a space, not an error.
    """
    doubts = Counter[str]()
    for block in iter_blocks(path, SMALL_BLOCK):
        yield from decode_lines(path, block, partial(decode_text, doubts, has_nul))
    log_doubts(path, doubts, counts)


def decode_text(doubts: Counter[str], has_nul: bool, raw: bytes) -> str:
    """Decode a line for `iter_records`, and count doubts."""
    text, doubt = decode(raw.rstrip(b"\n").replace(b"\0", b" ") if has_nul else _without_nul(raw))
    if doubt:
        doubts[f"rows {doubt}"] += 1
    return text


def log_doubts(path: str | Path, found: Counter[str], doubts: Counter[str] | None) -> None:
    """Log how many rows of a file were doubtful, once per file, and add them to other doubts."""
    for doubt, number in found.items():
        _log_once(str(path), f"{doubt}: {number:,}")
    if doubts is not None:
        doubts.update(found)


def iter_blocks(path: str | Path, size: int) -> Iterator[Block]:
    """Yield blocks of about `size` bytes, which share their memory; refuse truncated compressed data."""
    with open(path, "rb") as file:
        kind = kind_of(file.peek(HEAD))
        with refusing_cuts(path, kind):
            stream = unpacked(file)
        yield from iter_blocks_of(stream, path, size, kind)


def iter_blocks_of(handle: io.BufferedIOBase, path: str | Path, size: int, kind: str | None = None) -> Iterator[Block]:
    """Yield the blocks of a stream like `iter_blocks`; error messages call it `path`, and `kind` how it is packed."""
    buffer, filled, row = bytearray(size), 0, 1
    more = True
    while more:
        with refusing_cuts(path, kind, lambda: row - 1 + buffer.count(b"\n", 0, filled)):  # noqa: B023
            while filled < len(buffer) and (got := handle.readinto1(memoryview(buffer)[filled:])):
                filled += got
        more = filled == len(buffer)
        end = buffer.rfind(b"\n", 0, filled) + 1 if more else filled
        if end:
            if row == 1:
                _refuse_other_files(path, bytes(buffer[: min(filled, HEAD)]))
            yield _plain(path, Block(row, buffer, end), is_last=not more)
            row += buffer.count(b"\n", 0, end)
        # The rest is the beginning of a line, which may be longer than the buffer.
        begun = buffer[end:filled]
        buffer = buffer if end else bytearray(2 * len(buffer))
        buffer[: len(begun)], filled = begun, len(begun)


def head_of(path: str | Path) -> bytes:
    """Return the first bytes of a file, unpacked, to tell what is in it."""
    with open(path, "rb") as file, refusing_cuts(path, kind_of(file.peek(HEAD))):
        return unpacked(file).read(HEAD).removeprefix(BYTE_ORDER_MARK)


def _refuse_other_files(path: str | Path, head: bytes) -> None:
    if head.startswith(ZIP):
        raise input_error(path, "a zip archive", "UTF-8 text", "unpack it")
    if 4 * head.count(0) >= len(head):
        found = "UTF-16 or UTF-32 text without a byte order mark, or binary data"
        raise input_error(path, found, "UTF-8 text", "convert the file (`iconv -f UTF-16LE -t UTF-8`)")


def _plain(path: str | Path, block: Block, is_last: bool) -> Block:
    """Drop a byte order mark and the CR of CRLF, copying only if there are any."""
    marked = block.row == 1 and block.data.startswith(BYTE_ORDER_MARK)
    if block.row == 1 and is_last and block.has(b"\r") and not block.has(b"\n"):
        _log_once(str(path), "read CR line ends as LF")
        block = block._replace(data=block.data.replace(b"\r", b"\n"))
    cut = is_last and block.data.endswith(b"\r", 0, block.length)
    # Searching for one byte is ten times as fast as searching for two.
    crlf = cut or (block.has(b"\r") and block.has(b"\r\n"))
    if marked:
        _log_once(str(path), "dropped the byte order mark")
    if crlf:
        _log_once(str(path), "read CRLF line ends as LF")
    if not marked and not crlf:
        return block
    plain = block.data[len(BYTE_ORDER_MARK) * marked : block.length - cut].replace(b"\r\n", b"\n")
    return Block(block.row, plain, len(plain))


@functools.cache
def _log_once(path: str, message: str) -> None:
    """Log a message once per file, however often the file is read."""
    log.info("%s: %s", path, message)


def iter_records(path: str | Path, lines: Rows[Line], parse: Callable[[Line], Record]) -> Rows[Record]:
    """Yield (row, parsed line); a `BadLine` from `parse` becomes an error with the row."""
    for row, line in lines:
        try:
            record = parse(line)
        except BadLine as bad:
            found, expected, fix = bad.args
            raise input_error(path, found, expected, fix, row) from bad.__cause__
        yield row, record


def decode_line(raw: bytes) -> str:
    """Decode a line for `iter_records`; refuse NUL and invalid UTF-8."""
    raw = _without_nul(raw)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        start = max(error.start - 10, 0)
        context = shorten(raw[start : error.end + 10].decode("utf-8", "backslashreplace"))
        found = f"invalid UTF-8 at byte {error.start + 1} ({context})"
        raise BadLine(found, "UTF-8", "convert the file (`iconv`)") from error


def decode_lines(path: str | Path, block: Block, parse: Callable[[bytes], str] = decode_line) -> Rows[str]:
    """Yield (row, line without its end) of a block, like `iter_lines`."""
    lines = io.BytesIO(memoryview(block.data)[: block.length])
    return iter_records(path, enumerate(lines, block.row), parse)


def iter_record_batches(records: Rows[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Collect records into batches of at most `ROWS_PER_BATCH` rows."""
    while block := list(islice(records, ROWS_PER_BATCH)):
        columns = zip(*(record for _, record in block), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.record_batch(arrays, schema=schema)


def read_columns(
    path: str | Path, names: Sequence[str], schema: pa.Schema, parse: Callable[[str], Any], separators: str = " \t"
) -> pa.Table:
    """Read the columns `schema` of a large file as `iter_columns` does; row n of the table is line n + 1."""
    return pa.Table.from_batches(iter_columns(path, names, schema, parse, separators), schema)


def iter_columns(
    path: str | Path, names: Sequence[str], schema: pa.Schema, parse: Callable[[str], Any], separators: str
) -> Iterator[pa.RecordBatch]:
    """Stream the columns `schema` of a file with the columns `names`, in order, a row per line.

    Arrow parses plain blocks with one kind of separator; other blocks are read line by line with `parse`. If there are
    several `separators`, any number of them may separate two fields, and no field is empty.
    """
    for block in iter_blocks(path, COLUMNS_BLOCK):
        used = [separator for separator in separators if block.has(separator.encode())]
        plain = len(used) == 1 and not (len(separators) > 1 and _has_empty_field(block))
        table = parse_block(block, names, schema, used[0]) if plain else None
        if table is not None and all(map(_is_clean, table.columns)):
            yield from table.to_batches()
        else:
            # The records that Arrow would give, or an error with its row.
            yield from iter_record_batches(iter_records(path, decode_lines(path, block), parse), schema)


def parse_block(block: Block, names: Sequence[str], schema: pa.Schema, separator: str) -> pa.Table | None:
    """Let Arrow parse lines of the fields `names`, without quotes; keep the columns of `schema`.

    Return None if the result might differ from reading line by line.
    """
    # Arrow ends a line at a lone CR, and drops the byte order mark of a second file appended to the first.
    if block.data.startswith(BYTE_ORDER_MARK) or block.has(b"\r") or block.has(b"\x00"):
        return None
    # A copy, as Arrow's threads may release their input while Python ends, and release no memory of Python's then.
    data = pa.allocate_buffer(block.length)
    np.frombuffer(data, np.uint8)[:] = np.frombuffer(block.data, np.uint8, block.length)
    read = pa.csv.ReadOptions(column_names=names, block_size=ARROW_BLOCK)
    parse = pa.csv.ParseOptions(delimiter=separator, quote_char=False, ignore_empty_lines=False)
    kept = {"column_types": schema, "include_columns": schema.names}
    convert = pa.csv.ConvertOptions(**kept, strings_can_be_null=False, null_values=[])
    try:
        # Arrow does not validate the columns that it drops.
        offsets = pa.py_buffer(np.array([0, block.length], np.int64))
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, data]).validate(full=True)
        return pa.csv.read_csv(pa.BufferReader(data), read, parse, convert)
    except pa.ArrowInvalid:
        return None


def _has_empty_field(block: Block) -> bool:
    """Whether a separator is at the start or end of a line, or next to another one."""
    breaks = np.frombuffer(block.data, np.uint8, block.length) <= ord(" ")
    at_end = breaks[-1] and block.data[block.length - 1] != ord("\n")
    return bool(breaks[0] or at_end or (breaks[1:] & breaks[:-1]).any())


def _is_clean(column: pa.ChunkedArray) -> bool:
    """Whether all numbers are finite, or all texts are ids."""
    return bool(pc.all(pc.is_finite(column)).as_py()) if column.type == pa.float64() else are_ids(column)


def _without_nul(raw: bytes) -> bytes:
    """Strip the end of a line; refuse NUL."""
    raw = raw.rstrip(b"\n")
    if b"\x00" in raw:
        raise BadLine(f"a NUL byte at byte {raw.index(0) + 1}", "text", "remove it, or name a file of text")
    return raw
