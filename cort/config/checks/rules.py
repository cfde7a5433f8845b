"""Check what keys declare about their values and only the whole config tells: whose names they take, and measures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo

from cort.config.root import Root
from cort.evaluation.names import KNOWN, parse_measure
from cort.runtime.errors import check_name
from cort.runtime.sections import MEASURE, Names, Section, hint_of, keys_of, notes_on


def check_rules(root: Root) -> Iterator[str]:
    """Yield a line for each mistake."""
    for place, field, text in _texts(root, "", None):
        notes = list(notes_on(hint_of(field)))
        for note in notes:
            if isinstance(note, Names):
                yield from check_name(place, text, getattr(root, note.section))
        if MEASURE in notes and parse_measure(text) is None and text != field.default:
            yield f"{place}: found {text!r}, expected one of {KNOWN}; fix it"


def _texts(value: Any, place: str, field: FieldInfo | None) -> Iterator[tuple[str, FieldInfo, str]]:
    """Yield each text in a value: its place, the field that it is in, and the text itself."""
    if isinstance(value, Section):
        for (name, own), (_, part) in zip(keys_of(type(value)).items(), value, strict=True):
            yield from _texts(part, f"{place}.{name}".lstrip("."), own)
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _texts(part, f"{place}.{name}", field)
    elif isinstance(value, tuple):
        for part in value:
            yield from _texts(part, place, field)
    elif isinstance(value, str) and field:
        yield place, field, value
