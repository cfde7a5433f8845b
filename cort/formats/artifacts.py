"""JSON artifacts, each written from and read into a dataclass; errors name the file and the place in it."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cort.formats.fields import parse_json
from cort.runtime.errors import InputError, input_error, shorten
from cort.runtime.files import write_text

Artifact = TypeVar("Artifact")

KINDS: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}
FIX = "delete the file and build it again"
#: first characters of cells that spreadsheets compute, some of them after removing a blank
FORMULAS = ("=", "+", "-", "@", "\t", "\n")
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


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

    Members that are not fields are ignored, and fields with a default may be missing. A dataclass may have a method
    ``check(node)`` that compares its fields, and raises an error about the `Node`. The first other field that is
    missing or of another type is refused.
    """
    artifact: Artifact = read_json(path).read(kind)
    return artifact


def csv_text(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Format comma-separated values with all digits; None is an empty cell. Texts are `harmless`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(harmless, row) for row in rows)
    return text.getvalue()


def harmless(cell: Any) -> Any:
    """Keep a spreadsheet from computing a text, which somebody else may have written; numbers stay numbers."""
    if not isinstance(cell, str):
        return cell
    # `csv` does not quote a carriage return, after which readers begin a row.
    text = cell.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(FORMULAS) and not NUMBER.fullmatch(text) else text


@functools.cache
def _fields(kind: type) -> list[tuple[str, str, Any]]:
    """List the fields of a dataclass: name, key in the file, type."""
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    return [(field.name, field.metadata.get("key", field.name), hints[field.name]) for field in fields]


@functools.cache
def _defaults(kind: type) -> frozenset[str]:
    """List the fields of a dataclass that have a default: older files lack them."""
    return frozenset(field.name for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING)


@dataclass(frozen=True)
class Node:
    """A value in a JSON file, and its place there for error messages."""

    source: str | Path
    value: Any
    place: str = ""
    fix: str = FIX

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
        arguments, origin = typing.get_args(kind), typing.get_origin(kind) or kind
        if dataclasses.is_dataclass(kind):
            members = self.of(dict)
            named = [one for one in _fields(origin) if one[1] in members or one[0] not in _defaults(origin)]
            record = origin(**{name: self[key].read(hint) for name, key, hint in named})
            if hasattr(record, "check"):
                record.check(self)
            return record
        if origin is types.UnionType:
            return None if self.value is None else self.read(arguments[0])
        if origin is dict and arguments:
            return {key: self[key].read(arguments[1]) for key in self.of(dict)}
        return origin(item.read(arguments[0]) for item in self.items()) if arguments else kind(self.of(kind))

    def of(self, kind: type) -> Any:
        """Return the value, which must be of `kind`: str, int, float (also takes integers), bool, dict or list."""
        accepted = (int, float) if kind is float else kind
        if not isinstance(self.value, accepted) or (isinstance(self.value, bool) and kind is not bool):
            # Text is quoted, to distinguish "3" from 3; other values appear as in the file.
            text = self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False)
            raise self.complain(shorten(text) if text is self.value else shorten(text).strip("'"), KINDS[kind])
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
        return input_error(self.source, f"{found}{where}", expected, self.fix)


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
        return Node(source, parse_json(raw.decode("utf-8")), fix=fix)
    except ValueError as error:
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
