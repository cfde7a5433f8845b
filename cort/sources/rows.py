"""CSV files with a header and JSONL files, in which each row is a document."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cort.formats.fields import BadLine, parse_json_line
from cort.sources.documents import Document, Section, Unread, encoded_id, one_line, paragraphs_of
from cort.system.errors import input_error, shorten

#: columns or keys of "id" and "title", which are optional, and "text"; of several, the texts follow each other
Fields = Mapping[str, str | Sequence[str]]
DEFAULT: Fields = {"text": "text"}
Record = Mapping[str, Any]

csv.field_size_limit(1 << 30)


def iter_rows(path: str, text: str, fields: Fields, on_bad: Callable[[Unread], None]) -> Iterator[Document]:
    """Yield the documents of a file; their ids are ``path/id``, or ``path/row`` if `fields` names no id.

    Rows are counted from 1, without a header; empty lines are left out. Rows that give no document are reported at the
    end, by reason, and so is a file without rows. The same id twice is an error.
    """
    bad: dict[str, tuple[int, int, str]] = {}
    ids: dict[str, int] = {}
    for row, record in _iter_csv(text) if path.lower().endswith(".csv") else _iter_json(text):
        try:
            document = _document(path, row, record, fields)
        except Unread as error:
            reason, detail = error.args
            count, first, detail = bad.get(reason, (0, row, detail))
            bad[reason] = count + 1, first, detail
            continue
        if (before := ids.setdefault(document.doc_id, row)) != row:
            found = f"the id {shorten(document.doc_id)} again (it is already in row {before})"
            raise input_error(path, found, "each id once", "name another field as `id`, or remove a row", row)
        yield document
    for reason, (count, first, detail) in bad.items():
        others = f" and {count - 1} more" if count > 1 else ""
        on_bad(Unread(reason, f"row {first}{others}: {detail}"))
    if not (bad or ids):
        on_bad(Unread("no rows", "nothing but a header or empty lines"))


def _document(path: str, row: int, record: Record | Unread, fields: Fields) -> Document:
    if isinstance(record, Unread):
        raise record
    values = {field: [_value(record, name) for name in _names(names)] for field, names in fields.items()}
    doc_id = encoded_id(" ".join(values["id"])) if "id" in values else str(row)
    title = one_line(" ".join(values.get("title", ())))
    paragraphs = tuple(one for text in values["text"] for one in paragraphs_of(text))
    if not doc_id or not (title or paragraphs):
        raise Unread("rows without text" if doc_id else "rows without an id", shorten(dict(record)))
    return Document(f"{encoded_id(path)}/{doc_id}", title, (Section((), paragraphs),))


def _names(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _value(record: Record, name: str) -> str:
    if name not in record:
        raise Unread(f"rows without {shorten(name)}", f"there are {shorten(', '.join(record))}")
    if not isinstance(value := record[name], str | int | float | None):
        raise Unread(f"rows in which {shorten(name)} is no text", shorten(value))
    return "" if value is None else str(value)


def _iter_csv(text: str) -> Iterator[tuple[int, Record | Unread]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    row = 0
    try:
        header = next(reader, [])
        if repeated := {name for name in header if name and header.count(name) > 1}:
            yield 0, Unread("the same column twice", shorten(min(repeated)))
            return
        for row, values in enumerate(reader, 1):
            if len(values) == len(header):
                yield row, dict(zip(header, values, strict=True))
            elif values:
                yield row, Unread("rows of other lengths than the header", f"{len(values)}, not {len(header)} fields")
    except csv.Error as error:
        yield row + 1, Unread("broken CSV: the rest of the file", str(error))


def _iter_json(text: str) -> Iterator[tuple[int, Record | Unread]]:
    for row, line in enumerate(io.StringIO(text), 1):
        try:
            record = parse_json_line(line, "") if line.strip() else None
        except BadLine as error:
            yield row, Unread("rows that are not JSON", error.args[0])
        else:
            if isinstance(record, dict):
                yield row, record
            elif line.strip():
                yield row, Unread("rows that are no JSON object", shorten(line))
