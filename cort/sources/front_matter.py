"""What stands before a Markdown text: YAML between lines of ---, TOML between lines of +++, or a JSON object."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping

import yaml

# An empty line after the first ends it: then these are rules around a text.
_FENCED = re.compile(r"(---|\+\+\+)[ \t]*\n(?![ \t]*\n)(.*?\n)(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)


def _yaml(text: str) -> object:
    # All values are strings, as they are written: nothing is a date, a number or an object of Python.
    return yaml.load(text, yaml.BaseLoader)  # noqa: S506  # it makes nothing but strings, lists and mappings


_READERS: dict[str, Callable[[str], object]] = {"---": _yaml, "+++": tomllib.loads}


def divided(text: str) -> tuple[str, str, str]:
    """Return the title, the rest of the front matter, and the text after it; what is no mapping belongs to the text."""
    if text.startswith("{\n"):
        try:
            found, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            return "", "", text
        return (*_title(found), text[end:]) if "title" in found else ("", "", text)
    if not (front := _FENCED.match(text)):
        return "", "", text
    try:
        found = _READERS[front[1]](front[2])
    except (yaml.YAMLError, ValueError, RecursionError):
        return "", "", text
    return (*_title(found), text[front.end() :]) if isinstance(found, Mapping) else ("", "", text)


def _title(found: Mapping[object, object]) -> tuple[str, str]:
    """Return the title, and all other values as one text."""
    titles = [
        value for key, value in found.items() if str(key).lower() == "title" and not isinstance(value, (dict, list))
    ]
    others = " ".join(f"{key} {value}" for key, value in found.items() if str(key).lower() != "title" or not titles)
    return " ".join(map(str, titles)), others
