"""Documents in the files that `cort.formats.raw` reads as passages."""

from collections.abc import Iterator
from pathlib import Path

from cort.formats.raw import iter_titled
from cort.sources.documents import Document, Section, one_line, paragraphs_of


def iter_file_documents(path: str | Path) -> Iterator[Document]:
    """Yield each row as a document, with the title that BEIR keeps apart; the checks are those of passages."""
    for _, (doc_id, title, text) in iter_titled(path):
        yield Document(doc_id, one_line(title), (Section((), paragraphs_of(text)),))
