"""Rows as mappings: JSON, CSV or TSV with a header, and Parquet, streamed. The content tells them apart.

The field has many names for the same things (BEIR, MTEB, pyserini, Tevatron, MIRACL, MS MARCO v2); the first name of a
list that a row has, in whatever case, is the one that counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from cort.formats import csv_records, json_records
from cort.formats.damage import refusing_damage
from cort.formats.fields import BadLine, checked_unicode, parse_json, writable_id
from cort.formats.lines import Rows, head_of, iter_lines, log_doubts
from cort.runtime.errors import shorten

#: names of "id" and "title", and of one or more texts, which follow each other; without, they are found
Fields = Mapping[str, Any]
DEFAULT: Fields = {}
Record = Mapping[str, Any]
#: a record, or what is wrong with it
Row = Record | BadLine
PARQUET, JSON, OBJECTS, TSV = "parquet", "json lines", "json objects", "\t"
SUFFIXES = {".json": JSON, ".jsonl": JSON, ".ndjson": JSON, ".csv": ",", ".parquet": PARQUET}
PACKED = {".gz", ".bz2", ".xz", ".zst"}
#: forms with a header
HEADED = (*csv_records.DELIMITERS, TSV)
ROWS_PER_BATCH, LONGEST_LIST = 1_000, 200


class Names(NamedTuple):
    """What fields may be called.

    :ivar texts: of several, the first counts, unless a person named them: then their texts follow each other.
    """

    ids: Sequence[str]
    titles: Sequence[str]
    texts: Sequence[str]
    given: bool = False

    def columns(self) -> list[Sequence[str]]:
        """List the names of each field that is read."""
        texts = [(name,) for name in self.texts] if self.given else [self.texts]
        return [self.ids, self.titles, *texts]


DOCUMENTS = Names(
    ("_id", "id", "pid", "docid", "doc_id", "docno"), ("title",), ("text", "contents", "passage", "body", "segment")
)
QUERIES = Names(("_id", "id", "qid", "query_id", "query-id", "topic_id"), (), ("text", "query", "question", "title"))


def names_of(fields: Fields) -> Names:
    """Return the names of fields of documents, given as in the config."""
    given = {key: (value,) if isinstance(value, str) else tuple(value) for key, value in fields.items()}
    ids, titles, texts, _ = DOCUMENTS
    return Names(given.get("id", ids), given.get("title", titles), given.get("text", texts), "text" in given)


def form_of(path: str | Path, ids: Collection[str], texts: Collection[str]) -> str | None:
    """Tell how a file has its rows; None if it is none of these.

    :param ids: names, one of which a header has; `texts` likewise.
    """
    head = head_of(path)
    names = [suffix.lower() for suffix in Path(path).suffixes]
    suffix = next((name for name in reversed(names) if name not in PACKED), "")
    if head.startswith(b"PAR1"):
        return PARQUET
    if json_records.begins(head):
        return OBJECTS
    if head.lstrip().startswith(b"{"):
        return JSON
    first, _, rest = head.decode("utf-8", "replace").partition("\n")
    if csv_records.SEPARATOR.fullmatch(first):
        first = rest.partition("\n")[0]
    first = first.rstrip("\r")
    commas = csv_records.delimiter_of(first)
    for delimiter in (TSV, commas):
        header = {name.strip().lower() for name in _fields(first, delimiter)}
        if not header.isdisjoint(map(str.lower, ids)) and not header.isdisjoint(map(str.lower, texts)):
            return delimiter
    return commas if suffix == ".csv" else SUFFIXES.get(suffix)


def iter_rows(
    path: str | Path,
    form: str,
    wanted: Sequence[Sequence[str]] = (),
    fewest: int = 2,
    read: Callable[[str | Path], Rows[str]] = iter_lines,
    header: Sequence[str] = (),
    doubts: Counter[str] | None = None,
    last: Sequence[str] = (),
) -> Rows[Row]:
    """Stream (row, record or what is wrong with it); rows are lines counted from 1, or records of Parquet and JSON.

    :param wanted: names of each column of Parquet that is read. If there are fewer than `fewest` of them, all columns
        are, as a name may be unknown.
    :param header: of a TSV without one.
    :param doubts: gets the number of rows that were read with doubts, by reason; the log has it, too.
    :param last: names of the last column of a TSV that may have TABs.
    """
    if form == PARQUET:
        return _iter_parquet(path, wanted, fewest)
    if form in csv_records.DELIMITERS:
        return _with_header(_iter_csv(path, read(path), form, doubts), header)
    if form == OBJECTS:
        return json_records.iter_objects(read(path))
    lines = ((row, line) for row, line in read(path) if line.strip())
    if form == JSON:
        return ((row, _object(line)) for row, line in lines)
    return _with_header(((row, _fields(line, TSV)) for row, line in lines), header, last)


def checked(row: Row) -> Record:
    """Return a record, or raise what is wrong with it."""
    if isinstance(row, BadLine):
        raise row
    return row


def _object(line: str) -> Row:
    try:
        record = parse_json(line)
    except ValueError as error:
        fix = "correct the row; each record takes one line"
        return BadLine(f"{shorten(line)} ({error})", "one JSON object", fix)
    fix = "write records as {...}, one per line"
    return record if isinstance(record, dict) else BadLine(shorten(line), "one JSON object", fix)


def value_of(record: Record, names: Sequence[str]) -> Any:
    """Return the value of the first name that a record has."""
    if (name := name_in(record, names)) is not None:
        return record[name]
    keys = shorten(", ".join(map(str, record)), LONGEST_LIST) if record else "none"
    raise BadLine(
        f"no {' or '.join(names)} among the fields {keys}",
        "one of these",
        """rename a field or, for documents, set `fields`; each is a record with both, {"id": "1", "text": "words"}""",
    )


def name_in(record: Record, names: Sequence[str]) -> str | None:
    """Return the first name that a record has, as it is written there; None if it has none of them."""
    for name in names:
        if name in record:
            return name
    written = {key.lower(): key for key in reversed(list(record))}
    return next((written[name.lower()] for name in names if name.lower() in written), None)


def are_texts(ids: Sequence[str]) -> bool:
    """Whether most of what should be ids are words or questions, as in a table of questions and answers."""
    return 2 * sum(len(one.split()) > 1 or one.rstrip().endswith(("?", "\uff1f", "\u061f")) for one in ids) > len(ids)


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: null, or the numbers NaN and Infinity, which pandas writes and JSON lacks."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def id_of(record: Record, names: Sequence[str], name: str) -> str:
    """Return an id, which may be an integer."""
    value = value_of(record, names)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadLine(f"the {name} {shorten(value)}", "a string or an integer", "give the row an id")
    return writable_id(name, checked_unicode(name, str(value)))


def text_of(record: Record, names: Sequence[str]) -> str:
    """Return a text, which is empty if it is missing."""
    value = value_of(record, names)
    if not isinstance(value, str | int | float | None) or isinstance(value, bool):
        raise BadLine(f"{shorten(value)} as {names[0]}", "text", "correct or remove the row")
    return "" if is_missing(value) else checked_unicode(names[0], str(value))


def titled(names: Names, row: Row) -> tuple[str, str, str]:
    """Return the id, title and text of a document."""
    record = checked(row)
    return id_of(record, names.ids, "doc_id"), *texts_of(record, names)


def texts_of(record: Record, names: Names) -> tuple[str, str]:
    """Return the title and text of a document, which both may be empty; without a title, a text is needed."""
    title = "" if name_in(record, names.titles) is None else text_of(record, names.titles)
    needed = [keys for keys in names.columns()[2:] if not title or name_in(record, keys) is not None]
    return title, "\n\n".join(filter(None, (text_of(record, keys) for keys in needed)))


def _iter_parquet(path: str | Path, wanted: Sequence[Sequence[str]], fewest: int) -> Rows[Record]:
    number = 0
    with refusing_damage(path, "parquet file", "fetch it again"):
        file = pq.ParquetFile(path)
        found = (name_in(dict.fromkeys(file.schema_arrow.names), names) for names in wanted)
        columns = [*dict.fromkeys(name for name in found if name is not None)]
        for batch in file.iter_batches(ROWS_PER_BATCH, columns=columns if len(columns) >= fewest else None):
            for number, record in enumerate(batch.to_pylist(), number + 1):  # noqa: B020
                yield number, record


def _with_header(lines: Rows[list[str] | BadLine], header: Sequence[str], last: Sequence[str] = ()) -> Rows[Row]:
    for row, values in lines:
        if isinstance(values, BadLine):
            yield row, values
        elif not header:
            header = [name.strip() for name in values]
            if repeated := sorted({name for name in header if name and header.count(name) > 1}):
                yield row, BadLine(f"the column {shorten(repeated[0])} twice", "each column once", "rename one")
                return
        elif len(values) > len(header) and header[-1].lower() in last:
            yield row, dict(zip(header, [*values[: len(header) - 1], " ".join(values[len(header) - 1 :])], strict=True))
        elif len(values) < len(header) or any(values[len(header) :]):
            expected = f"{len(header)}, as the header has"
            yield row, BadLine(f"{len(values)} fields", expected, "separate fields as the header does")
        else:
            # Spreadsheets write more delimiters than there are columns.
            yield row, dict(zip(header, values, strict=False))


def _iter_csv(
    path: str | Path, lines: Rows[str], delimiter: str, doubts: Counter[str] | None
) -> Rows[list[str] | BadLine]:
    found = Counter[str]()
    seen = ((row, line) for row, line in lines if row > 1 or not csv_records.SEPARATOR.fullmatch(line))
    yield from csv_records.iter_records(seen, delimiter, found)
    log_doubts(path, found, doubts)


def _fields(line: str, delimiter: str) -> list[str]:
    """Divide a line; TSV may have a field in quotes, but quotes never span lines."""
    if delimiter != TSV:
        return csv_records.fields_of(line, delimiter)
    fields = line.split(TSV)
    return [_unquoted(field) if field.startswith('"') else field for field in fields] if '"' in line else fields


def _unquoted(field: str) -> str:
    inner = field[1:-1].replace('""', "")
    return field[1:-1].replace('""', '"') if len(field) > 1 and field.endswith('"') and '"' not in inner else field
