"""JSON artifacts, each written from and read into a dataclass; errors name the file and the place in it."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import sys
import types
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cort.formats.fields import parse_json
from cort.system.errors import InputError, input_error, shorten
from cort.system.files import write_text

Artifact = TypeVar("Artifact")

KINDS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}
FIX = "delete the file and build it again"


def write_artifact(path: str | Path, artifact: Any) -> None:
    """Write a dataclass, or what JSON can hold, atomically, with fields in order.

    A field whose key in the file differs from its name has the `key` in its metadata.
    """
    write_text(path, to_json(artifact))


def to_json(artifact: Any) -> str:
    """Serialize a dataclass to the text of a file."""

    def members(record: Any) -> dict[str, Any]:
        return {key: getattr(record, name) for name, key, _ in _fields(record.__class__)}

    return json.dumps(artifact, default=members, ensure_ascii=False, indent=2) + "\n"


def read_artifact(path: str | Path, kind: type[Artifact]) -> Artifact:
    """Read what `write_artifact` wrote: a dataclass `kind`, or any type that a field of one can have.

    Integers must not be negative. Members that are not fields are ignored. A dataclass may have a method
    ``check(node)`` that compares its fields, and raises an error about the `Node`. The first field that is missing or
    of another type is refused.
    """
    artifact: Artifact = read_json(path).read(kind)
    return artifact


def csv_text(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Format comma-separated values with all digits; None is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


@functools.cache
def _fields(kind: type) -> list[tuple[str, str, Any]]:
    """List the fields of a dataclass: name, key in the file, type."""
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    return [(field.name, field.metadata.get("key", field.name), hints[field.name]) for field in fields]


class Node:
    """A value in a JSON file, and its place there for error messages."""

    def __init__(self, source: str | Path, value: Any, place: str = "", fix: str = FIX) -> None:
        self.source = source
        self.value = value
        self.place = place
        self.fix = fix

    def __getitem__(self, key: str) -> Node:
        """Return the member `key` of an object; refuse other types, and objects without that member."""
        members = self.of(dict)
        if key not in members:
            raise self.complain(f"no {key!r}")
        return Node(self.source, members[key], f"{self.place}.{key}" if self.place else key, self.fix)

    def items(self) -> list[Node]:
        """List the elements of a list."""
        return [Node(self.source, item, f"{self.place}[{row}]", self.fix) for row, item in enumerate(self.of(list))]

    def read(self, kind: Any) -> Any:
        """Convert the value to a dataclass, str, int, float, bool, a list, tuple or dict of these, or X | None."""
        arguments = typing.get_args(kind)
        if dataclasses.is_dataclass(kind):
            return self._read_fields(kind)
        match typing.get_origin(kind) or kind:
            case types.UnionType:
                return None if self.value is None else self.read(arguments[0])
            case origin if origin in (list, tuple):
                return origin(item.read(arguments[0]) for item in self.items())
            case origin if origin is dict and arguments:
                return {key: self[key].read(arguments[1]) for key in self.of(dict)}
        value = self.of(kind)
        if kind is int and value < 0:
            raise self.complain(value, "0 or more")
        return kind(value)

    def _read_fields(self, kind: Any) -> Any:
        record = kind(**{name: self[key].read(hint) for name, key, hint in _fields(kind)})
        if hasattr(record, "check"):
            record.check(self)
        return record

    def of(self, kind: type) -> Any:
        """Return the value, which must be of `kind`: str, int, float (also takes integers), bool, dict or list."""
        allowed = (int, float) if kind is float else kind
        wrong = not isinstance(self.value, allowed) or (kind is not bool and isinstance(self.value, bool))
        # JSON can hold integers that are too large for a float, or for any count.
        most = {float: sys.float_info.max, int: sys.maxsize}
        if wrong or (kind in most and not abs(self.value) <= most[kind]):
            # Text is quoted, to distinguish "3" from 3; other values appear as in the file.
            is_text = isinstance(self.value, str)
            found = shorten(self.value) if is_text else shorten(json.dumps(self.value, ensure_ascii=False)).strip("'")
            raise self.complain(found, KINDS[kind])
        return self.value

    def within(self, kind: type, least: float, most: float) -> Any:
        """Return an int or float within bounds."""
        value = self.read(kind)
        if not least <= value <= most:
            raise self.complain(value, f"a number from {least:g} to {most:g}")
        return value

    def complain(self, found: object, expected: str = "the fields that the previous stage writes") -> InputError:
        """Create an error about this place in the file."""
        where = f" at {self.place}" if self.place else ""
        is_option = str(self.source).startswith("--")
        return input_error(self.source, f"{found}{where}", expected, "fix it" if is_option else self.fix)


def read_json(path: str | Path, fix: str = FIX) -> Node:
    """Read a JSON file; refuse one that is not valid JSON.

    :param fix: what to do about wrong values; the default is for files that a stage wrote.
    """
    return parse_document(path, Path(path).read_bytes(), fix)


def json_option(option: str, text: str) -> dict[str, Any]:
    """Parse the value of an option, which must be a JSON object."""
    value: dict[str, Any] = parse_document(option, text.encode(errors="replace"), "fix it").of(dict)
    return value


def parse_document(source: str | Path, raw: bytes, fix: str) -> Node:
    """Parse JSON in UTF-8; errors name its `source`, and what to do."""
    try:
        value = parse_json(raw.decode("utf-8"))
        if b"\\u" in raw:
            # An unpaired surrogate could not be written again.
            json.dumps(value, ensure_ascii=False).encode()
        return Node(source, value, fix=fix)
    except (ValueError, RecursionError) as error:
        raise input_error(source, f"unreadable content ({error})", "a JSON document in UTF-8", fix) from error


def parse_assignments(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Split ``NAME=VALUE`` arguments at their first ``=``; each name must be unique."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise input_error(option, shorten(text), "NAME=VALUE", "put the name before the first `=`")
        if name in values:
            raise input_error(option, f"the name {shorten(name)} twice", "each name once", "drop or rename one")
        values[name] = value
    return values
