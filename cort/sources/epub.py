"""E-books (EPUB): web pages in a zip, in the order of its table."""

import io
import posixpath
import zipfile
from urllib.parse import unquote, urlsplit

from lxml.etree import _Element

from cort.formats.decoding import decode_file
from cort.sources import html
from cort.sources.documents import Block, Content, Unread, xml_of

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
# Fonts are often hidden, which says nothing about the text.
_FONTS = ("fonts", ".ttf", ".otf", ".woff", ".woff2")


def read(data: bytes) -> Content:
    """Return the title of the book and the blocks of all chapters; with locked chapters, raise `Unread`."""
    blocks, missing = list[Block](), list[str]()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = {*archive.namelist()}
        locked = _paths(xml_of(archive.read(_ENCRYPTION)), "CipherReference", "URI") if _ENCRYPTION in names else []
        if any(not path.lower().endswith(_FONTS[1:]) and _FONTS[0] not in path.lower() for path in locked):
            raise Unread("locked e-book", "get it without DRM")
        root = _paths(xml_of(archive.read(_CONTAINER)), "rootfile", "full-path")[0]
        package = xml_of(archive.read(root))
        files = {item.get("id"): item.get("href", "") for item in package.iter("{*}manifest/{*}item", "{*}item")}
        for chapter in package.iter("{*}itemref"):
            href = urlsplit(files.get(chapter.get("idref"), "")).path
            path = posixpath.normpath(posixpath.join(posixpath.dirname(root), unquote(href)))
            if path in names:
                blocks += html.read(decode_file(archive.read(path)).text).blocks
            else:
                missing.append(path)
    title = next((one.text for one in package.iter("{http://purl.org/dc/elements/1.1/}title") if one.text), "")
    doubts = [Unread("chapters that an e-book lacks", missing[0], len(missing))] if missing else []
    return Content(title, blocks, doubts=tuple(doubts))


def _paths(root: _Element, tag: str, attribute: str) -> list[str]:
    return [path for one in root.iter(f"{{*}}{tag}") if (path := one.get(attribute))]
