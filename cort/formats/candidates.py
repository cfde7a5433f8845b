"""MS MARCO's lists of candidates with their texts, ``query_id TAB doc_id TAB query TAB passage``, plain or gzipped.

Only the ids are kept: the texts of `top1000.dev.tsv` are 4 GB, its 6.7 million pairs of ids 0.2 GB.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from cort.formats.lines import BadLine, read_columns
from cort.system.errors import shorten

COLUMNS = ("query_id", "doc_id", "query", "passage")
SCHEMA = pa.schema([("query_id", pa.string()), ("doc_id", pa.string())])


def is_candidate(line: str) -> bool:
    """Tell a line of this form from one of a run, whose fields are 3 or 6."""
    return line.count("\t") == len(COLUMNS) - 1


def read_candidates(path: str | Path) -> pa.Table:
    """Read the two columns of ids, in the file's order; row n of the table is line n + 1.

    :raises InputError: for a line that has not four fields, or an id that is empty or holds a blank.
    """
    return read_columns(path, COLUMNS, SCHEMA, _parse)


def _parse(line: str) -> tuple[str, str]:
    if not is_candidate(line):
        expected = "the 4 fields `query_id TAB doc_id TAB query TAB passage`"
        raise BadLine(f"{line.count(chr(9)) + 1} fields", expected, "fix the line")
    query_id, doc_id, _, _ = line.split("\t")
    for name, value in (("query", query_id), ("document", doc_id)):
        if value.split() != [value]:
            raise BadLine(f"the {name} id {shorten(value)}", "an id without blanks", "fix the line")
    return query_id, doc_id
