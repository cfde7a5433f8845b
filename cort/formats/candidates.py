"""MS MARCO's lists of candidates with their texts, ``query_id TAB doc_id TAB query TAB passage``, plain or gzipped.

Only the ids are kept: the texts of `top1000.dev.tsv` are 4 GB, its 6.7 million pairs of ids 0.2 GB.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cort.formats.lines import BYTE_ORDER_MARK, iter_lines
from cort.system.errors import input_error, shorten

COLUMNS = ("query_id", "doc_id", "query", "passage")
SCHEMA = pa.schema([("query_id", pa.string()), ("doc_id", pa.string())])
LINES_PER_BLOCK = 100_000


def is_candidate(line: str) -> bool:
    """Tell a line of this form from one of a run, whose fields are 3 or 6."""
    return line.count("\t") == len(COLUMNS) - 1


def read_candidates(path: str | Path) -> pa.Table:
    """Read the two columns of ids, in the file's order; row n of the table is line n + 1.

    :raises InputError: for a line that has not four fields, or an id that is empty or holds a blank.
    """
    try:
        table = _read_fast(path)
    except (pa.ArrowInvalid, OSError, zlib.error):
        if not Path(path).exists():
            raise
        table = None
    # What the fast parser cannot take goes line by line, which finds the row at fault.
    return _read_lines(path) if table is None or not _looks_clean(table) else table


def _read_fast(path: str | Path) -> pa.Table | None:
    convert = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(COLUMNS, pa.string()),
        include_columns=SCHEMA.names,
        strings_can_be_null=False,
        null_values=[],
    )
    with open(path, "rb") as handle:
        source = pa.CompressedInputStream(handle, "gzip") if str(path).endswith(".gz") else handle
        head = source.read(65_536)
        if b"\r" in head or head.startswith(BYTE_ORDER_MARK):
            return None
    with open(path, "rb") as handle:
        reader = pa.csv.open_csv(
            pa.CompressedInputStream(handle, "gzip") if str(path).endswith(".gz") else handle,
            read_options=pa.csv.ReadOptions(column_names=list(COLUMNS), block_size=16 << 20),
            parse_options=pa.csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
            convert_options=convert,
        )
        return pa.Table.from_batches(list(reader), SCHEMA)


def _looks_clean(table: pa.Table) -> bool:
    return not any(pc.any(pc.match_substring_regex(table[name], r"[\s\x{FEFF}]|^$")).as_py() for name in SCHEMA.names)


def _read_lines(path: str | Path) -> pa.Table:
    lines = iter_lines(path)
    batches = []
    while block := list(itertools.islice(lines, LINES_PER_BLOCK)):
        batches.append(_read_block(path, block))
    return pa.Table.from_batches(batches, SCHEMA)


def _read_block(path: str | Path, block: Iterable[tuple[int, str]]) -> pa.RecordBatch:
    query_ids, doc_ids = [], []
    for row, line in block:
        if not is_candidate(line):
            found = f"{line.count(chr(9)) + 1} fields"
            expected = "the 4 fields `query_id TAB doc_id TAB query TAB passage`"
            raise input_error(path, found, expected, "fix the line", row)
        query_id, doc_id, _, _ = line.split("\t")
        for name, value in (("query", query_id), ("document", doc_id)):
            if value.split() != [value]:
                raise input_error(path, f"the {name} id {shorten(value)}", "an id without blanks", "fix the line", row)
        query_ids.append(query_id)
        doc_ids.append(doc_id)
    return pa.record_batch([pa.array(query_ids, pa.string()), pa.array(doc_ids, pa.string())], schema=SCHEMA)
