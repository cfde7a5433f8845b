"""The error a user can fix: one line that says where, what was found, what was expected and what to do."""

from __future__ import annotations

from pathlib import Path


class InputError(ValueError):
    """Something outside this program is wrong: a file, an argument, the machine. Shown without a traceback."""


def input_error(source: str | Path, found: str, expected: str, fix: str, row: int | None = None) -> InputError:
    """Build the one-line message every reader uses.

    :param source: the file, config key or argument at fault.
    :param row: the row in that file, counted from 1; None when the whole file is meant.
    """
    place = f"{source}: row {row}" if row is not None else f"{source}"
    line = f"{place}: found {found}, expected {expected}; {fix}"
    return InputError(" ".join(line.split()))


def shorten(text: str, limit: int = 60) -> str:
    """Quote untrusted text for an error line: printable, in quotes, at most `limit` characters."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")
