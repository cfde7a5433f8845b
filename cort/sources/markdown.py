"""Markdown (CommonMark with tables), by way of HTML."""

import re
from collections.abc import Sequence
from html import escape

from markdown_it import MarkdownIt
from markdown_it.token import Token

from cort.sources import html
from cort.sources.documents import Content

# YAML between lines of ---, or TOML between lines of +++, that begins with a key or a comment.
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n(?=[\w-]+[ \t]*[:=]|#)(.*?\n)\1[ \t]*(\n|\Z)", re.DOTALL)
_TITLE = re.compile(r"^title[ \t]*[:=][ \t]*([\"']?)(.+?)\1[ \t]*$", re.MULTILINE)

_SCRIPT = re.compile(r"</?(script|style)\b")

_PARSER = MarkdownIt("commonmark", {"maxNesting": 100}).enable("table")


def _tag(_: object, tokens: Sequence[Token], number: int, *__: object) -> str:
    """Keep a closed script or style, whose text is dropped; of other tags in a line, keep a space for a line break.

    The rest of the document would be dropped with tags that are placeholders, such as <form>.
    """
    tag = tokens[number].content.lower()
    found = _SCRIPT.match(tag)
    if found and any(token.content.lower() == f"</{found[1]}>" for token in tokens[number:]):
        return tag
    return " " * tag.startswith("<br")


_PARSER.add_render_rule("html_inline", _tag)
_PARSER.add_render_rule("image", lambda _, tokens, number, *__: escape(tokens[number].content))


def read(text: str) -> Content:
    """Return the title in the front matter and the blocks, among them rows of tables and blocks of code."""
    title = None
    if front := _FRONT_MATTER.match(text):
        title, text = _TITLE.search(front[2]), text[front.end() :]
    return Content(title[2] if title else "", html.read(_PARSER.render(text)).blocks)
