"""What every source of documents yields."""

from __future__ import annotations

from typing import NamedTuple


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
        inner = (part for section in self.sections for part in (*section.headings[-1:], *section.paragraphs))
        return " ".join(part for part in (self.title, *inner) if part)
