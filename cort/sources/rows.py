"""Files in a folder in which each row is a document: CSV and TSV with a header, JSON lines, Parquet."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cort.formats import rows
from cort.formats.fields import BadLine
from cort.formats.lines import Rows, iter_text
from cort.runtime.errors import InputError, input_error, shorten
from cort.sources.documents import Document, Section, Unread, encoded_id, one_line, paragraphs_of

#: names of "id" and "title", and of one or more texts, which follow each other; without, they are found
Fields = Mapping[str, Any]
DEFAULT: Fields = {}


def iter_rows(file: Path, prefix: str, fields: Fields, on_bad: Callable[[Unread], None]) -> Iterator[Document]:
    """Yield the documents of a file; their ids are `prefix` and an id, or the number of the row if it has none.

    Rows that give no document are reported at the end, by reason, and so is a file without rows, or one that cannot be
    read to its end. The same id twice is an error.
    """
    bad: dict[str, tuple[int, int, str]] = {}
    ids: dict[str, int] = {}
    names = rows.names_of(fields)
    for row, record in _readable(file, names, on_bad):
        try:
            document = _document(prefix, row, rows.checked(record), names, "id" in fields)
        except (BadLine, Unread) as error:
            reason, detail = error.args if isinstance(error, Unread) else ("rows that cannot be read", error.args[0])
            count, first, detail = bad.get(reason, (0, row, detail))
            bad[reason] = count + 1, first, detail
            continue
        if (before := ids.setdefault(document.doc_id, row)) != row:
            found = f"the id {shorten(document.doc_id)} again (it is already in row {before})"
            raise input_error(file, found, "each id once", "name another field as `id`, or remove a row", row)
        yield document
    for reason, (count, first, detail) in bad.items():
        others = f" and {count - 1} more" if count > 1 else ""
        on_bad(Unread(reason, f"row {first}{others}: {detail}"))
    if not (bad or ids):
        on_bad(Unread("no rows", "nothing but a header or empty lines"))


def _readable(file: Path, names: rows.Names, on_bad: Callable[[Unread], None]) -> Rows[rows.Row]:
    try:
        form = rows.form_of(file, names.ids, (*names.titles, *names.texts))
        header = () if form else ("id", "text")

        def read(path: str | Path) -> Rows[str]:
            return iter_text(path, lambda what: on_bad(Unread("read as Windows-1252", what)))

        for row, record in rows.iter_rows(file, form or rows.TSV, names.columns(), 1, read, header):
            # Rows are numbered without a header.
            yield row - (form in (rows.CSV, rows.TSV)), record
    except InputError as error:
        on_bad(Unread("a file that cannot be read to its end", str(error)))


def _document(prefix: str, row: int, record: rows.Record, names: rows.Names, has_id: bool) -> Document:
    has_id = has_id or not record.keys().isdisjoint(names.ids)
    written = rows.value_of(record, names.ids) if has_id else row
    doc_id = "" if rows.is_missing(written) else encoded_id(str(written))
    title, text = rows.texts_of(record, names)
    if not doc_id or not (title.strip() or text.strip()):
        raise Unread("rows without text" if doc_id else "rows without an id", shorten(dict(record)))
    return Document(f"{prefix}{doc_id}", one_line(title), (Section((), paragraphs_of(text)),))
