"""reStructuredText as text with underlined headings, without the markup of directives and roles, also of Sphinx."""

import re
from collections.abc import Iterator, Mapping

from cort.sources import html
from cort.sources.documents import Block, Content, Left, paragraphs_of

# What is indented below a line that begins with "..".
_BELOW = r"((?:[ \t]*\n|\1 +.*(?:\n|\Z))*)"
# An empty comment has nothing below it.
_EMPTY = re.compile(r"^ *\.\.[ \t]*\n(?=[ \t]*(?:\n|\Z))", re.MULTILINE)
# Comments, targets and substitutions, and directives without text.
_TEXTLESS = re.compile(
    r"^( *)\.\.(?:[ \t]*\n| +(?!\[|[\w.+:-]+ ?::)(.*(?:\n|\Z))"
    r"| +(toctree|index|highlight|currentmodule|include|raw|meta|role|default-role|sectnum|contents)::(.*(?:\n|\Z)))"
    + _BELOW,
    re.MULTILINE,
)
_SUBSTITUTION = re.compile(r"\|([^|\n]+)\| +([\w-]+)::(.*)", re.DOTALL)
# The name of a directive or footnote, with an argument that is no text, and options.
_NAME = re.compile(
    r"^ *\.\. +(?:\[[^\]\n]+\]|(?:code|code-block|sourcecode|image|figure|literalinclude|class)::.*"
    r"|[\w.+:-]+ ?::)((?:.*\n(?: +:[^:\n]+:.*\n)*)?)",
    re.MULTILINE,
)
_OPTIONS = re.compile(r"^ +:([^:\n]+):(.*)\n", re.MULTILINE)
# Options that are seen; those of a picture stand for it.
SEEN = frozenset(["caption", "alt", "header", "title", "subtitle"])
_ENTRY = re.compile(r"^ *(.+?) *<[^<>]+>[ \t]*$", re.MULTILINE)
# What is below "::" or a directive of code stands as it is: its lines get a mark that no text has.
_LITERAL = re.compile(
    r"^( *)(.*::)([^\n:]*\n(?: +:[^:\n]+:.*\n)*(?:[ \t]*\n)+)((?:[ \t]*\n|\1 +.*(?:\n|\Z))+)", re.MULTILINE
)
_CODE = re.compile(r"\.\. +(?:code|code-block|sourcecode|doctest|testcode|testoutput|prompt|highlight)::")
_MARK = "\ue000"
_LINE = re.compile(r"^(?=.*\S)", re.MULTILINE)
_HEADING = re.compile(r"^(?:(([^\w\s])\2+) *\n)?([^\n]+)\n(([^\w\s])\5+) *(?:\n|\Z)", re.MULTILINE)
# Lines of a table between its rows, and the beginning of an item of a list.
_BORDER = re.compile(r"^ *[-=+|][-=+| ]+$|^ *([^\w\s])\1{3,} *$", re.MULTILINE)
_ITEM = re.compile(r"^ *(?:(?:[-*+•|]|\(?(?:\w|\d+|#)[.)])(?: +|$)|:([^:\n]+):(?= |$))", re.MULTILINE)
# A role or link with its text, stress, a reference, a substitution; a target after "~" or "!".
_INLINE = re.compile(
    r"(?::[\w.+:-]+:)?`[~!]?([^`]+?)(?:\s+<[^<>`]*>)?`(?::[\w.+:-]+:|_{1,2})?"
    r"|(?<![\w*])(\*\*?)(?=\S)([^*]+)(?<=\S)\2(?!\w)"
    r"|(?<![\w<.-])([^\W_]+(?:[._+:-][^\W_]+)*)_{1,2}(?![\w<-])|(?<!\w)\|([^|\s][^|]*)\|(?!\w)"
)


_ESCAPE = re.compile(r"\\([^\w\s]|[_ ])")
# Escaped characters are no markup: others stand for them meanwhile; an escaped space only separates markup.
_RESTORED = {0xE100 + code: chr(code) for code in range(33, 127)} | {0xE120: ""}
_CODE_POINT = re.compile(r"(?:0x|U\+|\\u|&#x)([0-9a-fA-F]{1,6});?")


def read(text: str) -> Content:
    """Return headings and paragraphs; the level of a heading is that of its line, in the order of their first use."""
    reader = _Reader()
    text = _EMPTY.sub("\n", text.expandtabs().replace(_MARK, " "))
    text = _LITERAL.sub(_marked, _TEXTLESS.sub(reader.textless, text))
    text = _NAME.sub(lambda match: f"\n{_OPTIONS.sub(_seen, match[1])}", text)
    return Content("", list(_blocks(text, reader.names)), tuple(reader.left))


class _Reader:
    """Keeps what is left out, and the texts that stand for names: "|name|"."""

    def __init__(self) -> None:
        self.left, self.names = list[Left](), dict[str, str]()

    def textless(self, match: re.Match[str]) -> str:
        """Return what is seen of a comment, target, substitution or directive without text of its own."""
        _, comment, name, argument, below = match.groups()
        if name == "raw" and argument.strip() == "html":
            blocks, left = html.blocks_of(_OPTIONS.sub("", below))
            self.left += left
            return "\n" + "".join(f"\n{_MARK}{' '.join(block.text.split())}\n" for block in blocks) + "\n"
        if name == "toctree":
            self.left.append(("directives without text", _ENTRY.sub("", below)))
            titles = [option[2] for option in _OPTIONS.finditer(below) if option[1] == "caption"]
            return "\n".join(["", *titles, *_ENTRY.findall(below), ""])
        if found := _SUBSTITUTION.match(f"{comment or ''}{below}"):
            kind, text = found[2], found[3]
            if kind == "image":
                text = " ".join(option[2] for option in _OPTIONS.finditer(text) if option[1] == "alt")
            elif kind == "unicode":
                text = _CODE_POINT.sub(lambda code: chr(min(int(code[1], 16), 0x10FFFF)), text)
            self.names[found[1]] = " ".join(text.split())
            return "\n"
        is_target = (comment or "").startswith(("_", "|"))
        kind = "directives without text" if name else "targets" if is_target else "comments"
        self.left.append((kind, f"{comment or argument or ''}{below}"))
        return "\n"


def _seen(option: re.Match[str]) -> str:
    return f"\n{option[2]}\n\n" if option[1] in SEEN else ""


def _marked(match: re.Match[str]) -> str:
    indent, line, between, below = match.groups()
    if line.startswith(".. ") and not _CODE.match(line):
        return match[0]
    return f"{indent}{line}{between}{_LINE.sub(_MARK, below)}"


def _blocks(text: str, names: Mapping[str, str]) -> Iterator[Block]:
    styles: list[tuple[str, bool]] = []
    position = 0
    for match in _HEADING.finditer(text):
        over, _, title, under, sign = match.groups()
        title = title.rstrip()
        is_text = title and not _BORDER.fullmatch(title) and (over or title[0] != " ")
        if is_text and over in (None, under) and len(under) >= min(4, len(title.strip())):
            yield from _paragraphs(text[position : match.start()], names)
            position = match.end()
            styles += [(sign, over is None)] * ((sign, over is None) not in styles)
            yield styles.index((sign, over is None)) + 1, _plain(title, names)
    yield from _paragraphs(text[position:], names)


def _paragraphs(text: str, names: Mapping[str, str]) -> Iterator[Block]:
    rows = _BORDER.sub("", _ITEM.sub(lambda match: f"\n{match[1] or ''}", text))
    for paragraph in paragraphs_of(rows):
        if _MARK in paragraph:
            yield 0, paragraph.replace(_MARK, "")
            continue
        colon = ":" * (paragraph.endswith("::") and paragraph != "::")
        yield 0, _plain(paragraph.removesuffix("::") + colon, names)


def _hidden(escaped: re.Match[str]) -> str:
    return chr(0xE100 + ord(escaped[1])) if escaped[1].isascii() else escaped[1]


def _plain(text: str, names: Mapping[str, str]) -> str:
    """Return a text without markup; what is between two backticks each has none."""
    parts = text.split("``")
    parts[::2] = (
        _INLINE.sub(lambda one: one[1] or one[3] or one[4] or names.get(one[5], one[5]), _ESCAPE.sub(_hidden, part))
        .translate(_RESTORED)
        .replace("]_", "]")
        for part in parts[::2]
    )
    return "".join(parts)
