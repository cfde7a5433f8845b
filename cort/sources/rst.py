"""reStructuredText as text with underlined headings, without the markup of directives and roles, also of Sphinx."""

import re
from collections.abc import Iterator

from cort.sources.documents import Block, Content, paragraphs_of

# What is indented below a line that begins with "..".
_BELOW = r"(?:[ \t]*\n|\1 +.*(?:\n|\Z))*"
# Comments, targets and substitutions, and directives without text.
_TEXTLESS = re.compile(
    r"^( *)\.\.(?:[ \t]*\n| +(?!\[|[\w.+:-]+ ?::).*(?:\n|\Z)"
    r"| +(?:toctree|index|highlight|currentmodule|include|raw|meta|role|default-role|sectnum|contents)::.*(?:\n|\Z))"
    + _BELOW,
    re.MULTILINE,
)
# The name of a directive or footnote, with an argument that is no text, and options.
_NAME = re.compile(
    r"^ *\.\. +(?:\[[^\]\n]+\]|(?:code|code-block|sourcecode|image|figure|literalinclude|math|class)::.*"
    r"|[\w.+:-]+ ?::)((?:.*\n(?: +:[^:\n]+:.*\n)*)?)",
    re.MULTILINE,
)
_OPTIONS = re.compile(r"^ +:[^:\n]+:.*\n", re.MULTILINE)
_HEADING = re.compile(r"^(?:(([^\w\s])\2+) *\n)?([^\n]+)\n(([^\w\s])\5+) *(?:\n|\Z)", re.MULTILINE)
# Lines of a table between its rows, and the beginning of an item of a list.
_BORDER = re.compile(r"^ *[-=+|][-=+| ]+$|^ *([^\w\s])\1{3,} *$", re.MULTILINE)
_ITEM = re.compile(r"^ *(?:(?:[-*+•|]|\(?(?:\w|\d+|#)[.)])(?: +|$)|:([^:\n]+):(?= |$))", re.MULTILINE)
# A role or link with its text, stress, a reference, a substitution; a target after "~" or "!".
_INLINE = re.compile(
    r"(?::[\w.+:-]+:)?`[~!]?([^`]+?)(?:\s+<[^<>`]*>)?`(?::[\w.+:-]+:|_{1,2})?"
    r"|(?<![\w*])(\*\*?)(?=\S)([^*]+)(?<=\S)\2(?!\w)"
    r"|(?<![\w<.-])([^\W_](?:[\w.-]*[^\W_])?)_{1,2}(?![\w<-])|(?<!\w)\|([^|\s][^|]*)\|(?!\w)"
)


def read(text: str) -> Content:
    """Return headings and paragraphs; the level of a heading is that of its line, in the order of their first use."""
    text = _NAME.sub(lambda match: f"\n{_OPTIONS.sub('', match[1])}", _TEXTLESS.sub("\n", text.expandtabs()))
    return Content("", list(_blocks(text)))


def _blocks(text: str) -> Iterator[Block]:
    styles: list[tuple[str, bool]] = []
    position = 0
    for match in _HEADING.finditer(text):
        over, _, title, under, sign = match.groups()
        title = title.rstrip()
        is_text = title and not _BORDER.fullmatch(title) and (over or title[0] != " ")
        if is_text and over in (None, under) and len(under) >= min(4, len(title.strip())):
            yield from _paragraphs(text[position : match.start()])
            position = match.end()
            styles += [(sign, over is None)] * ((sign, over is None) not in styles)
            yield styles.index((sign, over is None)) + 1, _plain(title)
    yield from _paragraphs(text[position:])


def _paragraphs(text: str) -> Iterator[Block]:
    rows = _BORDER.sub("", _ITEM.sub(lambda match: f"\n{match[1] or ''}", text))
    for paragraph in paragraphs_of(rows):
        yield 0, _plain(paragraph.removesuffix("::") + ":" * (paragraph.endswith("::") and paragraph != "::"))


def _plain(text: str) -> str:
    """Return a text without markup; what is between two backticks each has none."""
    parts = text.split("``")
    parts[::2] = (
        _INLINE.sub(lambda match: match[1] or match[3] or match[4] or match[5], part)
        .replace("\\ ", "")
        .replace("]_", "]")
        for part in parts[::2]
    )
    return "".join(parts)
