"""Documents and topics in the layouts of TREC (tags) and SMART (``.I``, ``.T``, ``.W``), told by how a file begins.

TREC's SGML leaves tags open, and its files may be older than UTF-8.
"""

import html
import re
from collections import Counter
from collections.abc import Container, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from cort.formats.lines import Rows, head_of, iter_text

BEGINS = re.compile(r"\s*(?:<[?!]|<(?:top|topics?|doc|root|xml|queries|query|parameters|\w*track\w*)\b|\.I\s+\S)", re.I)
SMART_FIELD = re.compile(r"\.I\s+(?P<id>\S.*)|\.(?P<name>[A-Z])")
COMMENT = re.compile(r"<!--.*?-->|<\?.*?\?>|<!DOCTYPE[^>]*>", re.DOTALL | re.I)
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)((?:\s[^<>]*)?)/?>")
NUMBER = re.compile(r"""\b(?:docno|docid|number|id|qid)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^"'\s>]+))""", re.I)
#: what a topic may be; some are written as documents
TOPICS = ("top", "topic", "query", "doc")
#: tags of documents: titles, and bodies outside of which are dates, bylines and the like
TITLES = ("title", "headline", "hl", "head", "ttl", "ti")
BODIES = ("text", "leadpara", "lp", "summary", "abstract", "body")
IDS = ("docno", "docid")
OUTSIDE = {*IDS, *TITLES, "dochdr"}
KNOWN = OUTSIDE | {*BODIES}


class Marked(NamedTuple):
    """A document or topic: its row, and the texts in order, each with the name of its tag in lower case."""

    row: int
    attributes: str
    parts: list[tuple[str, str]]

    @property
    def id(self) -> str:
        """The id among the attributes, or nothing."""
        return next((one[1] or one[2] or one[3] for one in NUMBER.finditer(self.attributes)), "")

    def first(self, *names: str) -> str:
        """Return the first text with one of these names, or nothing."""
        return next((text for name, text in self.parts if name in names and text), "")

    def all(self, *names: str, label: re.Pattern[str] | None = None) -> str:
        """Return the texts with these names, or all if there are no names, without a label that one begins with."""
        texts = (text for name, text in self.parts if name in names or not names)
        return " ".join(filter(None, (label.sub("", text) if label else text for text in texts)))


def is_marked(path: str | Path) -> bool:
    """Whether a file begins like one of these layouts."""
    return BEGINS.match(_beginning(path)) is not None


def is_smart(path: str | Path) -> bool:
    """Whether a file that begins like one of these has the layout of SMART."""
    return _beginning(path).lstrip().startswith(".")


def _beginning(path: str | Path) -> str:
    return head_of(path).decode("utf-8", "replace")


def iter_documents(path: str | Path, doubts: Counter[str] | None) -> Rows[tuple[str, str, str]]:
    """Stream (row, (doc_id, title, text)) of TREC or SMART.

    :param doubts: gets the number of rows that were read with doubts, by reason.
    """
    if is_smart(path):
        yield from ((one.row, (one.attributes, one.all("t"), one.all("w"))) for one in iter_smart(path, doubts))
        return
    for one in _elements(path, "doc", KNOWN, doubts):
        text = one.all(*BODIES) or one.all(*{name for name, _ in one.parts} - OUTSIDE)
        yield one.row, (one.first(*IDS) or one.id, one.all(*TITLES), text)


def iter_smart(path: str | Path, doubts: Counter[str] | None) -> Iterator[Marked]:
    """Stream records; their `attributes` are what stands behind ``.I``, and the names are letters."""
    record, name, lines = Marked(0, "", []), "", list[str]()
    for row, line in chain(iter_text(path, doubts), [(0, ".I end")]):
        field = SMART_FIELD.fullmatch(line.rstrip())
        if not field:
            lines.append(line)
            continue
        record.parts.append((name, " ".join(" ".join(lines).split())))
        name, lines = (field["name"] or "").lower(), []
        if field["id"]:
            yield from (record,) if record.row else ()
            record = Marked(row, field["id"], [])


def iter_topics(path: str | Path, doubts: Counter[str] | None) -> Iterator[Marked]:
    """Stream the topics of TREC's SGML or XML, one of `TOPICS` with anything inside."""
    head = _beginning(path)
    name = next((name for name in TOPICS if re.search(rf"<{name}[\s>]", head, re.I)), "top")
    return _elements(path, name, (), doubts)


def _elements(path: str | Path, name: str, known: Container[str], doubts: Counter[str] | None) -> Iterator[Marked]:
    """Stream elements; one that is not closed ends at the next."""
    opening = re.compile(rf"(?=<{name}[\s>])", re.I)
    row, lines = 0, list[str]()
    for number, line in chain(iter_text(path, doubts), [(0, f"<{name}>")]):
        before, *pieces = opening.split(f" {COMMENT.sub(' ', line)}") if "<" in line else (line,)
        lines.append(before)
        for piece in pieces:
            if row:
                yield _parse(row, "\n".join(lines), name, known)
            row, lines = number, [piece]


def _parse(row: int, text: str, outer: str, known: Container[str]) -> Marked:
    """Divide an element at its tags; a text has the name of the tag around it, or of the first one that is known."""
    text = CDATA.sub(lambda match: html.escape(match[1], quote=False), text)
    parts: list[tuple[str, str]] = []
    inside, attributes, position = [""], "", 0
    for tag in [*TAG.finditer(text), None]:
        name = next((one for one in inside if one in known), inside[1] if known and inside[1:] else inside[-1])
        piece = text[position : tag.start() if tag else len(text)]
        parts.append((name, " ".join(html.unescape(piece).split())))
        if not tag:
            break
        position, closing, opened = tag.end(), tag[1], tag[2].lower().rpartition("-")[2]
        if closing and opened == outer:
            break
        if closing:
            inside = inside[: inside.index(opened)] if opened in inside else inside
        elif opened == outer:
            attributes = tag[3]
        else:
            inside.append(opened)
    return Marked(row, attributes, parts)
