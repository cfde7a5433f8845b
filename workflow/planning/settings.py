"""Name what differs between the params of two runs of a job: settings of the config, files of code.

A rule's settings are recorded as `settings {"path.in.the.config": value, ...}`, its code as `{"file": "hash", ...}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from workflow.code import read_code
from workflow.params import SETTINGS

LONGEST = 60
SHOWN = 5


class Params(NamedTuple):
    """Params of a job: settings by their path, hashes of code by file, and the reprs of all others."""

    settings: dict[str, Any]
    code: dict[str, str]
    others: list[str]


def changed(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """Say in words what differs between recorded and planned params, each given as reprs."""
    old, new = parse(before), parse(now)
    yield from _few([f"the setting {words}" for words in _differences(old.settings, new.settings)], "settings")
    yield from _few(list(_edited(old.code, new.code)), "files of its code")
    lost, gained = _exclusive(old.others, new.others)
    if lost or gained:
        yield f"its params changed: {_join(lost) or 'nothing'} -> {_join(gained) or 'nothing'}"


def parse(reprs: Sequence[str]) -> Params:
    """Sort params by what they are."""
    found = Params({}, {}, [])
    for text in reprs:
        if text.startswith(SETTINGS):
            found.settings.update(json.loads(text.removeprefix(SETTINGS)))
        elif code := read_code(text):
            found.code.update(code)
        else:
            found.others.append(text)
    return found


def _few(words: Sequence[str], what: str) -> list[str]:
    more = [f"{len(words) - SHOWN} more {what} changed"] if len(words) > SHOWN else []
    return [*words[:SHOWN], *more]


def _edited(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for file in {**after, **before}:
        if file not in before:
            yield f"{file} is now part of its code"
        elif file not in after:
            yield f"{file} is no longer part of its code"
        elif before[file] != after[file]:
            yield f"{file} changed"


def _differences(before: dict[str, Any], after: dict[str, Any], place: str = "") -> Iterator[str]:
    for key in {**after, **before}:
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{place}{key}.")
        elif old != new:
            yield _describe(f"{place}{key}", old, new)


def _describe(setting: str, old: Any, new: Any) -> str:
    """Say what became of a value; None is one that is not there."""
    if old is None or new is None:
        value, change = (new, "is new") if old is None else (old, "is gone")
        return f"{setting} {change}" + ("" if isinstance(value, dict) else f": {_write(value)}")
    if not isinstance(old, list) or not isinstance(new, list):
        return f"{setting} changed: {_write(old)} -> {_write(new)}"
    lost, gained = _exclusive(old, new)
    if not lost and not gained:
        return f"{setting} changed: now in the order {_join(new)}"
    words = [f"{word} {_join(values)}" for word, values in (("without", lost), ("with", gained)) if values]
    return f"{setting} changed: now {', '.join(words)}"


def _exclusive(old: Sequence[Any], new: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    return [value for value in old if value not in new], [value for value in new if value not in old]


def _join(values: Sequence[Any]) -> str:
    return _shorten(" ".join(map(str, values)))


def _write(value: Any) -> str:
    return _shorten(_join(value) if isinstance(value, list) else str(value))


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
