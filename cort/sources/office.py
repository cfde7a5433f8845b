"""Files of Word, PowerPoint and Excel, and e-books, by way of Markdown (markitdown, the extra `office`)."""

import importlib.util
import io
import re
from collections.abc import Callable
from functools import partial

from cort.sources import markdown
from cort.sources.documents import Content

MISSING = "office files without markitdown"
REMEDY = "`pip install 'markitdown[docx,pptx,xlsx]'`, then run again"

# What pandas calls a cell that is empty, and a column without a name.
_EMPTY = re.compile(r"(?<=\|) (?:NaN|Unnamed: \d+) (?=\|)")
# The list of authors, publisher and so on, above the first chapter.
_METADATA = re.compile(r"(?:\*\*\w+:\*\* .*\n)+\n")


def is_installed() -> bool:
    """Whether the extra is there; nothing is imported."""
    return importlib.util.find_spec("markitdown") is not None


def _read(converter: str, data: bytes) -> Content:
    from markitdown import StreamInfo, converters

    found = getattr(converters, converter)().convert(io.BytesIO(data), StreamInfo())
    text = _EMPTY.sub(" ", found.markdown) if converter == "XlsxConverter" else found.markdown
    text = _METADATA.sub("", text, count=1) if converter == "EpubConverter" else text
    return Content(found.title or "", markdown.read(text).blocks)


READERS: dict[str, Callable[[bytes], Content]] = {
    f".{kind}": partial(_read, f"{kind.capitalize()}Converter") for kind in ("docx", "epub", "pptx", "xlsx")
}
