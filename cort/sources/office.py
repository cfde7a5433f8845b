"""Files of Word, PowerPoint and Excel (the extra `office`), and e-books: which reader each kind has."""

import importlib.util
from collections.abc import Callable
from functools import partial
from types import ModuleType

from cort.sources import epub, sheets, slides, word
from cort.sources.documents import Content, Unread

MISSING = "office files without their readers"
REMEDY = "`pip install python-docx python-pptx openpyxl`, then run again"
# Files of Office before 2007, and files with a password, which are packed like those.
_OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# The library that reads a kind of files; none for e-books, which are web pages in a zip.
_LIBRARIES = {".docx": "docx", ".docm": "docx", ".pptx": "pptx", ".pptm": "pptx", ".xlsx": "openpyxl"}
_LIBRARIES |= {".xlsm": "openpyxl"}


def is_installed(suffix: str) -> bool:
    """Whether the library that reads a kind of files is there; nothing is imported."""
    library = _LIBRARIES.get(suffix)
    return library is None or importlib.util.find_spec(library) is not None


def _read(reader: ModuleType, data: bytes) -> Content:
    if data.startswith(_OLD):
        raise Unread("office files with a password, or of before 2007", "save it anew, without a password")
    content: Content = reader.read(data)
    return content


READERS: dict[str, Callable[[bytes], Content]] = {
    **dict.fromkeys((".docx", ".docm"), partial(_read, word)),
    **dict.fromkeys((".pptx", ".pptm"), partial(_read, slides)),
    **dict.fromkeys((".xlsx", ".xlsm"), partial(_read, sheets)),
    ".epub": epub.read,
}
