"""Notebooks of Jupyter: cells of Markdown and code, without what the code printed."""

import json
from typing import Any

from cort.sources import markdown
from cort.sources.documents import Block, Content, Unread


def read(text: str) -> Content:
    """Return the blocks of all cells, also of notebooks before version 4, whose cells are in worksheets."""
    try:
        notebook = json.loads(text)
        cells = [cell for sheet in notebook.get("worksheets", [notebook]) for cell in sheet["cells"]]
        return Content("", [block for cell in cells for block in _blocks(cell)])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unread("broken notebook", "no cells; save it again in Jupyter") from error


def _blocks(cell: dict[str, Any]) -> list[Block]:
    source = cell["input"] if "input" in cell else cell["source"]
    text = source if isinstance(source, str) else "".join(source)
    kind = cell["cell_type"]
    return markdown.read(text).blocks if kind == "markdown" else [(cell.get("level", 0), text)] * (kind != "raw")
