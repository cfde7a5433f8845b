"""What every source of documents yields."""

from __future__ import annotations

import re
from itertools import chain, groupby, takewhile
from typing import NamedTuple

from lxml.etree import XMLParser, _Element, fromstring

from cort.formats.fields import writable_id
from cort.formats.visible import visible

#: what a reader yields: the level of a heading (from 1) with its text, or 0 with the text of a paragraph
Block = tuple[int, str]

# Words of a heading; a passage begins with at most forty of title and headings.
LONGEST_HEADING = 25
PERMALINKS = " ¶\u200b\uf0c1"
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
# A soft hyphen at a line's end, which divides a word for certain.
_SOFT = re.compile(r"\u00ad[ \t]*\n[ \t]*(?=\w)")


#: what a reader leaves out: a kind, by which its words are counted, and a text
Left = tuple[str, str]


class Unread(Exception):
    """Why a file, or a row of it, gives no document: a reason to count by, and details.

    :ivar count: how many files or rows this is about.
    """

    def __init__(self, reason: str, detail: str | None, count: int = 1) -> None:
        super().__init__(reason, detail)
        self.count = count


class Content(NamedTuple):
    """What a reader finds in a file, what it leaves out, and what it could not read; the title may be empty."""

    title: str
    blocks: list[Block]
    left: tuple[Left, ...] = ()
    doubts: tuple[Unread, ...] = ()


class Section(NamedTuple):
    """Text under a heading.

    :ivar headings: from the outermost to the innermost, without the title of the document.
    :ivar paragraphs: texts without line breaks inside.
    """

    headings: tuple[str, ...]
    paragraphs: tuple[str, ...]


class Document(NamedTuple):
    """A document before it is divided into passages; `title` may be empty."""

    doc_id: str
    title: str
    sections: tuple[Section, ...]

    @property
    def text(self) -> str:
        """The whole document as a single passage: title, headings and paragraphs, separated by spaces."""
        inner, above = list[str](), tuple[str, ...]()
        for section in self.sections:
            # A heading without text of its own stands above the first of those below it.
            same = sum(takewhile(bool, map(str.__eq__, above, section.headings)))
            inner += [*section.headings[min(same, len(section.headings) - 1) :], *section.paragraphs]
            above = section.headings
        return " ".join(part for part in (self.title, *inner) if part)


def plain_document(doc_id: str, title: str, text: str) -> Document:
    """Make a document of one section; title and text may be empty.

    Blank lines separate paragraphs; other line breaks become spaces, and so does NUL; half a character is a "?".

    :raises BadLine: for an invalid id.
    """
    titles, paragraphs = _unbroken(title), _unbroken(text)
    sections = (Section((), paragraphs),) if paragraphs else ()
    return Document(writable_id("doc_id", doc_id), " ".join(titles), sections)


def _unbroken(text: str) -> tuple[str, ...]:
    readable = text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    lines = map(str.strip, readable.splitlines())
    return tuple(" ".join(group) for full, group in groupby(lines, bool) if full)


def xml_of(data: bytes) -> _Element:
    """Parse XML, also what is not quite right; no other files are read."""
    return fromstring(data, XMLParser(resolve_entities=False, recover=True))


def one_line(text: str) -> str:
    """Replace whitespace and NUL characters by single spaces, and halves of characters by question marks."""
    line = " ".join(text.replace("\0", " ").split())
    return line if line.isascii() else line.encode("utf-8", "replace").decode("utf-8")


def paragraphs_of(text: str) -> tuple[str, ...]:
    """Divide a plain text at blank lines, and join words that soft hyphens divide."""
    return tuple(filter(None, map(one_line, _BLANK_LINE.split(_SOFT.sub("", text)))))


def outline(doc_id: str, content: Content) -> Document:
    """Arrange headings and paragraphs as a document; without a title, the first heading of level 1 is the title."""
    # Headings of generated pages end with a link to themselves.
    blocks = ((level, one_line(visible(text))) for level, text in content.blocks)
    lines = [(level, text) for level, line in blocks if (text := line.rstrip(PERMALINKS) if level else line)]
    title = one_line(visible(content.title)) or next((line for level, line in lines if level == 1), "")
    sections: list[tuple[tuple[str, ...], list[str]]] = [((), [])]
    above: list[Block] = []
    for (level, line), (below, _) in zip(lines, chain(lines[1:], [(1, "")]), strict=False):
        if not level:
            sections[-1][1].append(line)
            continue
        above = [*(heading for heading in above if heading[0] < level), (level, line)]
        # No passage begins with a heading that has nothing below it, or is as long as a paragraph.
        if 0 < below <= level or line.count(" ") >= LONGEST_HEADING:
            above.pop()
        headings = tuple(text for _, text in above if text != title)
        sections.append((headings, [] if above[-1:] == [(level, line)] or line == title else [line]))
    if title.count(" ") >= LONGEST_HEADING:
        sections.insert(0, ((), [title]))
    return Document(doc_id, title, tuple(Section(headings, tuple(texts)) for headings, texts in sections if texts))
