"""Pages: self-contained HTML, which has no scripts and loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cort import __version__
from cort.reporting.format import coded, typeset
from cort.reporting.tables import Table


@dataclass(frozen=True)
class Chapter:
    """A part of a page: a text, tables, pictures with a caption, facts by name, and tables under a summary.

    :ivar pictures: address and description of each.
    """

    name: str
    heading: str
    tables: Sequence[Table] = ()
    pictures: Sequence[tuple[str, str]] = ()
    caption: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    folded: Sequence[Table] = ()
    summary: str = ""
    text: str = ""

    def __bool__(self) -> bool:
        """Tell whether there is anything to show."""
        return any(len(table.frame) for table in (*self.tables, *self.folded)) or bool(self.pictures or self.facts)


def render(template: str, **shown: Any) -> str:
    """Render a template, with everything in it escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"typeset": typeset, "coded": coded}
    environment.globals["version"] = __version__
    return environment.get_template(template).render(shown)
