"""Errors that users can fix: one line that says where, what was found, what was expected and what to do."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

COMPLAINT_LENGTH = 200


class InputError(ValueError):
    """Something outside the program is wrong: a file, an argument or the machine. Shown without a traceback."""


def input_error(source: str | Path, found: object, expected: str, fix: str, row: int | None = None) -> InputError:
    """Create the one-line error about a file (or its row, from 1), a config key or an argument."""
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


def reason_of(error: BaseException) -> str:
    """Shorten the message of another library's error."""
    return shorten(str(error).strip() or type(error).__name__, COMPLAINT_LENGTH)


def check_name(place: str, name: str, known: Collection[str]) -> Iterator[str]:
    """Yield an error for an unknown name."""
    if name not in known:
        expected = f"one of {', '.join(known) or '(none is defined)'}"
        yield f"{place}: found {name!r}, expected {expected}; {suggest(name, known, 'add it or fix the name')}"


def suggest(name: str, known: Collection[str], otherwise: str) -> str:
    """Suggest the known name that is closest to an unknown one, or something else if none is close."""
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else otherwise
