"""Files in a folder in which each row is a document: CSV and TSV with a header, JSON lines, Parquet."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from cort.formats import rows
from cort.formats.fields import BadLine, encoded_id
from cort.formats.lines import Rows, iter_text
from cort.formats.visible import visible
from cort.runtime.errors import InputError, input_error, shorten
from cort.sources.documents import Document, Unread, one_line, paragraphs_of, plain_document

# Rows that tell whether the ids of a TSV without a header are texts.
FIRST = 100


def iter_rows(file: Path, prefix: str, fields: rows.Fields, on_bad: Callable[[Unread], None]) -> Iterator[Document]:
    """Yield the documents of a file; their ids are `prefix` and an id, or the number of the row if it has none.

    Rows that give no document, or were read with doubts, are reported at the end, by reason, and so is a file without
    rows, or one that cannot be read to its end. The same id twice is an error.
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
    if not ids and file.suffix.lower() == ".json":
        on_bad(Unread("other files (.json)", None))
        return
    for reason, (count, first, detail) in bad.items():
        others = f" and {count - 1} more" if count > 1 else ""
        on_bad(Unread(reason, f"row {first}{others}: {detail}", count))
    if not (bad or ids):
        on_bad(Unread("no rows", "nothing but a header or empty lines"))


def _readable(file: Path, names: rows.Names, on_bad: Callable[[Unread], None]) -> Rows[rows.Row]:
    doubts = Counter[str]()
    try:
        form = rows.form_of(file, names.ids, (*names.titles, *names.texts))
        header = () if form else _header_of(file, names)
        form = form or rows.TSV
        read = partial(iter_text, counts=doubts)
        for row, record in rows.iter_rows(file, form, names.columns(), 1, read, header, doubts, names.texts):
            # Rows are numbered without a header.
            yield row - (form in rows.HEADED and not header), record
    except InputError as error:
        on_bad(Unread("a file that cannot be read to its end", str(error)))
    for doubt, number in doubts.items():
        on_bad(Unread(doubt, f"{number:,}", number))


def _header_of(file: Path, names: rows.Names) -> tuple[str, ...]:
    """Give a TSV without a header one: an id and a text, or, if most ids are texts, such as questions, a title."""
    if rows.form_of(file, (*names.ids, *names.titles, *names.texts), (*names.titles, *names.texts)) == rows.TSV:
        return ()
    first = [line.partition("\t")[0] for _, line in islice(iter_text(file), FIRST)]
    return ("title", "text") if rows.are_texts(first) else ("id", "text")


def _document(prefix: str, row: int, record: rows.Record, names: rows.Names, has_id: bool) -> Document:
    has_id = has_id or rows.name_in(record, names.ids) is not None
    written = rows.value_of(record, names.ids) if has_id else row
    doc_id = "" if rows.is_missing(written) else encoded_id(str(written))
    title, text = map(visible, rows.texts_of(record, names))
    if not doc_id or not (title.strip() or text.strip()):
        raise Unread("rows without text" if doc_id else "rows without an id", shorten(dict(record)))
    return plain_document(f"{prefix}{doc_id}", one_line(title), "\n\n".join(paragraphs_of(text)))
