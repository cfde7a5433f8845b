"""Rendering templates: self-contained HTML pages, which have no scripts and load nothing, and Markdown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from cort import __version__
from cort.reporting import labels
from cort.reporting.tables import MARKDOWN_SPECIAL


def plain(text: str) -> str:
    """Show untrusted text in Markdown as it is, on one line."""
    return " ".join(text.split()).translate(MARKDOWN_SPECIAL)


def render(template: str, **shown: Any) -> str:
    """Render a template. In HTML everything is escaped, except figures, which were escaped when drawn.

    Templates of Markdown (`.md.jinja`) must use the filter `plain` for untrusted text.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=select_autoescape(["html.jinja"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    shared = (labels.count, labels.fixed, labels.signed, labels.duration, labels.memory, labels.clip, labels.p_value)
    environment.filters |= {filter.__name__: filter for filter in shared} | {"measure": labels.measure_label}
    environment.filters |= {"json": json.dumps, "plain": plain}
    known = {
        "link": labels.link,
        "page_of": labels.page_of,
        "highlight": labels.highlight,
        "interval": labels.shown_interval,
    }
    environment.globals |= {**known, "plural": labels.plural, "version": __version__, "missing": labels.MISSING}
    return environment.get_template(template).render(shown)
