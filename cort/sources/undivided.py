"""Documents that come as a title and a text."""

from itertools import groupby

from cort.formats.fields import BadLine, checked_unicode, writable_id
from cort.sources.documents import Document, Section


def document_of(doc_id: str, title: str, text: str) -> Document:
    """Check a document and make it of one section; title and text may be empty.

    Blank lines separate paragraphs; other line breaks become spaces.

    :raises BadLine: for an invalid id, NUL, or half a character.
    """
    titles, paragraphs = _paragraphs("title", title), _paragraphs("text", text)
    sections = (Section((), paragraphs),) if paragraphs else ()
    return Document(writable_id("doc_id", doc_id), " ".join(titles), sections)


def _paragraphs(key: str, text: str) -> tuple[str, ...]:
    if "\x00" in checked_unicode(key, text):
        raise BadLine(f"a NUL character in {key!r}", "text", "remove it")
    lines = map(str.strip, text.splitlines())
    return tuple(" ".join(group) for full, group in groupby(lines, bool) if full)
