"""JSON artifacts, each written from and read into a dataclass; errors name the file and the place in it."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cort.formats.fields import parse_json
from cort.runtime.errors import InputError, input_error, shorten
from cort.runtime.files import write_text

Artifact = TypeVar("Artifact")

FIX = "delete the file and build it again"
DOCUMENT, FIELDS = "a JSON document in UTF-8", "the fields that the previous stage writes"
#: first characters of cells that spreadsheets compute, some of them after removing a blank
FORMULAS = ("=", "+", "-", "@", "\t", "\n")
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def write_artifact(path: str | Path, artifact: Any) -> None:
    """Write a dataclass, or what JSON can hold, atomically, with fields in order."""
    write_text(path, to_json(artifact))


def to_json(artifact: Any) -> str:
    """Serialize a dataclass to the text of a file."""
    return json.dumps(artifact, default=vars, ensure_ascii=False, indent=2) + "\n"


def read_artifact(path: str | Path, kind: type[Artifact]) -> Artifact:
    """Read what `write_artifact` wrote: a dataclass `kind`, or any type that a field of one can have.

    Members that are not fields are ignored, and fields with a default may be missing. The first other field that is
    missing or of another type is refused.
    """
    return parse_json_as(path, Path(path).read_bytes(), kind, FIX)


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """Read the rows that `csv_text` wrote, by the names of its header."""
    with Path(path).open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


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


@dataclass(frozen=True)
class Node:
    """A value in a JSON file of others, and its place there for error messages."""

    source: str | Path
    value: Any
    place: str = ""
    fix: str = FIX

    def __getitem__(self, key: str) -> Node:
        """Return the member `key` of an object; refuse other types, and objects without that member."""
        members = self.of(dict)
        if key not in members:
            raise self.complain(f"no {key!r}")
        return Node(self.source, members[key], _below(self.place, key), self.fix)

    def items(self) -> list[Node]:
        """List the elements of a list."""
        return [Node(self.source, item, _below(self.place, row), self.fix) for row, item in enumerate(self.of(list))]

    def read(self, kind: Any) -> Any:
        """Convert the value to a dataclass, str, int, float, bool, a list, tuple or dict of these, or X | None."""
        return parse_json_as(self.source, json.dumps(self.value).encode(), kind, self.fix, self.place)

    of = read

    def complain(self, found: object, expected: str = FIELDS) -> InputError:
        """Create an error about this place in the file."""
        where = f" at {self.place}" if self.place else ""
        return input_error(self.source, f"{found}{where}", expected, self.fix)


def read_json(path: str | Path, fix: str = FIX) -> Node:
    """Read a JSON file; refuse one that is not valid JSON.

    :param fix: what to do about wrong values; the default is for files that a stage wrote.
    """
    try:
        return Node(path, parse_json(Path(path).read_bytes().decode("utf-8")), fix=fix)
    except ValueError as error:
        raise input_error(path, f"unreadable content ({error})", DOCUMENT, fix) from error


def json_option(option: str, text: str) -> dict[str, Any]:
    """Parse the value of an option, which must be a JSON object."""
    return parse_json_as(option, text.encode(errors="replace"), dict[str, Any], "fix it")


def parse_json_as(source: str | Path, raw: bytes, kind: type[Artifact], fix: str, place: str = "") -> Artifact:
    """Parse JSON in UTF-8 as a type, as `read_artifact` does; errors name its `source`, and what to do.

    :param place: of the value in a larger one, for errors.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(raw, strict=True)
    except ValidationError as errors:
        error = errors.errors(include_url=False)[0]
    value, told = error["input"], error["msg"]
    if error["type"] == "json_invalid":
        raise input_error(source, f"unreadable content ({told.removeprefix('Invalid JSON: ')})", DOCUMENT, fix)
    *above, last = ["", *error["loc"]]
    if error["type"] == "missing":
        raise Node(source, None, functools.reduce(_below, above, place), fix).complain(f"no {last!r}")
    # Text is quoted, to distinguish "3" from 3; other values appear as in the file.
    shown = shorten(value) if isinstance(value, str) else shorten(json.dumps(value, ensure_ascii=False)).strip("'")
    where = functools.reduce(_below, error["loc"], place)
    raise Node(source, None, where, fix).complain(shown, told.removeprefix("Input should be "))


def _below(place: str, step: int | str) -> str:
    return f"{place}[{step}]" if isinstance(step, int) else f"{place}.{step}".strip(".")
