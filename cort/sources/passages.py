"""Division of documents into passages of a few sentences each.

- A passage has at most `words` words and ends where a sentence ends. Only a sentence of more than `words` words is cut,
  between words.
- A passage begins with the last whole sentences of the one before in its section: as many as have `overlap` words or
  fewer and leave room for the next sentence.
- A passage lies in one section, with one exception: a section of less than a third of `words` is joined with the next
  one if both fit into a passage, and these with the one after that, as long as the last one is that short.
- With `headings`, each passage begins with the title and the headings of its (first) section. These words are not
  counted. Those beyond `HEADING_WORDS` are text of the first passage of the section instead. Where a section is joined
  with the one before, the headings that differ are between the two, and count. Without `headings`, neither title nor
  headings are in passages.
- Headings without text below them are left out. A document that has nothing else has its title and headings as text.

Words are separated by whitespace; a character of a script that is written without spaces, such as Chinese, counts as
a word. sentencex finds the sentences: it divided 38 of 40 hard English cases ("the U.S. Government", "p. 55") correctly
and a regular expression 30, at 25 MB per second.
"""

import os.path
import sys
from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import NamedTuple

import regex
import sentencex

from cort.sources.documents import Document, Section, one_line

HEADING_WORDS = 40
# Characters in which sentences are looked for at once: the time can grow with the square of this number.
WINDOW = 1_000

# A character that is a word, with the marks and the punctuation that belong to it; or other characters.
_SCRIPTS = "Han Hiragana Katakana Bopomofo Thai Lao Khmer Myanmar"
_UNSPACED = regex.compile("(?V1)[[" + "".join(rf"\p{{{script}}}" for script in _SCRIPTS.split()) + r"]--\p{M}]")
_WORD = regex.compile(rf"{_UNSPACED.pattern}\p{{M}}*[\p{{Pe}}\p{{Pf}}\p{{Po}}]*|(?:(?!{_UNSPACED.pattern[5:]})[^ ])+")


class Sentence(NamedTuple):
    """A sentence, or a piece of one that is too long; `space` separates it from the one before, or is empty."""

    text: str
    words: int
    space: str
    is_whole: bool


class Passage(NamedTuple):
    """A passage with the title of its document and the headings above it; what of them it begins with is `prefix`."""

    doc_id: str
    title: str
    headings: tuple[str, ...]
    prefix: str
    body: str

    @property
    def text(self) -> str:
        """The passage as it is indexed."""
        return f"{self.prefix} {self.body}".strip()


class Part(NamedTuple):
    """The sentences of one or more sections; no passage leaves it."""

    headings: tuple[str, ...]
    sentences: list[Sentence]
    words: int


def divide(document: Document, words: int, overlap: int, headings: bool) -> Iterator[Passage]:
    """Yield the passages of a document, ``doc_id#0``, ``doc_id#1`` and so on; they depend on nothing else."""
    if not any(paragraph.strip() for section in document.sections for paragraph in section.paragraphs):
        document = Document(document.doc_id, "", (Section((), (document.text,)),))
    numbers = count()
    for part in _joined(_parts(document, words), words, headings):
        title = one_line(" ".join((document.title, *part.headings))) if headings else ""
        prefix = next((first.text for first in _pieces(title, HEADING_WORDS)), "")
        sentences = [*_pieces(title[len(prefix) :].strip(), words), *part.sentences]
        for start, end in _windows(sentences, words, overlap):
            body = "".join(sentence.space + sentence.text for sentence in sentences[start:end]).strip()
            yield Passage(f"{document.doc_id}#{next(numbers)}", document.title, part.headings, prefix, body)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text without line breaks."""
    return next((sentence.text for sentence in _sentences(text, sys.maxsize)), "")


def count_words(text: str) -> int:
    """Count the words of a text without line breaks."""
    return _count(_pieces(text, sys.maxsize))


def _parts(document: Document, words: int) -> Iterator[Part]:
    """Yield the sections with text."""
    for section in document.sections:
        sentences = [one for paragraph in section.paragraphs for one in _sentences(one_line(paragraph), words)]
        if sentences:
            yield Part(section.headings, sentences, _count(sentences))


def _joined(parts: Iterable[Part], words: int, headings: bool) -> Iterator[Part]:
    """Join short sections with those after them."""
    group: Part | None = None
    last = Part((), [], 0)
    for part in parts:
        shared = len(os.path.commonprefix([last.headings, part.headings]))  # noqa: RUF071  # of tuples
        inline = list(_pieces(one_line(" ".join(part.headings[shared:])), words)) if headings else []
        if group is not None:
            total = group.words + _count(inline) + part.words
            if 3 * last.words < words and total <= words:
                group = Part(group.headings, [*group.sentences, *inline, *part.sentences], total)
            else:
                yield group
                group = part
        last, group = part, group or part
    if group is not None:
        yield group


def _windows(sentences: list[Sentence], words: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Yield where passages begin and end: each is as long as possible, and overlaps with the one before."""
    start = total = 0
    for end, sentence in enumerate(sentences):
        if total + sentence.words > words:
            yield start, end
            start, total, room = end, 0, min(overlap, words - sentence.words)
            while (before := sentences[start - 1]).is_whole and total + before.words <= room:
                start, total = start - 1, total + before.words
        total += sentence.words
    yield start, len(sentences)


def _sentences(paragraph: str, words: int) -> Iterator[Sentence]:
    """Yield the sentences of a paragraph, or pieces of at most `words` words."""
    space, begun, position = " ", "", 0
    while position < len(paragraph):
        is_last = position + WINDOW >= len(paragraph)
        found = sentencex.segment("en", paragraph[position : position + WINDOW])
        # The last one may go on after the window.
        whole = found if is_last else found[:-1]
        for text in whole:
            position += len(text)
            begun += text
            # "module.Class" is no end of a sentence.
            if text.endswith(" ") or _UNSPACED.match(paragraph, position):
                yield from _pieces(begun.rstrip(), words, space)
                space, begun = begun[len(begun.rstrip()) :], ""
        if not whole:
            position += len(found[0])
            begun += found[0]
    yield from _pieces(begun.rstrip(), words, space)


def _pieces(text: str, words: int, space: str = " ") -> Iterator[Sentence]:
    """Yield a text without line breaks as pieces of at most `words` words; nothing if it is empty."""
    if text and (text.isascii() or not _UNSPACED.search(text)) and (number := text.count(" ") + 1) <= words:
        yield Sentence(text, number, space, is_whole=True)
        return
    spans = (match.span() for match in _WORD.finditer(text))
    while piece := list(islice(spans, words)):
        start, end = piece[0][0], piece[-1][1]
        gap = space if start == 0 else " " * (text[start - 1] == " ")
        yield Sentence(text[start:end], len(piece), gap, is_whole=end - start == len(text))


def _count(sentences: Iterable[Sentence]) -> int:
    return sum(sentence.words for sentence in sentences)
