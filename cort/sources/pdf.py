"""Text of PDF files."""

import io
import logging
import re
import unicodedata

from cort.sources.documents import Content, Unread, paragraphs_of

# "exam-\nple"
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[a-z])")
# Characters for "ff", "fi", "fl", "ffi", "ffl" and "st", of fonts that do not say which letters they are.
_LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
# The name of a file is no title.
_FILE_NAME = re.compile(r"\.\w{2,4}$|^untitled", re.IGNORECASE)


def read(data: bytes) -> Content:
    """Return the title and the paragraphs of all pages; with a password, or without text, raise `Unread`."""
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = pypdf.PdfReader(io.BytesIO(data))
    # The password of many is empty.
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unread("encrypted PDF", "save it without a password")
    pages = [_HYPHEN.sub("", page.extract_text().translate(_LIGATURES)) for page in reader.pages]
    if not any(map(str.strip, pages)):
        raise Unread("PDF without text", "recognise the text of its pictures (OCR)")
    title = (reader.metadata and reader.metadata.title) or ""
    blocks = [(0, paragraph) for page in pages for paragraph in paragraphs_of(page)]
    return Content("" if _FILE_NAME.search(title) else title, blocks)
