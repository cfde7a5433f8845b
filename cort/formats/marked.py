"""Documents and topics in the layouts of TREC (tags) and SMART (``.I``, ``.T``, ``.W``), told by how a file begins.

TREC's SGML leaves tags open, and its files may be older than UTF-8.
"""

import html
import itertools
import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

from cort.formats.lines import Rows, head_of, iter_text

BEGINS = re.compile(r"\s*(?:<[?!]|<(?:top|topics?|doc|root|xml|queries|query|parameters|\w*track\w*)\b|\.I\s+\S)", re.I)
IS_SMART = re.compile(r"\s*\.I\s", re.I)
SMART_FIELD = re.compile(r"\.I\s+(?P<id>\S.*)|\.(?P<name>[A-Z])")
COMMENT = re.compile(r"<!--.*?-->|<\?.*?\?>|<!DOCTYPE[^>]*>", re.DOTALL | re.I)
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)((?:\s[^<>]*)?)/?>")
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

    def first(self, *names: str) -> str:
        """Return the first text with one of these names, or nothing."""
        return next((text for name, text in self.parts if name in names and text), "")

    def all(self, *names: str) -> str:
        """Return the texts with these names, or all if there are no names."""
        return " ".join(text for name, text in self.parts if text and (name in names or not names))


def is_marked(path: str | Path) -> bool:
    """Whether a file begins like one of these layouts."""
    return BEGINS.match(head_of(path).decode("utf-8", "replace")) is not None


def is_smart(path: str | Path) -> bool:
    """Whether a file has the layout of SMART."""
    return IS_SMART.match(head_of(path).decode("utf-8", "replace")) is not None


def iter_documents(path: str | Path) -> Rows[tuple[str, str, str]]:
    """Stream (row, (doc_id, title, text)) of TREC or SMART."""
    if is_smart(path):
        yield from ((one.row, (one.attributes, one.all("t"), one.all("w"))) for one in iter_smart(path))
        return
    for row, lines in _elements(path, "doc"):
        one = _parse(row, "\n".join(lines), "doc", KNOWN)
        rest = [part for part in one.parts if part[0] not in OUTSIDE]
        text = one.all(*BODIES) or " ".join(filter(None, (text for _, text in rest)))
        yield row, (one.first(*IDS), one.all(*TITLES), text)


def iter_smart(path: str | Path) -> Iterator[Marked]:
    """Stream records; their `attributes` are what stands behind ``.I``, and the names are letters."""
    record: Marked | None = None
    name, lines = "", list[str]()
    for row, line in iter_text(path):
        field = SMART_FIELD.fullmatch(line.rstrip())
        if not field:
            lines.append(line)
            continue
        if record:
            record.parts.append((name, " ".join(" ".join(lines).split())))
        if field["id"]:
            yield from (record,) if record else ()
            record = Marked(row, field["id"], [])
        name, lines = (field["name"] or "").lower(), []
    if record:
        record.parts.append((name, " ".join(" ".join(lines).split())))
        yield record


def iter_topics(path: str | Path) -> Iterator[Marked]:
    """Stream the topics of TREC's SGML or XML; a topic is a ``top``, ``topic`` or ``query`` with anything inside."""
    lines = list(iter_text(path))
    text = COMMENT.sub(lambda match: "\n" * match[0].count("\n"), "\n".join(line for _, line in lines))
    name = next((name for name in ("top", "topic", "query") if re.search(rf"<{name}[\s>]", text, re.I)), "top")
    starts = [match.start() for match in re.finditer(rf"<{name}[\s>]", text, re.I)]
    for start, end in itertools.pairwise([*starts, len(text)]):
        yield _parse(1 + text.count("\n", 0, start), text[start:end], name)


def _elements(path: str | Path, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of each element, with the row of the first; one that is not closed ends at the next."""
    opening = re.compile(rf"(?=<{name}[\s>])", re.I)
    begun: tuple[int, list[str]] = 0, []
    for row, line in iter_text(path):
        before, *pieces = opening.split(f" {line}") if "<" in line else (line,)
        begun[1].append(before)
        for piece in pieces:
            if begun[0]:
                yield begun
            begun = row, [piece]
    if begun[0]:
        yield begun


def _parse(row: int, text: str, outer: str, known: Container[str] = ()) -> Marked:
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
