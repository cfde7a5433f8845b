"""Weighted documents as DeepCT's: JSON lines of `id` and `contents`, with each word as often as it weighs."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from cort.formats.fields import BadLine, checked_id, parse_json
from cort.formats.lines import Rows, iter_lines, iter_record_batches, iter_records
from cort.formats.members import iter_member_lines, refusing_damage
from cort.formats.tables import TERM_WEIGHTS
from cort.system.errors import shorten

KEYS = ("id", "contents")


class Weighted(NamedTuple):
    """A passage's words and how much each weighs, a whole number from 1."""

    doc_id: str
    terms: list[str]
    weights: list[int]


def iter_documents(path: str | Path) -> Iterator[pa.RecordBatch]:
    """Yield documents in batches; those of a ``.zip`` file by file, in the order of the names."""
    return (batch for _, batch in iter_record_batches(_documents(path), TERM_WEIGHTS))


def to_batch(documents: Iterable[Weighted]) -> pa.RecordBatch:
    """Put documents into columns."""
    columns = zip(*documents, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, TERM_WEIGHTS.types, strict=True)]
    return pa.record_batch(arrays, schema=TERM_WEIGHTS)


def _documents(path: str | Path) -> Rows[Weighted]:
    if not str(path).endswith(".zip"):
        yield from iter_records(path, iter_lines(path), _parse)
        return
    with refusing_damage(path), zipfile.ZipFile(path) as archive:
        for name in sorted(name for name in archive.namelist() if name.endswith((".json", ".jsonl"))):
            with archive.open(name) as handle:
                source = f"{path}: {name}"
                yield from iter_records(source, iter_member_lines(handle, source), _parse)


def _parse(line: str) -> Weighted:
    fix = "write one document to a line"
    try:
        record = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"{shorten(line)} ({error})", "one JSON object", fix) from error
    values = [record.get(key) for key in KEYS] if isinstance(record, dict) else []
    if len(values) < len(KEYS) or not all(isinstance(value, str) for value in values):
        raise BadLine(shorten(line), "an object with the texts id and contents", fix)
    counts = Counter(str(values[1]).split())
    return Weighted(checked_id("id", str(values[0])), list(counts), list(counts.values()))
