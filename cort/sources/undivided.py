"""Documents that come as a title and a text."""

from itertools import groupby

from cort.formats.fields import writable_id
from cort.sources.documents import Document, Section


def document_of(doc_id: str, title: str, text: str) -> Document:
    """Make a document of one section; title and text may be empty.

    Blank lines separate paragraphs; other line breaks become spaces, and so does NUL; half a character is a "?".

    :raises BadLine: for an invalid id.
    """
    titles, paragraphs = _paragraphs(title), _paragraphs(text)
    sections = (Section((), paragraphs),) if paragraphs else ()
    return Document(writable_id("doc_id", doc_id), " ".join(titles), sections)


def _paragraphs(text: str) -> tuple[str, ...]:
    readable = text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    lines = map(str.strip, readable.splitlines())
    return tuple(" ".join(group) for full, group in groupby(lines, bool) if full)
