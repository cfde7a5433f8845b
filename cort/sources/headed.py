"""Passages as they are indexed, and the queries that should find them: titles, headings or first sentences.

Such a query must not find its passage because words were copied. Therefore no passage begins with title or headings,
or all passages lose their first sentence: a single one that lacks it would stand out. With ``sentences``, passages do
not overlap, as the one before would keep the sentence. A passage of one sentence keeps it.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from cort.formats.raw import EMPTY
from cort.sources.documents import Document
from cort.sources.passages import Passage, divide_apart, first_sentence

Origin = Literal["titles", "headings", "sentences"]
#: what to do if a collection has none
REMEDIES: dict[Origin, str] = {
    "titles": "generate queries from sentences",
    "headings": "generate queries from titles or sentences",
    "sentences": "make passages longer",
}


class Headed(NamedTuple):
    """A passage as it is indexed, and the queries above it."""

    doc_id: str
    text: str
    queries: tuple[str, ...]


def headed_passages(
    document: Document, origin: Origin | None, words: int | None, overlap: int, headings: bool
) -> Iterator[Headed]:
    """Yield the passages of a document, which is one itself without `words`.

    :param origin: what becomes a query; without it, passages are as `divide` makes them, and have no queries.
    """
    headless, cut = origin in ("titles", "headings"), origin == "sentences"
    if words is None:
        passages = iter([_whole(document, headless)])
    else:
        passages = divide_apart(document, words, 0 if cut else overlap, headings and not headless)
    for passage in passages:
        sentence = first_sentence(passage.body) if cut else ""
        rest = passage.body[len(sentence) :].strip()
        above = {"titles": (passage.title,), "headings": passage.headings, "sentences": (sentence if rest else "",)}
        indexed = passage._replace(body=rest or passage.body).text
        yield Headed(*indexed, tuple(filter(None, above.get(str(origin), ()))))


def _whole(document: Document, headless: bool) -> Passage:
    body = document._replace(title="").text.strip()
    title = document.title if body else ""
    return Passage(document.doc_id, title, (), "" if headless else title, body or document.title or EMPTY)
