"""Documents in the files that `cort.formats.passages` reads."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from cort.formats.passages import iter_titled
from cort.formats.rows import Fields
from cort.sources.documents import Document, plain_document


def iter_file_documents(paths: Sequence[str | Path], fields: Fields, doubts: Counter[str]) -> Iterator[Document]:
    """Yield the documents of all files.

    :param fields: names those of rows.
    :param doubts: gets the number of rows that were read with doubts, by reason.
    """
    for path in paths:
        for _, titled in iter_titled(path, fields, doubts):
            yield plain_document(*titled)
