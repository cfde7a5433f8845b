"""HTML and XHTML, also as it is on the web: unclosed, nested wrongly, cut off."""

from lxml.etree import HTMLParser
from lxml.html import defs

from cort.sources.documents import Block, Content, Unread

DROPPED = frozenset(["script", "style", "noscript", "template", "nav", "header", "footer", "aside", "svg"])
DROPPED |= frozenset(["button", "iframe", "select", "textarea"])
HEADINGS = {f"h{level}": level for level in range(1, 7)}
# Cells of a table are parts of their row.
SPACES = frozenset({"br", "td", "th"})
INLINE = defs.phrase_tags | defs.font_style_tags | defs.special_inline_tags | SPACES
INLINE |= frozenset(["bdi", "button", "data", "label", "mark", "nobr", "output", "rp", "rt", "ruby", "time", "wbr"])
# The time that libxml2 needs grows with the square of the depth.
DEEPEST = 1000
# In parts, libxml2 takes text of any length.
PART = 1 << 16


def read(text: str) -> Content:
    """Return the title and the text of blocks and rows of tables, without navigation, scripts and fields of forms.

    :raises Unread: for deep nesting.
    """
    # A tree would end at a depth of 256. The parser of HTML reads no other files and expands no entities of a document.
    parser = HTMLParser(encoding="utf-8", target=_Target(), no_network=True, huge_tree=False)
    data = text.encode()
    for start in range(0, len(data), PART):
        parser.feed(data[start : start + PART])
    # The parser takes no end of an empty document.
    content: Content = parser.close() if data else Content("", [])
    return content


class _Target:
    """What the parser calls for each tag and text."""

    def __init__(self) -> None:
        self._title, self._blocks, self._texts = "", list[Block](), list[str]()
        self._dropped = self._level = self._depth = 0
        self._in_title = False

    def start(self, tag: str, attributes: object) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unread("HTML nested too deeply", f"more than {DEEPEST:,} levels; close its elements")
        self._dropped += tag in DROPPED
        self._separate(tag)
        self._level = HEADINGS.get(tag, self._level)
        self._in_title = tag == "title"

    def end(self, tag: str) -> None:
        self._depth -= 1
        self._separate(tag)
        self._dropped -= tag in DROPPED
        if tag in HEADINGS:
            self._level = 0

    def data(self, text: str) -> None:
        if not self._dropped:
            self._texts.append(text)

    def comment(self, text: str) -> None:
        """Leave comments out."""

    def pi(self, target: str, text: str | None = None) -> None:
        """Leave processing instructions out."""

    def close(self) -> Content:
        self._separate("body")
        return Content(self._title, self._blocks)

    def _separate(self, tag: str) -> None:
        """End a block, or a word, at the start or the end of an element."""
        if tag in SPACES:
            self._texts.append(" ")
        if tag in INLINE or not self._texts:
            return
        text = "".join(self._texts)
        self._texts.clear()
        if self._in_title:
            self._title, self._in_title = self._title or text, False
        else:
            self._blocks.append((self._level, text))
