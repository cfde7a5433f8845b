"""reStructuredText, with the roles and directives of Sphinx and others, which docutils does not know."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives, roles
from docutils.parsers.rst.languages import en

from cort.sources.documents import Block, Content

# No other files, no messages, no end at an error, no section as subtitle.
SETTINGS = {
    **{"file_insertion_enabled": False, "raw_enabled": False, "_disable_config": True, "docinfo_xform": False},
    **{
        "doctitle_xform": False,
        "report_level": 5,
        "halt_level": 5,
        "warning_stream": False,
        "syntax_highlight": "none",
    },
    **{"line_length_limit": 1 << 30},
}
# Their arguments and content are names, other files or code.
NAMES = frozenset({"toctree", "index", "highlight", "currentmodule", "include", "raw"})
# Rows and the like are one paragraph.
WHOLE = (nodes.TextElement, nodes.row, nodes.field, nodes.option_list_item, nodes.line_block)
LEFT_OUT = (nodes.comment, nodes.substitution_definition, nodes.system_message, nodes.meta)

# All that docutils may take for one: names that it knows from other files would change what it reads.
_DIRECTIVE = re.compile(r"\.\. +(?:\|[^|\n]+\| +)?([\w.+:-]{1,80}?) ?::(?:\s|$)")
_ROLE = re.compile(r":(\w[\w.+:-]{,80}):`|`:(\w[\w.+:-]{,80}):")
# "text <target>", or a target after "~" or "!".
_TARGET = re.compile(r"(?s)(.+?)\s*<[^<>]*>|[~!]?(.*)")


def read(text: str) -> Content:
    """Return the blocks; of an unknown role or directive, its text."""
    for name in {found.lower() for found in _DIRECTIVE.findall(text)} - (en.directives.keys() - NAMES):
        directives.register_directive(name, _Unknown)
    for name in {(before or after).lower() for before, after in _ROLE.findall(text)} - en.roles.keys():
        roles.register_local_role(name, _unknown_role)
    tree = publish_doctree(text, settings_overrides=SETTINGS)
    for node in [found for found in tree.findall() if isinstance(found, LEFT_OUT)]:
        # What docutils could not read is quoted in the message about it.
        quoted = node.children if isinstance(node, nodes.system_message) else []
        node.parent.replace(node, [child for child in quoted if isinstance(child, nodes.literal_block)])
    return Content("", list(_blocks(tree, 0)))


def _blocks(node: nodes.Element, level: int) -> Iterator[Block]:
    if isinstance(node, WHOLE):
        is_heading = isinstance(node, nodes.title) and isinstance(node.parent, nodes.section)
        yield level * is_heading, node.astext()
        return
    for child in node.children:
        if isinstance(child, nodes.Element):
            yield from _blocks(child, level + isinstance(child, nodes.section))


class _Unknown(Directive):  # type: ignore[misc]  # docutils has no types
    """A directive whose text is its argument and its content."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True
    # No options would be looked for if it were empty.
    option_spec = defaultdict(lambda: directives.unchanged, name=directives.unchanged)  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Return paragraphs."""
        if self.name in NAMES:
            return []
        inner = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, inner)
        return [*(nodes.paragraph(text=argument) for argument in self.arguments), *inner.children]


def _unknown_role(name: str, raw: str, text: str, *_: Any, **__: Any) -> tuple[list[nodes.Node], list[nodes.Node]]:
    found = _TARGET.fullmatch(nodes.unescape(text))
    return [nodes.inline(raw, (found[1] or found[2]) if found else text)], []
