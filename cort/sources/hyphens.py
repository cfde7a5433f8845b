"""Words that a line of a PDF file divides.

"exam-ple" at the end of a line is "example", "well-known" is not "wellknown", and the file does not say which. A hyphen
goes only if the collection has the word without it somewhere; otherwise it stays.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator

from cort.sources.documents import Document, Section

#: stands for a hyphen that is perhaps none; no text has this character
OPEN = "\ufdd0"
_WORD = re.compile(r"[^\W\d_]+")
_BEFORE, _AFTER = re.compile(r"[^\W\d_]+\Z"), re.compile(r"[^\W\d_]+")
_HARD = re.compile(r"(?<=\w)[-\u2010][ \t]*\n[ \t]*(?=(\w+))")
# "pre- and post-war": the hyphen stands for a word.
_SUSPENDED = frozenset(["and", "or", "to", "und", "oder", "bis", "et", "ou", "y", "o", "e", "en", "of", "och", "og"])


def marked(text: str) -> str:
    """Join what hyphens at the ends of lines divide; `OPEN` stands for one between a letter and a small letter."""

    def mark(match: re.Match[str]) -> str:
        before, after = text[match.start() - 1], match[1]
        if after in _SUSPENDED:
            return "- "
        return OPEN if before.isalpha() and after[0].islower() else "-"

    return _HARD.sub(mark, text)


def settled(documents: Iterable[Document], has_open: bool) -> Iterator[Document]:
    """Yield documents with every `OPEN` hyphen dropped or kept.

    From the first one on, documents wait in a temporary file until all words are known.

    :param has_open: whether any document may have one; if not, nothing is done.
    """
    if not has_open:
        yield from documents
        return
    known = set[str]()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as waiting:
        waits = False
        for document in documents:
            known.update(_words(document))
            waits = waits or OPEN in document.text
            if waits:
                waiting.write(json.dumps(document) + "\n")
            else:
                yield document
        waiting.seek(0)
        for line in waiting:
            yield _settled(line, known)


def _words(document: Document) -> Iterator[str]:
    # The parts of a word that is divided are no words.
    for piece in re.split(rf"\w*(?:{OPEN}\w*)+", document.text):
        yield from _WORD.findall(piece.casefold())


def _settled(line: str, known: set[str]) -> Document:
    def settle(text: str) -> str:
        if OPEN not in text:
            return text
        first, *others = text.split(OPEN)
        for other in others:
            before, after = _BEFORE.search(first), _AFTER.match(other)
            word = f"{before[0]}{after[0]}" if before and after else ""
            first += other if word.casefold() in known else f"-{other}"
        return first

    doc_id, title, sections = json.loads(line)
    parts = (Section(tuple(map(settle, headings)), tuple(map(settle, texts))) for headings, texts in sections)
    return Document(doc_id, settle(title), tuple(parts))
