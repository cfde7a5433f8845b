"""Files of training triples as MS MARCO releases them, plain or gzipped: query, relevant passage, other passage.

A line has three ids, separated by TABs (``qidpidtriples.*.tsv``).
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from cort.formats.fields import BadLine, checked_id
from cort.formats.lines import iter_columns

COLUMNS = ("query", "positive", "negative")
FIELDS = pa.schema(dict.fromkeys(COLUMNS, "string"))
SEPARATOR = "\t"


def iter_triples(path: str | Path) -> Iterator[pa.RecordBatch]:
    """Stream the ids of all lines in the columns `COLUMNS`."""
    return iter_columns(path, COLUMNS, FIELDS, _parse, SEPARATOR)


def _parse(line: str) -> tuple[str, ...]:
    fields = line.split(SEPARATOR)
    if len(fields) != len(COLUMNS):
        found = f"{len(fields)} TAB-separated fields" if line else "an empty line"
        raise BadLine(found, "3 fields (query TAB positive TAB negative)", "fix or remove the line")
    if any(" " in field.strip() for field in fields):
        raise BadLine("texts", "ids, as in qidpidtriples.train.full.2.tsv.gz", "name a file of ids")
    return tuple(map(checked_id, COLUMNS, fields))
