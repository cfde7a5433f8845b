"""Text of PDF files."""

import io
import logging
import re

from cort.sources.documents import Content, Unread, paragraphs_of
from cort.sources.hyphens import marked

_HYPHENS = ("-", "\u2010", "\u00ad")
# The name of a file is no title.
_FILE_NAME = re.compile(r"\.\w{2,4}$|^untitled", re.IGNORECASE)


def read(data: bytes) -> Content:
    """Return the title and the paragraphs of all pages; with a password, or without text, raise `Unread`.

    Words that a line or a page divides are as `cort.sources.hyphens.marked` leaves them.
    """
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = pypdf.PdfReader(io.BytesIO(data))
    # The password of many is empty.
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unread("encrypted PDF", "save it without a password")
    pages = [page.extract_text().strip() for page in reader.pages]
    if not any(pages):
        raise Unread("PDF without text", "recognise the text of its pictures (OCR)")
    title = (reader.metadata and reader.metadata.title) or ""
    # A page ends a paragraph, but no word.
    text = "".join(page + ("\n" if page.endswith(_HYPHENS) else "\n\n") for page in pages if page)
    blocks = [(0, paragraph) for paragraph in paragraphs_of(marked(text))]
    return Content("" if _FILE_NAME.search(title) else title, blocks)
