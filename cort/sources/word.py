"""Files of Word: paragraphs with the levels of headings, rows of tables, text boxes, notes, headers and footers.

What a tracked change inserts is text, and hidden text is, too. What it removes, and comments, are counted.
"""

import io
from collections.abc import Iterator
from typing import Any

from cort.sources.documents import Block, Content

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"
# An older copy of what stands beside it; what was removed or moved away; properties; codes of fields; sounds of ruby.
_LEFT_OUT = {"{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"}
_LEFT_OUT |= {_W + name for name in ("del", "moveFrom", "pPr", "rPr", "instrText", "delText", "delInstrText", "sdtPr")}
_CHARACTERS = {_W + name: " " for name in ("tab", "ptab", "br", "cr")} | {_W + "noBreakHyphen": "-"}
# What a font of symbols has in place of characters is in this area.
_PRIVATE = range(0xE000, 0xF900)
_NOTES = {_W + "footnoteReference": "footnotes", _W + "endnoteReference": "endnotes"}
_DEEPEST = 9


def read(data: bytes) -> Content:
    """Return the title, if a paragraph is formatted as one, and all blocks; headers and footers are at the end."""
    import docx

    part = docx.Document(io.BytesIO(data)).part
    reader = _Reader(_levels(part), _notes(part))
    blocks = [*reader.blocks(part.element.body)]
    ends = [other for kind in ("header", "footer") for other in _related(part, kind)]
    # Each section has its own, which often says the same.
    blocks += dict.fromkeys(block for other in ends for block in reader.blocks(_root_of(other)))
    comments = (text for other in _related(part, "comments") for _, text in reader.blocks(_root_of(other)))
    left = [("comments", text) for text in comments]
    left += [("deleted text", one.text or "") for one in part.element.body.iter(_W + "delText")]
    return Content(reader.title, blocks, tuple(left))


class _Reader:
    """Reads the blocks of a part; `title` is the first paragraph that is formatted as one."""

    def __init__(self, levels: dict[str, int], notes: dict[tuple[str, str], Any]) -> None:
        self._levels, self._notes, self.title = levels, notes, ""

    def blocks(self, parent: Any) -> Iterator[Block]:
        """Yield paragraphs and rows of tables, each followed by its boxes and notes."""
        for child in parent:
            if child.tag == _W + "p":
                yield from self._paragraph(child)
            elif child.tag == _W + "tr":
                inner = [text for cell in child for _, text in self.blocks(cell)]
                yield 0, " ".join(inner)
            elif child.tag not in _LEFT_OUT and isinstance(child.tag, str):
                yield from self.blocks(child)

    def _paragraph(self, paragraph: Any) -> Iterator[Block]:
        texts, below = list[str](), list[Block]()
        self._collect(paragraph, texts, below)
        text, level = "".join(texts), self._level_of(paragraph)
        if level == 0 and not self.title and text.strip():
            self.title = text
        else:
            yield (max(level, 0), text)
        yield from below

    def _collect(self, parent: Any, texts: list[str], below: list[Block]) -> None:
        for child in parent:
            tag = child.tag
            if tag in _LEFT_OUT or not isinstance(tag, str):
                continue
            if tag in (_W + "t", _MATH):
                texts.append(child.text or "")
            elif tag in _CHARACTERS:
                texts.append(_CHARACTERS[tag])
            elif tag == _W + "sym":
                code = int(child.get(_W + "char", "0"), 16)
                texts.append("" if code in _PRIVATE else chr(code))
            elif tag == _W + "txbxContent":
                below.extend(self.blocks(child))
            elif tag in _NOTES:
                below.extend(self.blocks(self._notes.get((_NOTES[tag], child.get(_W + "id")), ())))
            else:
                self._collect(child, texts, below)

    def _level_of(self, paragraph: Any) -> int:
        """Return the level of a heading, 0 for a title, -1 for other text."""
        own = paragraph.find(f"{_W}pPr/{_W}outlineLvl")
        style = paragraph.find(f"{_W}pPr/{_W}pStyle")
        if own is not None and (level := int(own.get(_W + "val"))) < _DEEPEST:
            return level + 1
        return self._levels.get(style.get(_W + "val"), -1) if style is not None else -1


def _levels(part: Any) -> dict[str, int]:
    """Return the levels of styles, which may be those of the styles they are based on; 0 is a title."""
    styles = {one.get(_W + "styleId"): one for one in part.styles.element.iter(_W + "style")}
    levels: dict[str, int] = {}
    for key, style in styles.items():
        seen = set[str]()
        while style is not None and style.get(_W + "styleId") not in seen:
            seen.add(style.get(_W + "styleId"))
            name, outline = _value(style, "name").lower(), _value(style, f"pPr/{_W}outlineLvl")
            if name == "title":
                levels[key] = 0
                break
            if name.startswith("heading ") and name[8:].isdigit():
                levels[key] = int(name[8:])
                break
            if outline.isdigit() and int(outline) < _DEEPEST:
                levels[key] = int(outline) + 1
                break
            style = styles.get(_value(style, "basedOn"))
    return levels


def _value(element: Any, path: str) -> str:
    found = element.find(_W + path)
    return "" if found is None else str(found.get(_W + "val", ""))


def _notes(part: Any) -> dict[tuple[str, str], Any]:
    """Return notes by kind and id."""
    found = (
        (kind, note) for kind in ("footnotes", "endnotes") for other in _related(part, kind) for note in _root_of(other)
    )
    return {(kind, note.get(_W + "id")): note for kind, note in found if isinstance(note.tag, str)}


def _related(part: Any, kind: str) -> list[Any]:
    return [relation.target_part for relation in part.rels.values() if relation.reltype.endswith(f"/{kind}")]


def _root_of(part: Any) -> Any:
    from docx.oxml import parse_xml

    return parse_xml(part.blob)
