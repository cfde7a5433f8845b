"""Files of training triples as MS MARCO releases them, plain or gzipped: query, relevant passage, other passage.

A line has three ids, separated by TABs (``qidpidtriples.*.tsv``).
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from cort.formats.fields import BadLine, checked_id
from cort.formats.ids import are_ids
from cort.formats.lines import iter_blocks, parse_block, parse_lines

COLUMNS = ("query", "positive", "negative")
FIELDS = pa.schema(dict.fromkeys(COLUMNS, "string"))
SEPARATOR = "\t"


def iter_triples(path: str | Path) -> Iterator[pa.RecordBatch]:
    """Stream the ids of all lines in the columns `COLUMNS`."""
    for block in iter_blocks(path):
        table = parse_block(block, COLUMNS, FIELDS, SEPARATOR)
        if table is not None and all(map(are_ids, table.columns)):
            yield from table.to_batches()
        else:
            yield from parse_lines(path, block, _parse, FIELDS)


def _parse(line: str) -> tuple[str, ...]:
    fields = line.split(SEPARATOR)
    if len(fields) != len(COLUMNS):
        found = f"{len(fields)} TAB-separated fields" if line else "an empty line"
        raise BadLine(found, "3 fields (query TAB positive TAB negative)", "fix or remove the line")
    if any(" " in field.strip() for field in fields):
        raise BadLine("texts", "ids, as in qidpidtriples.train.full.2.tsv.gz", "name a file of ids")
    return tuple(map(checked_id, COLUMNS, fields))
