"""Lines of a UTF-8 text file, plain or gzipped, refusing what silently corrupts ids and scores."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cort.formats.ids import is_plain
from cort.system.errors import input_error, shorten

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Of lines read one by one, of those parsed together, and of what Arrow parses at a time.
SMALL_BLOCK, BLOCK_BYTES, ARROW_BLOCK = 1 << 20, 32 << 20, 4 << 20
ROWS_PER_BATCH, HEAD = 65_536, 65_536

Line = TypeVar("Line", str, bytes)
Record = TypeVar("Record")
#: lines, or what they became, each with its row, counted from 1
Rows: TypeAlias = Iterator[tuple[int, Record]]


class BadLine(Exception):
    """A line that cannot be taken: what was found in it, what was expected, and what to do."""


def iter_lines(path: str | Path) -> Rows[str]:
    """Yield (row counted from 1, line without its end); refuse a BOM, CRLF, invalid UTF-8 and truncated gzip."""
    for first_row, block, length in iter_blocks(path, SMALL_BLOCK):
        yield from decode_lines(path, memoryview(block)[:length], first_row)


def iter_blocks(path: str | Path, size: int = BLOCK_BYTES) -> Iterator[tuple[int, bytearray, int]]:
    """Yield (row of the first line, counted from 1; bytes; how many of them count): whole lines of up to `size` bytes.

    The next block is read into the same bytes. Truncated gzip is refused.
    """
    buffer, filled, row = bytearray(size), 0, 1
    packed = str(path).endswith(".gz")
    try:
        with cast("io.BufferedIOBase", gzip.open(path, "rb")) if packed else open(path, "rb") as handle:
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
        whole = row - 1 + buffer.count(b"\n", 0, filled)
        found = f"damaged gzip data after row {whole} ({error})"
        raise input_error(path, found, "a whole gzip file", "download or compress it again") from error


def decode_lines(path: str | Path, block: memoryview, first_row: int) -> Rows[str]:
    """Yield (row, line without its end) of a block, the rows counted from `first_row`, as `iter_lines` does."""
    if first_row == 1 and block[:3] == BYTE_ORDER_MARK:
        raise input_error(path, "a byte order mark", "plain UTF-8", "remove its first three bytes (`tail -c +4`)", 1)
    return iter_records(path, enumerate(io.BytesIO(block), first_row), _decode)


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


def read_columns(path: str | Path, names: Sequence[str], schema: pa.Schema, parse: Callable[[str], Any]) -> pa.Table:
    """Read the columns `schema` of a large file whose columns are `names`, in the file's order; row n is line n + 1.

    Arrow's parser takes exactly one kind of separator and no surprises. All else goes line by line: `parse` gives the
    record of a line.
    """
    table = _parse_columns(path, names, schema)
    if table is None:
        batches = iter_record_batches(iter_records(path, iter_lines(path), parse), schema)
        table = pa.Table.from_batches([batch for _, batch in batches], schema)
    return table


def _parse_columns(path: str | Path, names: Sequence[str], schema: pa.Schema) -> pa.Table | None:
    """Read a file as `read_columns` does; None where reading line by line might tell something else."""
    compression = "gzip" if str(path).endswith(".gz") else None
    try:
        # Arrow's own files: what Python reads it would have to copy.
        with pa.input_stream(str(path), compression) as file:
            head = file.read(HEAD)
        if b"\r" in head or head.startswith(BYTE_ORDER_MARK):
            return None
        with pa.input_stream(str(path), compression) as file:
            table = parse_csv(file, names, schema, "\t" if b"\t" in head else " ")
    except (pa.ArrowInvalid, OSError):
        return None
    return table if all(_are_ids(table[field.name]) for field in schema if field.type != pa.float64()) else None


def parse_csv(source: object, names: Sequence[str], schema: pa.Schema, separator: str) -> pa.Table:
    """Let Arrow parse lines of fields without quotes; the columns `names`, of which those of `schema` are kept."""
    read = pa.csv.ReadOptions(column_names=names, block_size=ARROW_BLOCK)
    parse = pa.csv.ParseOptions(delimiter=separator, quote_char=False, ignore_empty_lines=False)
    kept = {"column_types": schema, "include_columns": schema.names}
    convert = pa.csv.ConvertOptions(**kept, strings_can_be_null=False, null_values=[])
    return pa.csv.read_csv(source, read, parse, convert)


def _are_ids(column: pa.ChunkedArray) -> bool:
    """Whether no id is empty or has white space or a byte order mark in it."""
    coded = pa.types.is_dictionary(column.type)
    parts = [chunk.dictionary if coded else chunk for chunk in column.chunks]
    odd = (pc.match_substring_regex(part, r"[\s\x{FEFF}]|^$") for part in parts if not is_plain(part))
    return not any(pc.any(found).as_py() for found in odd)


def _decode(raw: bytes) -> str:
    if raw.endswith(b"\r\n") or raw.endswith(b"\r"):
        raise BadLine("a CRLF line end", "LF line ends", "convert the file (`dos2unix`)")
    raw = raw.rstrip(b"\n")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        start = max(error.start - 10, 0)
        found = shorten(raw[start : error.end + 10].decode("utf-8", "backslashreplace"))
        found = f"invalid UTF-8 at byte {error.start + 1} ({found})"
        raise BadLine(found, "UTF-8", "convert the file (`iconv`)") from error
