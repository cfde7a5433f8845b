"""HTML and XHTML, also as it is on the web: unclosed, nested wrongly, cut off.

A page that has one `<main>` is that element. In any other, what the page itself calls navigation is left out, and
nothing else because of its tag; `cort.sources.furniture` says more, and what it finds in a folder of pages.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from html import escape

from lxml.etree import HTMLParser, fromstring
from lxml.html import defs

from cort.sources.documents import Content, Left
from cort.sources.furniture import Block, Links, Page, content_of, pieces

# Nobody sees the text of these; "rp" is for browsers that do not know the annotations of <ruby>.
UNSEEN = frozenset(["script", "style", "template", "rp", "iframe", "noembed", "desc", "metadata", "defs"])
NAVIGATION = frozenset(["navigation", "search", "banner", "contentinfo", "menu", "menubar", "toolbar"])
# What is in one of these is of that part; any other header or footer is that of the page.
PARTS = frozenset(["article", "main", "section", "aside", "blockquote", "figure", "dialog"])
HEADINGS = {f"h{level}": level for level in range(1, 7)}
# These separate words: a line break, the cells of a row, the choices of a field, the letters of a formula.
SPACES = frozenset(["br", "td", "th", "option", "tspan", "mi", "mn", "mo", "ms", "mtext"])
INLINE = (defs.phrase_tags | defs.font_style_tags | defs.special_inline_tags | SPACES) - {"iframe"}
INLINE |= {
    *("bdi", "button", "data", "label", "mark", "nobr", "output", "rp", "ruby", "time", "wbr", "rb", "rt", "select"),
    *("math", "semantics", "annotation", "mrow", "msup", "msub", "msubsup", "mfrac", "msqrt", "mroot", "mover"),
    *("munder", "munderover", "mstyle", "optgroup", "picture", "source", "input"),
}
# Their tags are text for the parser.
UNPARSED = frozenset(["textarea", "noframes"])
# Words of links: where they lead is said elsewhere.
BUTTONS = frozenset(["button", "select"])
#: a page's own words for the notice that covers it until a button is pressed, and the most words of one
_COOKIES = re.compile(
    r"(?:cookie|consent|gdpr|ccpa)s?[-_ ]?(?:\w+[-_ ])?"
    r"(?:ba(?:r|nner)|notice|popup|modal|dialog|overlay|message|box|consent)|onetrust-banner",
    re.IGNORECASE,
)
COOKIE_WORDS = 150
# What never ends in a piece of a page would hide the rest of it.
_HIDING = [f"<{name}" for name in sorted({*UNSEEN, *UNPARSED, "noscript", "title"})]
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
# An attribute up to its quote; as many characters are looked at.
_UNQUOTED, ATTRIBUTES = re.compile(r"<[a-zA-Z][^<>]*=\s*\Z"), 2_000
_TITLE_END = re.compile(r"</title", re.IGNORECASE)


def read(text: str) -> Content:
    """Return the title and the text of blocks and rows of tables of a page that stands alone."""
    return content_of(parse(text))


def parse(text: str) -> Page:
    """Read a page; what other pages of its folder repeat is still there."""
    target = _parsed(_closed(text))
    title, blocks = target.title, target.blocks
    # A title that does not end has swallowed the page.
    if "<" in title and not _TITLE_END.search(text):
        title, _, rest = title.partition("<")
        blocks = [*blocks, *_parsed(f"<{rest}").blocks]
    left = list(target.left)
    return Page(title, tuple(pieces(blocks, target.links, title, left)), tuple(left))


def blocks_of(text: str) -> tuple[list[Block], list[Left]]:
    """Return all blocks of a piece of a page, and what is no text: there is no navigation in a piece."""
    for name in _HIDING:
        if name in text.lower() and (start := text.lower().rfind(name)) > text.lower().rfind(f"</{name[1:]}"):
            end = text.find(">", start)
            text = f"{text[:start]} {text[end + 1 or start + len(name) :]}"
    target = _parsed(_closed(text))
    title = [Block(0, target.title)] if target.title else []
    return [*title, *target.blocks], target.left


def _closed(text: str) -> str:
    """Keep what odd marks would hide: a comment, a tag or a value in quotes that does not end, and CDATA of XHTML."""
    if "<![CDATA[" in text:
        text = _CDATA.sub(lambda match: escape(match[1], quote=False), text)
    if (start := text.rfind("<!--")) > text.rfind("-->"):
        text = f"{text[:start]} {text[start + 4 :]}"
    if (start := text.rfind("<")) > text.rfind(">"):
        text = f"{text[:start]}&lt;{text[start + 1 :]}"
    for quote in "\"'":
        last = text.rfind(quote)
        if _UNQUOTED.search(text, max(0, last - ATTRIBUTES), max(0, last)):
            text = f"{text[:last]}{text[last + 1 :]}"
    return text


def _parsed(text: str) -> _Target:
    # A tree would end at a depth of 256. The parser of HTML reads no other files and expands no entities of a document.
    parser = HTMLParser(encoding="utf-8", target=_Target(_has_notices(text)), huge_tree=True)
    # The parser takes no empty document.
    target: _Target = fromstring(text.encode("utf-8", "replace") or b" ", parser)
    return target


def _has_notices(text: str) -> bool:
    return any(part in text for part in ("ookie", "onsent", "onetrust", "gdpr", "GDPR", "ccpa", "CCPA"))


class _Target:
    """What the parser calls for each tag and text; it leaves out comments and processing instructions.

    :ivar links: where the page says that the previous one, the next one and so on are.
    """

    def __init__(self, has_notices: bool) -> None:
        self._has_notices = has_notices
        self.title, self.blocks, self.left, self.links = "", list[Block](), list[Left](), Links()
        self._texts, self._hrefs = list[str](), list[str]()
        # What each open element is (`_kind`), and how many of each kind are open.
        self._open, self._inside = list[str](), defaultdict[str, int](int)
        # Of the words of this block, those of links; whether one is open. Number of the open <main>.
        self._linked = self._in_link = self._unusual = 0
        self._level = self._main = self._mains = self._outside = 0
        # Where open notices begin: a block, and how many buttons there were.
        self._notices, self._buttons = list[tuple[int, int]](), 0
        self._readings, self._unparsed = list[str](), list[str]()

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        separates, kind, asks = _TAGS[tag]
        if separates == " ":
            self._texts.append(" ")
        elif separates and self._texts:
            self._separate()
        if asks or (attributes and ("role" in attributes or self._has_notices)):
            kind = self._kind(tag, kind, attributes)
        self._open.append(kind)
        if kind:
            self._inside[kind] += 1
            if kind in UNUSUAL:
                self._unusual += 1
            if kind in ACTIVE:
                self._enter(kind, tag, attributes)

    def end(self, tag: str) -> None:
        separates = _TAGS[tag][0]
        if separates == " ":
            self._texts.append(" ")
        elif separates and self._texts:
            self._separate()
        if kind := self._open.pop():
            if kind in APART:
                self._separate()
            self._inside[kind] -= 1
            if kind in UNUSUAL:
                self._unusual -= 1
            if kind in ACTIVE:
                self._leave(kind)

    def data(self, text: str) -> None:
        if self._unusual:
            self._take(text)
            return
        # Between two blocks there is nothing else.
        if not self._texts and text.isspace():
            return
        self._texts.append(text)
        if self._in_link:
            self._linked += len(text.split())

    def _take(self, text: str) -> None:
        """Take a text that stands in an element of `UNUSUAL`."""
        inside = self._inside
        if inside["unseen"]:
            return
        if inside["unparsed"]:
            self._unparsed.append(text)
        elif inside["reading"]:
            self._readings.append(text)
        else:
            # Ten to the power of six is not 106.
            if text[:1].isdigit() and "".join(self._texts)[-1:].isdigit():
                self._texts.append("^")
            self._texts.append(text)
            self._linked += len(text.split()) if self._in_link else 0

    def close(self) -> _Target:
        self._separate()
        return self

    def _kind(self, tag: str, kind: str, attributes: Mapping[str, str]) -> str:
        """Say what an element is that is more than a block or words in a line."""
        if "role" in attributes:
            role = next(iter(attributes["role"].lower().split()), "")
            if role in NAVIGATION or role in ("main", "heading"):
                self._separate()
                return "navigation" if role in NAVIGATION else role
        if tag == "a":
            return kind * ("href" in attributes)
        if tag == "template":
            return kind * ("shadowrootmode" not in attributes)
        if tag == "title" and self._inside["picture"]:
            return "unseen"
        if self._has_notices and not kind and tag not in ("html", "body"):
            names = " ".join(attributes.get(name, "") for name in ("id", "class", "aria-label"))
            return "notice" if _COOKIES.search(names) else ""
        return kind

    def _enter(self, kind: str, tag: str, attributes: Mapping[str, str]) -> None:
        if kind == "link":
            self._in_link += 1
            self._hrefs.append(attributes["href"])
            if "rel" in attributes or "accesskey" in attributes:
                self.links.add(attributes)
            # The number of a footnote is no part of the word before it.
            if self._inside["power"]:
                self._texts.append(" ")
        elif kind == "button":
            # Buttons stand side by side.
            self._texts.append(" ")
            self._in_link += 1
            self._buttons += 1
        elif kind == "heading":
            level = attributes.get("aria-level", "2")
            self._level = HEADINGS.get(tag) or (int(level) if level in "123456" else 2)
        elif kind == "main":
            self._enter_main()
        elif kind == "notice":
            self._separate()
            self._notices.append((len(self.blocks), self._buttons))
        elif kind == "empty":
            self._enter_empty(tag, attributes)
        elif kind == "unseen" and "srcdoc" in attributes:
            self._embed(attributes["srcdoc"])

    def _enter_main(self) -> None:
        if self._inside["main"] == 1:
            self._mains += 1
            self._main, self._outside = self._mains, self._inside["navigation"]

    def _enter_empty(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Take the text that an element has instead of content."""
        if tag == "link":
            self.links.add(attributes)
        elif tag == "img":
            self.data(f" {attributes.get('alt', '')} ")
        elif attributes.get("type", "").lower() in ("submit", "button", "reset"):
            self._buttons += 1
            self._in_link += 1
            self.data(f" {attributes.get('value', '')} ")
            self._in_link -= 1

    def _leave(self, kind: str) -> None:
        if kind in ("link", "button"):
            self._in_link -= 1
        elif kind == "heading":
            self._level = 0
        elif kind == "main" and not self._inside["main"]:
            self._main = self._outside = 0
        elif kind == "notice":
            self._leave_notice(*self._notices.pop())
        elif kind == "ruby" and self._readings:
            # The word stays whole: its reading follows it.
            self._texts += [" ", "".join(self._readings), " "]
            self._readings.clear()
        elif kind == "unparsed":
            text = "".join(self._unparsed)
            self._unparsed.clear()
            if "<" in text:
                self._embed(text)
            else:
                self.data(text or " ")

    def _embed(self, text: str) -> None:
        """Add the blocks of a page in this one."""
        self._separate()
        for block in _parsed(_closed(text)).blocks:
            self._texts.append(block.text)
            self._separate()

    def _leave_notice(self, start: int, buttons: int) -> None:
        """Mark the blocks of a notice with a button, if it is as short as one."""
        found = self.blocks[start:]
        if self._buttons > buttons and sum(len(block.text.split()) for block in found) <= COOKIE_WORDS:
            self.blocks[start:] = [block._replace(kind=block.kind or "cookie notice") for block in found]

    def _separate(self) -> None:
        """End a block."""
        text = "".join(self._texts)
        if text and not text.isspace():
            if self._inside["title"]:
                self.title = self.title or " ".join(text.split())
            else:
                self._append(text)
        self._texts.clear()
        self._linked = 0
        self._hrefs.clear()

    def _append(self, text: str) -> None:
        inside = self._inside
        if inside["noscript"]:
            self.left.append(("noscript", text))
            return
        kind = "navigation" if inside["navigation"] > self._outside else ""
        is_edge = bool(inside["edge"]) and not inside["part"] and not self._main
        self.blocks.append(Block(self._level, text, kind, self._main, self._linked, is_edge, tuple(self._hrefs)))


# What is in these is not taken as it stands.
UNUSUAL = frozenset(["unseen", "unparsed", "reading", "power"])
# Blocks, whatever their tag is.
APART = frozenset(["navigation", "heading", "main", "notice"])
# Kinds of elements of which more is kept than how many are open.
ACTIVE = frozenset(["link", "button", "heading", "main", "notice", "empty", "unseen", "ruby", "unparsed"])
_KINDS = {
    **dict.fromkeys(HEADINGS, "heading"),
    **dict.fromkeys(PARTS, "part"),
    **dict.fromkeys(BUTTONS, "button"),
    **dict.fromkeys(("header", "footer"), "edge"),
    **dict.fromkeys(UNPARSED, "unparsed"),
    **dict.fromkeys(UNSEEN, "unseen"),
    **dict.fromkeys(("link", "img", "input"), "empty"),
    "a": "link",
    "main": "main",
    "nav": "navigation",
    "noscript": "noscript",
    "svg": "picture",
    "ruby": "ruby",
    "rt": "reading",
    "sup": "power",
    "title": "title",
}


class _Tags(dict[str, tuple[str, str, bool]]):
    """What separates an element from others (nothing, a space or a block), its kind, and whether attributes matter."""

    def __missing__(self, tag: str) -> tuple[str, str, bool]:
        # A prefix of XHTML.
        name = tag.rpartition(":")[2]
        separates = " " if name in SPACES else "" if name in INLINE else "block"
        self[tag] = separates, _KINDS.get(name, ""), name in ("a", "template", "title")
        return self[tag]


_TAGS = _Tags()
