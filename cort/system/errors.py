"""Errors that a user can fix: one line that says where, what was found, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path


class InputError(ValueError):
    """Something outside this program is wrong, as a file, an argument or the machine; shown without a traceback."""


def input_error(source: str | Path, found: str, expected: str, fix: str, row: int | None = None) -> InputError:
    """Build the one-line error about a file (or its row, from 1), a config key or an argument."""
    place = f"{source}: row {row}" if row is not None else f"{source}"
    return InputError(" ".join(f"{place}: found {found}, expected {expected}; {fix}".split()))


@contextmanager
def naming(source: str | Path, copy: str | Path) -> Iterator[None]:
    """Let errors about a temporary copy name the original instead."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(str(copy), str(source))) from error


def shorten(value: object, limit: int = 60) -> str:
    """Format an untrusted value for an error line: printable, at most `limit` characters, text in quotes."""
    if isinstance(value, str):
        return repr(value if len(value) <= limit else value[: limit - 1] + "…")
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def check_name(place: str, name: str, known: Collection[str]) -> Iterator[str]:
    """Refuse a name that is not known, with the one that was meant if it is near."""
    if name not in known:
        import difflib

        near = difflib.get_close_matches(name, known, 1)
        fix = f"did you mean {near[0]}?" if near else "add it or fix the name"
        yield f"{place}: found {name!r}, expected one of {', '.join(known) or '(none is defined)'}; {fix}"
