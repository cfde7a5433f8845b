"""Passages as they are indexed, and the queries that should find them: titles, headings or first sentences.

Such a query must not match its passage merely because it was copied from it. Therefore no passage begins with title or
headings, or all passages lose their first sentence: a single one that lacks it would stand out. With ``sentences``,
passages do not overlap, as the one before would keep the sentence. A passage of one sentence keeps it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from cort.formats.records import EMPTY, in_blocks
from cort.formats.tables import PASSAGES, regroup
from cort.runtime.processes import map_in_order
from cort.sources.documents import Document
from cort.sources.passages import Passage, divide, first_sentence

Origin = Literal["titles", "headings", "sentences"]

#: passages, each with the queries above it
HEADED = pa.schema([*PASSAGES, ("queries", pa.list_(pa.string()))])
# Characters that are divided at once.
CHUNK = 1 << 20


@dataclass(frozen=True)
class Division:
    """How documents are divided into passages, and what becomes a query.

    :ivar origin: without it, passages are as `divide` makes them, and have no queries.
    :ivar words: most words of a passage; without it, each document is one.
    """

    origin: Origin | None
    words: int | None
    overlap: int
    headings: bool

    def batches(
        self, documents: Iterable[Document], processes: int, counts: dict[str, int]
    ) -> Iterator[pa.RecordBatch]:
        """Stream the passages of all documents (`HEADED`) and count these; the bytes do not depend on the processes."""

        def counted(document: Document) -> int:
            text = document.text
            counts["documents"] += 1
            counts["documents without text"] += not text.strip()
            return len(text)

        # The chunks depend on nothing but the documents.
        chunks = in_blocks(documents, counted, CHUNK)
        for table in regroup(map_in_order(self._batch, chunks, processes if self.words else 1)):
            yield from table.combine_chunks().to_batches()

    def _batch(self, documents: list[Document]) -> pa.RecordBatch:
        columns = zip(*(passage for document in documents for passage in headed_passages(document, self)), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, HEADED, strict=True)]
        return pa.record_batch(arrays, schema=HEADED)


def headed_passages(document: Document, how: Division) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the ids of a document's passages, their texts as they are indexed, and the queries above them.

    A document without text has an empty passage, as its id may be judged.
    """
    headless, cut = how.origin in ("titles", "headings"), how.origin == "sentences"
    if how.words is None:
        passages = iter([_whole(document, headless)])
    elif document.text.strip():
        passages = divide(document, how.words, 0 if cut else how.overlap, how.headings and not headless)
    else:
        passages = iter([Passage(f"{document.doc_id}#0", "", (), "", EMPTY)])
    for passage in passages:
        sentence = first_sentence(passage.body) if cut else ""
        rest = passage.body[len(sentence) :].strip()
        above = {"titles": (passage.title,), "headings": passage.headings, "sentences": (sentence if rest else "",)}
        text = passage._replace(body=rest or passage.body).text
        yield passage.doc_id, text, [query for query in above.get(str(how.origin), ()) if query]


def _whole(document: Document, headless: bool) -> Passage:
    body = document._replace(title="").text.strip()
    title = document.title if body else ""
    return Passage(document.doc_id, title, (), "" if headless else title, body or document.title or EMPTY)
