"""Documents in the files that `cort.formats.passages` reads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cort.formats.passages import iter_titled
from cort.sources.documents import Document, Section, one_line, paragraphs_of


def iter_file_documents(paths: Sequence[str], fields: Mapping[str, Any]) -> Iterator[Document]:
    """Yield the documents of all files; `fields` names those of rows."""
    for path in paths:
        for _, (doc_id, title, text) in iter_titled(path, fields):
            paragraphs = paragraphs_of(text)
            yield Document(doc_id, one_line(title), (Section((), paragraphs),) if paragraphs else ())
