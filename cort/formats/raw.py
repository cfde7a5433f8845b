"""The files users bring: passages, queries and judgements as MS MARCO, TREC or BEIR publish them, plain or gzipped.

| what     | suffix                    | a line                                                        |
|----------|---------------------------|---------------------------------------------------------------|
| passages | ``.tsv``                  | ``doc_id TAB text`` (MS MARCO)                                |
| passages | ``.jsonl``                | ``{"_id": ..., "title": ..., "text": ...}`` (BEIR)            |
| queries  | ``.tsv``                  | ``query_id TAB text`` (MS MARCO)                              |
| queries  | ``.jsonl``                | ``{"_id": ..., "text": ...}`` (BEIR)                          |
| qrels    | ``.tsv .txt .qrels``      | ``query_id 0 doc_id grade``, no header (MS MARCO, TREC)       |
| qrels    | ``.tsv``                  | three columns below ``query-id TAB corpus-id TAB score`` (BEIR) |

Each may end in ``.gz``. Readers stream (row, record), rows counted from 1 and one record to a line, and change nothing
but the whitespace around a text. Whatever could corrupt ids or scores later is refused with its row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.ids import is_plain
from cort.formats.lines import iter_lines
from cort.formats.records import Passage, Qrel, Query
from cort.formats.tables import ROW_GROUP
from cort.system.errors import InputError, input_error, shorten

BEIR_QRELS_HEADER = "query-id\tcorpus-id\tscore"

# int() alone also takes "1_000", " 1" and digits of other scripts.
_GRADE = re.compile(r"[+-]?[0-9]{1,9}")

# 10, 100, ...
POWERS = 10 ** np.arange(1, 19, dtype=np.int64)

Record = TypeVar("Record", Passage, Query, Qrel)


def iter_passages(path: str | Path) -> Iterator[tuple[int, Passage]]:
    """Stream (row, passage); the text of a BEIR passage is its title, a blank and its text."""
    pairs = _json_pairs if suffix_of(path, (".tsv", ".jsonl")) == ".jsonl" else tsv_pairs
    return ((row, Passage(doc_id, text)) for row, doc_id, text in pairs(path, "doc_id", iter_lines(path)))


def iter_queries(path: str | Path) -> Iterator[tuple[int, Query]]:
    """Stream (row, query)."""
    pairs = _json_pairs if suffix_of(path, (".tsv", ".jsonl")) == ".jsonl" else tsv_pairs
    return ((row, Query(query_id, text)) for row, query_id, text in pairs(path, "query_id", iter_lines(path)))


def iter_qrels(path: str | Path) -> Iterator[tuple[int, Qrel]]:
    """Stream (row, judgement); the second column of TREC's form is ignored, as by trec_eval."""
    suffix = suffix_of(path, (".tsv", ".txt", ".qrels"))
    lines = iter_lines(path)
    first = next(lines, None)
    if first is None:
        return iter(())
    if suffix == ".tsv" and first[1] == BEIR_QRELS_HEADER:
        return _beir_qrels(path, lines)
    return _trec_qrels(path, chain([first], lines))


def iter_record_batches(
    records: Iterable[tuple[int, Record]], schema: pa.Schema, rows: int = ROW_GROUP
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Gather (row, record) pairs into (row of the first record, batch of at most `rows` records)."""
    remaining = iter(records)
    while block := list(islice(remaining, rows)):
        columns = zip(*(record for _, record in block), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield block[0][0], pa.record_batch(arrays, schema=schema)


def refuse_duplicates(path: str | Path, keys: pa.ChunkedArray, what: str, first_row: int = 1) -> None:
    """Refuse a file in which two rows have the same key.

    The check keeps no Python objects, so that it serves millions of ids; rows are looked for only when it fails.

    :param keys: one string for each row of the file, in its order.
    :param what: what a key is called in the complaint ("doc_id").
    :param first_row: the row of the file that holds the first key.
    """
    if _are_increasing_numbers(keys) or pc.count_distinct(keys).as_py() == len(keys):
        return
    codes = keys.combine_chunks().dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    again = int(np.flatnonzero(first[codes] != np.arange(len(codes)))[0])
    raise input_error(
        path,
        f"{what} {shorten(keys[again].as_py())} again (it is already in row {int(first[codes[again]]) + first_row})",
        f"each {what} once",
        "remove one of the two rows",
        again + first_row,
    )


def _are_increasing_numbers(keys: pa.ChunkedArray) -> bool:
    """Whether keys are written like MS MARCO's: plain decimal numbers, each above the last, so all distinct."""
    last = -1
    for chunk in filter(len, keys.chunks):
        if not is_plain(chunk) or pc.any(pc.starts_with(chunk, "+")).as_py():
            return False
        try:
            numbers = chunk.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid:
            return False
        # Without leading zeros a number has as many digits as its logarithm says.
        digits = np.searchsorted(POWERS, numbers, side="right") + 1
        lengths = pc.binary_length(chunk).to_numpy()
        if numbers[0] <= last or (np.diff(numbers) <= 0).any() or (digits != lengths).any():
            return False
        last = int(numbers[-1])
    return True


def suffix_of(path: str | Path, allowed: tuple[str, ...]) -> str:
    """Suffix of a file that may be gzipped; others than the allowed ones are refused."""
    suffix = Path(Path(path).name.removesuffix(".gz")).suffix
    if suffix not in allowed:
        choices = " or ".join([", ".join(allowed[:-1]), allowed[-1]])
        raise input_error(
            path,
            f"a file name ending in {shorten(suffix)}" if suffix else "a file name without a suffix",
            f"{choices}, each also with .gz",
            "rename or convert the file",
        )
    return suffix


def tsv_pairs(path: str | Path, name: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """Stream (row, id, text) of rows ``id TAB text``; `name` is what complaints call the id."""
    for row, line in lines:
        fields = line.split("\t")
        if len(fields) != 2:
            raise input_error(
                path,
                f"{len(fields)} TAB-separated fields" if line else "an empty line",
                f"2 fields ({name} TAB text)",
                "separate id and text by one TAB and leave no other TAB in the row",
                row,
            )
        yield row, _checked_id(path, row, name, fields[0]), _checked_text(path, row, fields[1])


def _json_pairs(path: str | Path, name: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    for row, line in lines:
        record = _json_object(path, row, line)
        text = _json_string(path, row, record, "text")
        if name == "doc_id" and "title" in record:
            text = f"{_json_string(path, row, record, 'title')} {text}"
        yield row, _checked_id(path, row, name, _json_string(path, row, record, "_id")), _checked_text(path, row, text)


def _json_object(path: str | Path, row: int, line: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise input_error(
            path, f"{shorten(line)} ({error})", "one JSON object", "correct the row; each record takes one line", row
        ) from error
    if not isinstance(value, dict):
        raise input_error(
            path, f"JSON of type {_json_type(value)}", "one JSON object", "write records as {...}, one to a line", row
        )
    return value


def _json_string(path: str | Path, row: int, record: dict[str, object], key: str) -> str:
    if key not in record:
        keys = shorten(", ".join(record)) if record else "none"
        raise input_error(path, f"no key {key!r} (keys: {keys})", "the keys '_id' and 'text'", f"add {key!r}", row)
    value = record[key]
    if not isinstance(value, str):
        raise input_error(
            path, f"{key!r} of type {_json_type(value)}", "a string", f"put the value of {key!r} in quotes", row
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise input_error(
            path,
            f"half a character (\\u{ord(value[error.start]):04x}) in {key!r}",
            "valid Unicode",
            "remove it or write both surrogates",
            row,
        ) from error
    return value


def _json_type(value: object) -> str:
    names = {bool: "boolean", int: "number", float: "number", list: "array", dict: "object", str: "string"}
    return names.get(type(value), "null")


def _trec_qrels(path: str | Path, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Qrel]]:
    for row, line in lines:
        fields = line.split()
        if len(fields) != 4:
            raise _wrong_qrels_fields(path, row, line, len(fields), "4 fields (query_id 0 doc_id grade)")
        yield row, Qrel(fields[0], fields[2], _checked_grade(path, row, fields[3]))


def _beir_qrels(path: str | Path, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Qrel]]:
    for row, line in lines:
        fields = line.split("\t")
        if len(fields) != 3:
            raise _wrong_qrels_fields(
                path, row, line, len(fields), "3 TAB-separated fields (query-id, corpus-id, score) below that header"
            )
        query_id = _checked_id(path, row, "query-id", fields[0])
        yield row, Qrel(query_id, _checked_id(path, row, "corpus-id", fields[1]), _checked_grade(path, row, fields[2]))


def _wrong_qrels_fields(path: str | Path, row: int, line: str, count: int, expected: str) -> InputError:
    found = f"{count} fields in {shorten(line)}" if line else "an empty line"
    fix = (
        "write four columns without a header, or BEIR's three in a .tsv below 'query-id TAB corpus-id TAB score'"
        if row == 1
        else "correct the row; ids contain no blanks"
    )
    return input_error(path, found, expected, fix, row)


def _checked_id(path: str | Path, row: int, name: str, value: str) -> str:
    if value.split() != [value]:
        found = f"{name} {shorten(value)} with whitespace" if value.strip() else f"an empty {name}"
        raise input_error(
            path, found, f"a {name} without whitespace, as run files need it", "give the row another id", row
        )
    if '"' in value:
        found = f"{name} {shorten(value)} with a quotation mark"
        raise input_error(path, found, f"a {name} without any, as run files need it", "give the row another id", row)
    return value


def _checked_text(path: str | Path, row: int, text: str) -> str:
    stripped = text.strip()
    if not stripped:
        raise input_error(path, "an empty text", "at least one character", "remove the row", row)
    return stripped


def _checked_grade(path: str | Path, row: int, value: str) -> int:
    if not _GRADE.fullmatch(value):
        raise input_error(
            path,
            f"the grade {shorten(value)}",
            "an integer of at most 9 digits",
            "write grades as integers, without a header",
            row,
        )
    return int(value)
