"""Weighted documents as DeepCT's: JSON lines of `id` and `contents`, with each word as often as it weighs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from cort.formats.fields import BadLine, checked_id, checked_unicode, parse_json_line
from cort.formats.lines import Rows, iter_lines, iter_record_batches, iter_records
from cort.formats.members import choose, iter_member_lines, open_zip
from cort.formats.tables import TERM_WEIGHTS
from cort.system.errors import shorten

KEYS = ("id", "contents")
MEMBER = re.compile(r".*\.jsonl?", re.DOTALL)


class Weighted(NamedTuple):
    """A passage's words and how much each weighs, a whole number from 1."""

    doc_id: str
    terms: list[str]
    weights: list[int]


def iter_documents(path: str | Path) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield (file, documents) in batches; those of a ``.zip`` file by file, in the order of the names."""
    if not str(path).endswith(".zip"):
        yield from _batches(str(path), iter_lines(path))
        return
    with open_zip(path) as (archive, names):
        for name in sorted(choose(path, names, MEMBER)):
            source = f"{path}: {name}"
            with archive.open(name) as handle:
                yield from _batches(source, iter_member_lines(handle, source))


def to_batch(documents: Iterable[Weighted]) -> pa.RecordBatch:
    """Put documents into columns."""
    columns = zip(*documents, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, TERM_WEIGHTS.types, strict=True)]
    return pa.record_batch(arrays, schema=TERM_WEIGHTS)


def _batches(source: str, lines: Rows[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    records = iter_records(source, lines, _parse)
    return ((source, batch) for _, batch in iter_record_batches(records, TERM_WEIGHTS))


def _parse(line: str) -> Weighted:
    fix = "write one document to a line"
    record = parse_json_line(line, fix)
    if isinstance(record, dict) and "vector" in record:
        expected = "'contents' with each word as often as it weighs"
        raise BadLine("the key 'vector'", expected, "write the weights so, without 'vector'")
    values = [record.get(key) for key in KEYS] if isinstance(record, dict) else []
    if len(values) < len(KEYS) or not all(isinstance(value, str) for value in values):
        raise BadLine(shorten(line), "an object with the texts id and contents", fix)
    contents = checked_unicode("contents", str(values[1]))
    if "\x00" in contents:
        raise BadLine("a NUL character", "text", "remove it")
    counts = Counter(contents.split())
    return Weighted(checked_id("document id", str(values[0])), list(counts), list(counts.values()))
