"""Check what keys declare about their values and only the whole config tells: whose names they take, and measures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cort.config.root import Root
from cort.evaluation.names import KNOWN, parse_measure
from cort.runtime.errors import check_name
from cort.runtime.sections import MEASURE, Names, Section, hint_of, keys_of, notes_on


def check_rules(root: Root, known: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each mistake.

    :param known: section -> its names, also those that the config only implies.
    """
    yield from _check(root, "", known)


def _check(section: Section, place: str, known: dict[str, Any]) -> Iterator[str]:
    for (name, field), value in zip(keys_of(type(section)).items(), dict(section).values(), strict=True):
        inside = f"{place}.{name}".lstrip(".")
        yield from _check_value(value, inside, known)
        notes = list(notes_on(hint_of(field)))
        for text in _texts(value):
            for note in notes:
                if isinstance(note, Names):
                    yield from check_name(inside, text, known[note.section])
            if MEASURE in notes and parse_measure(text) is None and text != field.default:
                yield f"{inside}: found {text!r}, expected one of {KNOWN}; fix it"


def _check_value(value: Any, place: str, known: dict[str, Any]) -> Iterator[str]:
    if isinstance(value, Section):
        yield from _check(value, place, known)
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _check_value(part, f"{place}.{name}", known)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value, a list of them, or a list of pairs."""
    if isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
