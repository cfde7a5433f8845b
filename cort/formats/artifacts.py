"""Reading JSON that others wrote: every access is checked, every complaint names the file and the place in it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from cort.system.errors import InputError, input_error, shorten

KINDS: dict[type, str] = {str: "a text", int: "a whole number", float: "a number", dict: "an object", list: "a list"}


class Node:
    """A value inside a JSON file that remembers where it stands, so that a complaint can say so."""

    #: What to do about a value that is not as expected.
    fix = "delete the file and build it again"

    def __init__(self, source: str | Path, value: Any, place: str = "") -> None:
        self.source = source
        self.value = value
        self.place = place

    def __getitem__(self, key: str) -> Self:
        """Return the member `key` of an object; refused when this is no object or has no such member."""
        fields = self.of(dict)
        if key not in fields:
            raise self.complain(f"no {key!r}")
        return type(self)(self.source, fields[key], f"{self.place}.{key}" if self.place else key)

    def get(self, key: str) -> Self | None:
        """Return the member `key`, or None where it is missing or null."""
        return self[key] if self.of(dict).get(key) is not None else None

    def members(self) -> list[tuple[str, Self]]:
        """List the members of an object, in the order of the file."""
        return [(key, self[key]) for key in self.of(dict)]

    def items(self) -> list[Self]:
        """List the elements of a list."""
        return [type(self)(self.source, one, f"{self.place}[{row}]") for row, one in enumerate(self.of(list))]

    def of(self, kind: type) -> Any:
        """Return the value, which must be of `kind`: str, int, float (takes whole numbers too), dict or list."""
        allowed = (int, float) if kind is float else kind
        wrong = not isinstance(self.value, allowed) or (kind is not bool and isinstance(self.value, bool))
        if wrong or (isinstance(self.value, float) and not math.isfinite(self.value)):
            raise self.complain(self._shown(), KINDS.get(kind, kind.__name__))
        return self.value

    def _shown(self) -> str:
        # A text in quotes, so that "3" and 3 can be told apart; all else as it stands in the file.
        text = self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False)
        return shorten(text) if isinstance(self.value, str) else shorten(text).strip("'")

    def text(self) -> str:
        """Return the value as a text."""
        value: str = self.of(str)
        return value

    def count(self) -> int:
        """Return the value as a whole number from 0 on."""
        value: int = self.of(int)
        if value < 0:
            raise self.complain(str(value), "a number from 0 on")
        return value

    def number(self) -> float | None:
        """Return the value as a float; None where it is null."""
        return None if self.value is None else float(self.of(float))

    def complain(self, found: str, expected: str = "the fields that the stage before writes") -> InputError:
        """Make the error for this place of this file."""
        where = f" at {self.place}" if self.place else ""
        return input_error(self.source, found + where, expected, self.fix)


def read_json(path: str | Path) -> Node:
    """Read a JSON file; refuse bytes that are none."""
    raw = Path(path).read_bytes()
    try:
        return Node(path, json.loads(raw.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise input_error(
            path, f"unreadable content ({error})", "a JSON document in UTF-8", "delete the file and build it again"
        ) from error


def parse_assignments(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Split ``NAME=VALUE`` arguments at their first ``=``; each name once."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise input_error(option, shorten(text), "NAME=VALUE", "put the name before the first `=`")
        if name in found:
            raise input_error(option, f"the name {shorten(name)} twice", "each name once", "drop or rename one")
        found[name] = value
    return found
