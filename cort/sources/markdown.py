"""Markdown: CommonMark with tables, and what MkDocs, Docusaurus, MyST, Hugo and Notion add to it.

A tag is no text, but what stands between tags is, though the tag be only an example, or never closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from lxml.html import defs
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference
from markdown_it.token import Token

from cort.sources import front_matter, html
from cort.sources.documents import Block, Content, Left, paragraphs_of

NESTING = 100
# How blocks of HTML begin that only their own ends close; without these they are the rest of the file.
_ENDS = {"<!--": "-->", "<?": "?>", "<![cdata[": "]]>", "<!": ">"}
_ENDS |= {f"<{name}": f"</{name}" for name in ("script", "style", "pre", "textarea")}
_COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
_NAME = re.compile(r"</?([a-zA-Z][\w:-]*)")
_TAG = re.compile(rf"{_NAME.pattern}[^<>]*>")
_ALT = re.compile(r"""^<img\b[^>]*?\balt=(["'])(.*?)\1""", re.IGNORECASE | re.DOTALL)
# The name of a script or style that a line holds.
_SCRIPT = re.compile(r"<(script|style)\b", re.IGNORECASE)
# MkDocs: a line that names a box, a fold or a tab, whose text is indented; Docusaurus: lines of colons around it.
_BOX = re.compile(r"(?:!!!|\?\?\?\+?|===\+?)[ \t]+(.+)", re.DOTALL)
_BOX_TITLE = re.compile(r'(?:[\w -]*?)"(.*)"[ \t]*$')
_COLONS = re.compile(r"^:{3,}[ \t]*", re.MULTILINE)
# What a heading says of itself, {#id .class}, and a block of MkDocs, {: #id .class}.
_ATTRIBUTES = re.compile(r"\s*\{(:)?[ \t]*[#.][^{}\n]*\}[ \t]*$")
# MDX: at the beginning, what the components of a page are.
_IMPORT = re.compile(r"(?:import\s[^\n]*['\"][^'\"\n]+['\"];?[ \t]*\n|[ \t]*\n)+")
_LABEL = re.compile(r"""<[A-Z]\w*\b[^<>]*?\s(?:label|title)=(["'])(.*?)\1""", re.DOTALL)
_COMPONENT = re.compile(r"^\s*<[A-Z]\w*[\s/>]", re.MULTILINE)
# MyST: a fence that is a box, with options before its text; others: the name of the file that a fence shows.
_DIRECTIVE = re.compile(r"\{[\w:-]+\}[ \t]*(.*)")
_OPTIONS = re.compile(r"(?::[\w-]+:.*\n)+|---\n(?:.*\n)*?---\n")
_FENCE_TITLE = re.compile(r"""\btitle=(["'])(.*?)\1""")
# What is no definition of a link: a footnote, or a word after "[Note]:", with no address.
_NO_REFERENCE = re.compile(r" {0,3}\[(?:\^[^\]]*\]:|[^\]\n]*\]:[ \t]*[^\s/.#:@<>]+[ \t]*$)")
_CELL = re.compile(r"(?<!\\)\|")


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    line = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    return not _NO_REFERENCE.match(line) and reference(state, start, end, silent)


class _Parser(MarkdownIt):
    def normalizeLink(self, url: str) -> str:
        """Leave it: where links lead is no text, and to write it in one way takes a fifth of the time."""
        return url


_PARSER = _Parser("commonmark", {"maxNesting": NESTING}).enable(["table", "strikethrough"])
_PARSER.block.ruler.at("reference", _reference)


def read(text: str) -> Content:
    """Return the title in the front matter and the blocks, among them rows of tables and blocks of code."""
    title, front, text = front_matter.divided(text)
    left: list[Left] = [("front matter", front)] if front else []
    if (imports := _IMPORT.match(text)) and imports[0].strip() and _COMPONENT.search(text, imports.end()):
        left.append(("imports of components", imports[0]))
        text = text[imports.end() :]
    return Content(title, _blocks(text, left), tuple(left))


def _blocks(text: str, left: list[Left]) -> list[Block]:
    text, tokens, env = _parsed(text)
    # The parser drops what is nested more deeply.
    if any(token.level >= NESTING - 2 for token in tokens):
        return [(0, paragraph) for paragraph in paragraphs_of(text)]
    left += [("definitions of links", f"{name} {one['title']}") for name, one in env.get("references", {}).items()]
    reader = _Reader(text.split("\n"), left)
    for token in tokens:
        reader.take(token)
    return reader.blocks


def _parsed(text: str) -> tuple[str, list[Token], dict[str, Any]]:
    """Parse a text, without the beginnings of blocks that never end: each kind of these once."""
    while True:
        env: dict[str, Any] = {}
        tokens = _PARSER.parse(text, env)
        opens = (_open(token) for token in tokens if token.type == "html_block")
        found = next((one for one in opens if one), None)
        if not found:
            return text, tokens, env
        line, begin = found
        lines = text.split("\n")
        # Nor do those after it end.
        any_begin = re.compile(rf"{re.escape(begin)}(?:\b[^>\n]*>?)?" if begin[1].isalpha() else re.escape(begin), re.I)
        text = "\n".join([*lines[:line], *(any_begin.sub(" ", one) for one in lines[line:])])


def _open(token: Token) -> tuple[int, str] | None:
    """Return the line and the beginning of a block that only its end could close, if it has none."""
    text = token.content.lstrip().lower()
    begin = next((begin for begin in _ENDS if text.startswith(begin)), "")
    return ((token.map or [0])[0], begin) if begin and _ENDS[begin] not in text[len(begin) :] else None


class _Reader:
    """Makes blocks of tokens."""

    def __init__(self, lines: list[str], left: list[Left]) -> None:
        self.blocks, self._lines, self._left = list[Block](), lines, left
        self._level, self._is_boxed = 0, False
        # Of the row of a table: its cells, or None outside.
        self._cells: list[str] | None = None
        self._line = 0

    def take(self, token: Token) -> None:
        """Take the next token."""
        if token.type == "heading_open":
            self._level = int(token.tag[1:])
        elif token.type == "heading_close":
            self._level = 0
        elif token.type == "tr_open":
            self._cells, self._line = [], (token.map or [0])[0]
        elif token.type == "tr_close":
            cells = self._cells or []
            # The parser drops cells beyond the columns of the header.
            beyond = _CELL.split(self._lines[self._line].strip().strip("|"))[len(cells) :]
            self.blocks.append((0, " ".join([*cells, *(self._inline(_PARSER.parseInline(one)) for one in beyond)])))
            self._cells = None
        elif token.type == "inline":
            self._take_inline(token)
        elif token.type == "html_block":
            self._take_html(token.content)
        elif token.type == "code_block":
            # Of a box, all indented text.
            self.blocks += _blocks(token.content, self._left) if self._is_boxed else [(0, token.content)]
        elif token.type == "fence":
            self._take_fence(token)
        if token.type not in ("code_block", "inline", "paragraph_close"):
            self._is_boxed = False

    def _take_inline(self, token: Token) -> None:
        text = self._inline([token])
        if self._cells is not None:
            self._cells.append(text)
            return
        if (attributes := _ATTRIBUTES.search(text)) and (self._level or attributes[1]):
            self._left.append(("attributes", attributes[0]))
            text = text[: attributes.start()]
        text = _COLONS.sub("", text)
        if (box := _BOX.match(text)) and not self._level:
            self._is_boxed = True
            first, _, rest = box[1].partition("\n")
            title = _BOX_TITLE.match(first)
            self.blocks += [(0, title[1] if title else first), (0, rest)]
        else:
            self.blocks.append((self._level, text))

    def _inline(self, tokens: Sequence[Token]) -> str:
        return "".join(_texts([child for token in tokens for child in token.children or []], self._left))

    def _take_html(self, text: str) -> None:
        self._left += [("comments", comment) for comment in _COMMENT.findall(text)]
        self._left += [("unknown tags", tag[0]) for tag in _TAG.finditer(text) if tag[1].lower() not in defs.tags]
        # What a component of MDX shows: the label of a tab.
        self.blocks += [(0, label[2]) for label in _LABEL.finditer(text)]
        blocks, left = html.blocks_of(text)
        self._left += left
        self.blocks += [(block.level, block.text) for block in blocks]

    def _take_fence(self, token: Token) -> None:
        if directive := _DIRECTIVE.match(token.info):
            options = _OPTIONS.match(token.content)
            content = token.content[options.end() :] if options else token.content
            self._left += [("options of directives", options[0])] if options else []
            self.blocks += [(0, directive[1]), *_blocks(content, self._left)]
            return
        title = _FENCE_TITLE.search(token.info)
        self.blocks += [*([(0, title[2])] if title else []), (0, token.content)]


def _texts(tokens: Sequence[Token], left: list[Left]) -> Iterator[str]:
    """Yield the texts of a line; its tags are none, but for the script or style between two of them."""
    code = ""
    for number, token in enumerate(tokens):
        if token.type == "html_inline":
            tag = token.content.lower()
            found = _SCRIPT.match(tag)
            if code or (found and any(one.content.lower() == f"</{found[1]}>" for one in tokens[number:])):
                code = "" if tag == f"</{code}>" else code or (found[1] if found else "")
            else:
                yield _tag(token.content, left)
        elif not code:
            yield " " if token.type == "hardbreak" else "\n" if token.type == "softbreak" else token.content


def _tag(tag: str, left: list[Left]) -> str:
    """Return what a tag in a line means for the words around it."""
    if tag.startswith("<!--"):
        left.append(("comments", tag[4:-3]))
    if alternative := _ALT.search(tag):
        return f" {alternative[2]} "
    name = _NAME.match(tag)
    if name and name[1].lower() not in defs.tags:
        left.append(("unknown tags", tag))
    return " " if name and (name[1].lower() in html.SPACES or name[1].lower() not in html.INLINE) else ""
