"""Files of PowerPoint: titles, paragraphs, rows of tables, what charts and diagrams say, and notes of each slide."""

import io
from collections.abc import Iterator
from typing import Any

from cort.sources.documents import Block, Content, xml_of

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_SHAPE = "{http://schemas.openxmlformats.org/presentationml/2006/main}sp"
# Parts beside a slide that have its words.
_DRAWN = ("/chart", "/diagramData")
# Their texts are numbers and dates that each slide has.
_REPEATED = {"sldNum", "dt", "ftr", "hdr"}


def read(data: bytes) -> Content:
    """Return the blocks of all slides, hidden ones too; a slide begins with its title, which is a heading."""
    import pptx

    slides = pptx.Presentation(io.BytesIO(data)).slides
    return Content("", [block for slide in slides for block in _blocks(slide)])


def _blocks(slide: Any) -> Iterator[Block]:
    title = slide.shapes.title
    heading = None if title is None else title._element
    if heading is not None:
        yield 1, " ".join(text for text in paragraphs(heading) if text)
    yield from ((0, text) for text in paragraphs(slide.shapes._spTree, heading))
    for relation in slide.part.rels.values():
        if relation.reltype.endswith(_DRAWN):
            yield from ((0, text) for text in drawn(relation.target_part.blob))
    if slide.has_notes_slide:
        yield from ((0, text) for text in paragraphs(slide.notes_slide.shapes._spTree))


def paragraphs(parent: Any, left_out: Any = None) -> Iterator[str]:
    """Yield the paragraphs of a drawing, and the rows of its tables."""
    for child in parent:
        if child is left_out or child.tag == _FALLBACK or (child.tag == _SHAPE and _kind_of(child) in _REPEATED):
            continue
        if child.tag == _A + "p":
            yield _text(child)
        elif child.tag == _A + "tr":
            yield " ".join(filter(None, paragraphs(child)))
        else:
            yield from paragraphs(child)


def drawn(data: bytes) -> list[str]:
    """Return the words of a chart or a diagram, once each: titles, names of series and categories."""
    root = xml_of(data)
    names = [value.text for cache in root.iter(_C + "strCache") for value in cache.iter(_C + "v") if value.text]
    return [*dict.fromkeys([*filter(None, paragraphs(root)), *names])]


def _text(paragraph: Any) -> str:
    pieces = (
        (one.text or "") if one.tag == _A + "t" else " " for one in paragraph.iter(_A + "t", _A + "br", _A + "tab")
    )
    return "".join(pieces)


def _kind_of(shape: Any) -> str | None:
    place = next(shape.iter("{http://schemas.openxmlformats.org/presentationml/2006/main}ph"), None)
    return None if place is None else place.get("type")
