"""JSON objects that are no lines: an array of objects, or objects of several lines each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from cort.formats.fields import BadLine
from cort.formats.lines import Rows
from cort.runtime.errors import shorten

# What is between objects; the next line at which one can begin; characters that are read at once.
_BETWEEN, _NEXT, PIECE = re.compile(r"[\s,\[\]]*"), re.compile(r"\n(?=\s*\{)"), 1 << 16
_BEGINS = re.compile(rb"\s*(?:\[\s*(?:\{|\]|\Z)|\{\s*(?:\n|\Z))")
_DECODER = json.JSONDecoder()


def begins(head: bytes) -> bool:
    """Whether a file begins with an array of objects, or with an object that does not end in its line."""
    return _BEGINS.match(head) is not None


def iter_objects(lines: Rows[str]) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Yield objects, counted from 1, with memory for a few of them.

    A broken one costs no other that begins a line.
    """
    more = (f"{line}\n" for _, line in lines)
    text, place, number = "", 0, 0
    while True:
        place = _end(_BETWEEN.match(text, place))
        try:
            found, end = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            at = getattr(error, "pos", len(text))
            if at >= len(text.rstrip()) and (piece := _piece(more, len(text) - place)):
                text, place = text[place:] + piece, 0
                continue
            if place == len(text):
                return
            found, end = _broken(text[place:], error), len(text)
            if following := _NEXT.search(text, max(at, place + 1) - 1):
                end = following.end()
        number, place = number + 1, end
        yield number, found if isinstance(found, dict | BadLine) else _broken(str(found), None)


def _end(match: re.Match[str] | None) -> int:
    return match.end() if match else 0


def _piece(lines: Iterator[str], least: int) -> str:
    """Read as much as there is of an object already, so that long ones are not parsed again for each line."""
    piece = list[str]()
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size >= max(least, PIECE):
            break
    return "".join(piece)


def _broken(text: str, error: Exception | None) -> BadLine:
    reason = f" ({error})" if error else ""
    return BadLine(f"{shorten(text)}{reason}", "JSON objects", "correct the row")
