"""HTML and XHTML, also as it is on the web: unclosed, nested wrongly, cut off.

The title is the heading of level 1 if there is exactly one, since `<title>` also names the site on most of them, and
would begin each passage with that name.
"""

from collections import Counter

from lxml.etree import HTMLParser, fromstring
from lxml.html import defs

from cort.sources.documents import Block, Content

DROPPED = frozenset(["script", "style", "noscript", "template", "nav", "footer", "aside", "svg"])
DROPPED |= frozenset(["iframe", "select", "textarea"])
# A header in one of these is of that part, and has its heading; any other is that of the site.
PARTS = frozenset(["article", "main", "section"])
HEADINGS = {f"h{level}": level for level in range(1, 7)}
# Cells of a table are parts of their row.
SPACES = frozenset({"br", "td", "th"})
INLINE = defs.phrase_tags | defs.font_style_tags | defs.special_inline_tags | SPACES
INLINE |= frozenset(["bdi", "button", "data", "label", "mark", "nobr", "output", "rp", "rt", "ruby", "time", "wbr"])


def read(text: str) -> Content:
    """Return the title and the text of blocks and rows of tables, without navigation, scripts and fields of forms."""
    # A tree would end at a depth of 256. The parser of HTML reads no other files and expands no entities of a document.
    parser = HTMLParser(encoding="utf-8", target=_Target(), huge_tree=True)
    # The parser takes no empty document.
    content: Content = fromstring(text.encode() or b" ", parser)
    return content


class _Target:
    """What the parser calls for each tag and text; it leaves out comments and processing instructions."""

    def __init__(self) -> None:
        self._title, self._blocks, self._texts = "", list[Block](), list[str]()
        # What each open element is (`_kind`), and how many of each kind are open.
        self._open, self._inside = list[str](), Counter[str]()
        self._level = 0
        self._in_title = self._has_text = False

    def start(self, tag: str, attributes: object) -> None:
        self._separate(tag)
        self._open.append(self._kind(tag))
        self._inside[self._open[-1]] += 1
        self._level = HEADINGS.get(tag, self._level)
        self._in_title = tag == "title" and not self._inside["dropped"]

    def end(self, tag: str) -> None:
        self._separate(tag)
        self._inside[self._open.pop()] -= 1
        self._in_title = False
        if tag in HEADINGS:
            self._level = 0

    def data(self, text: str) -> None:
        if not self._inside["dropped"]:
            self._texts.append(text)
            # A block of buttons alone is a menu.
            self._has_text |= bool(text.strip() and (self._level or not self._inside["button"]))

    def close(self) -> Content:
        self._separate("body")
        is_named = sum(level == 1 for level, _ in self._blocks) == 1
        return Content("" if is_named else self._title, self._blocks)

    def _kind(self, tag: str) -> str:
        is_dropped = tag in DROPPED or (tag == "header" and not self._inside["part"])
        return "dropped" if is_dropped else "part" if tag in PARTS else tag if tag == "button" else ""

    def _separate(self, tag: str) -> None:
        """End a block, or a word, at the start or the end of an element."""
        if tag in SPACES:
            self._texts.append(" ")
        if tag in INLINE or not self._texts:
            return
        text = "".join(self._texts)
        self._texts.clear()
        if self._in_title:
            self._title = self._title or text
        elif self._has_text:
            self._blocks.append((self._level, text))
        self._has_text = False
