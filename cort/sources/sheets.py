"""Files of Excel: the rows of all sheets with their cells as they are shown, then notes and what is drawn.

Hidden sheets, rows and columns are read, too. A formula has the value that was saved with it.
"""

import io
import re
import zipfile
from collections.abc import Iterator

from cort.sources.cells import shown
from cort.sources.documents import Block, Content, Unread, xml_of
from cort.sources.slides import drawn

_S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_DRAWN = re.compile(r"xl/(?:drawings/drawing|charts/chart|diagrams/data)\d*\.xml")
_NOTES = re.compile(r"xl/(?:comments\d*|comments/comment\d*)\.xml")
_SHEET = re.compile(r"xl/worksheets/[^/]+\.xml")
# The end of a formula without a value, as programs write that do not compute.
_UNCOMPUTED = re.compile(rb"(?:</f>|<f\b[^>]*/>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>")
_PIECE, _LONGEST = 1 << 20, 64


def read(data: bytes) -> Content:
    """Return the name of each sheet as a heading, and its rows."""
    import openpyxl

    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    blocks: list[Block] = []
    for sheet in book.worksheets:
        # Some programs write a wrong one.
        sheet.reset_dimensions()
        blocks.append((2, sheet.title))
        for row in sheet.iter_rows():
            cells = (shown(cell.value, cell.number_format) for cell in row if cell.value is not None)
            blocks.append((0, " ".join(filter(None, cells))))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = sorted(archive.namelist())
        blocks += [(0, text) for name in names if _DRAWN.fullmatch(name) for text in drawn(archive.read(name))]
        blocks += [(0, text) for name in names if _NOTES.fullmatch(name) for text in _notes(archive.read(name))]
        missing = sum(_uncomputed(archive, name) for name in names if _SHEET.fullmatch(name))
    doubts = [Unread("formulas without values", f"{missing:,}; open and save it in Excel or LibreOffice", missing)]
    return Content("", blocks, doubts=tuple(doubts) if missing else ())


def _notes(data: bytes) -> Iterator[str]:
    for note in xml_of(data).iter(_S + "comment"):
        yield "".join(text.text or "" for text in note.iter(_S + "t"))


def _uncomputed(archive: zipfile.ZipFile, name: str) -> int:
    """Count formulas without values, with memory for a piece of the sheet."""
    count, rest = 0, b""
    with archive.open(name) as file:
        while piece := file.read(_PIECE):
            text, end = rest + piece, 0
            for match in _UNCOMPUTED.finditer(text):
                count, end = count + 1, match.end()
            rest = text[max(end, len(text) - _LONGEST) :]
    return count
