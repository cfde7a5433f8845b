"""Notebooks of Jupyter: cells of Markdown, text and code, with the text that the code printed."""

import json
import re
from collections.abc import Iterator
from typing import Any

from cort.sources import html, markdown
from cort.sources.documents import Block, Content, Left, Unread

# Of what a cell shows, the first of these is read; figures and widgets have no text of their own.
_SHOWN = ("text/markdown", "text/html", "text/latex", "text/plain")
# Colours of a terminal.
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def read(text: str) -> Content:
    """Return the blocks of all cells, also of notebooks before version 4, whose cells are in worksheets."""
    left = list[Left]()
    try:
        notebook = json.loads(text)
        cells = [cell for sheet in notebook.get("worksheets", [notebook]) for cell in sheet["cells"]]
        return Content("", [block for cell in cells for block in _blocks(cell, left)], tuple(left))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unread("broken notebook", "no cells; save it again in Jupyter") from error


def _blocks(cell: dict[str, Any], left: list[Left]) -> Iterator[Block]:
    text = _joined(cell["input"] if "input" in cell else cell["source"])
    if cell["cell_type"] == "markdown":
        content = markdown.read(text)
        left += content.left
        yield from content.blocks
    else:
        yield cell.get("level", 0), text
    for output in cell.get("outputs", ()):
        yield from _shown(output, left)


def _shown(output: dict[str, Any], left: list[Left]) -> Iterator[Block]:
    """Yield what a cell printed, showed or failed with."""
    if "traceback" in output:
        left.append(("tracebacks", _COLOUR.sub("", "\n".join(output["traceback"]))))
        yield 0, f"{output.get('ename', '')}: {output.get('evalue', '')}"
    found = output.get("data", output)
    if kind := next((kind for kind in _SHOWN if kind in found), ""):
        text = _joined(found[kind])
        if kind == "text/html":
            blocks, unseen = html.blocks_of(text)
            left += unseen
            yield from ((block.level, block.text) for block in blocks)
        elif not any(other.startswith("image/") for other in found):
            yield 0, text
    elif "text" in output:
        yield 0, _COLOUR.sub("", _joined(output["text"]))


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
