"""What every source of documents yields."""

from __future__ import annotations

import re
import unicodedata
from itertools import chain, takewhile
from typing import NamedTuple
from urllib.parse import quote

from cort.formats.fields import is_odd

#: what a reader yields: the level of a heading (from 1) with its text, or 0 with the text of a paragraph
Block = tuple[int, str]

# Words of a heading; a passage begins with at most forty of title and headings.
LONGEST_HEADING = 25
PERMALINKS = " ¶\u200b\uf0c1"
# Soft hyphens, word joiners, byte order marks.
_UNSEEN = re.compile(r"[\u00ad\u2060\ufeff]")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


#: what a reader leaves out: a kind, by which its words are counted, and a text
Left = tuple[str, str]


class Unread(Exception):
    """Why a file, or a row of it, gives no document: a reason to count by, and details."""


class Content(NamedTuple):
    """What a reader finds in a file, and what it leaves out; the title may be empty."""

    title: str
    blocks: list[Block]
    left: tuple[Left, ...] = ()


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


def encoded_id(text: str) -> str:
    """Percent-encode the characters that ids may not have, and "%", so that `urllib.parse.unquote` gives `text`."""
    return "".join(quote(one, safe="", errors="replace") if one in '%"' or is_odd(one) else one for one in text)


def one_line(text: str) -> str:
    """Replace whitespace and NUL characters by single spaces, and halves of characters by question marks."""
    return " ".join(text.replace("\0", " ").split()).encode("utf-8", "replace").decode("utf-8")


def visible(text: str) -> str:
    """Compose letters and their accents, and remove what only says where a word may be broken."""
    return text if text.isascii() else _UNSEEN.sub("", unicodedata.normalize("NFC", text))


def paragraphs_of(text: str) -> tuple[str, ...]:
    """Divide a plain text at blank lines."""
    return tuple(filter(None, map(one_line, _BLANK_LINE.split(text))))


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
