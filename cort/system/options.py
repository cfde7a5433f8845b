"""Options of a command line from the fields of a dataclass: name, type, default and help are said once, there.

A field's type decides how its option is parsed: `int`, `float`, `str`, `bool` (True or False, as the workflow writes
it), `Literal` (a choice), `tuple[X, ...]` (any number of values), `X | None` (may be left out, or given without a
value). A field without a default is an option that must be given.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, TypeVar

Settings = TypeVar("Settings")

LARGEST, MOST_THREADS = sys.maxsize, 4096


def required(metavar: str | None = None, help: str = "") -> Any:
    """Field of an option that must be given."""
    return dataclasses.field(metadata={"metavar": metavar, "help": help})


def optional(default: object, help: str = "", metavar: str | None = None) -> Any:
    """Field of an option with a default; of a setting, that of the experiment's schema."""
    return dataclasses.field(default=default, metadata={"metavar": metavar, "help": help})


def thread_count(default: int = 1, help: str = "") -> Any:
    """Field of an option that is a number of threads or processes."""
    return dataclasses.field(default=default, metadata={"metavar": "N", "help": help, "type": _threads})


def flag(help: str = "") -> Any:
    """Field of an option that is True if it is named: ``--open``, or ``--open True``."""
    return dataclasses.field(default=False, metadata={"help": help, "nargs": "?", "const": True})


def add_options(parser: argparse.ArgumentParser, settings: type[Any]) -> None:
    """Add a long option for every field of a dataclass."""
    hints = typing.get_type_hints(settings)
    for field in dataclasses.fields(settings):
        parser.add_argument(f"--{field.name.replace('_', '-')}", **_describe(field, hints[field.name]))


def read_options(settings: type[Settings], args: argparse.Namespace | object) -> Settings:
    """Take the values of a dataclass from parsed arguments, or from options that have more fields."""
    values = {field.name: getattr(args, field.name) for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    return settings(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def texts_of(options: Any, outputs: bool) -> Iterator[str]:
    """Values that are text: of the options that name outputs, or of all others."""
    for field in dataclasses.fields(options):
        if field.name.startswith("output") == outputs:
            value = getattr(options, field.name)
            yield from (one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, str))


def to_words(options: Any) -> list[str]:
    """Write options as the words of a command line that gives them again."""
    words = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value is not None and value != ():
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{field.name.replace('_', '-')}", *map(str, values)]
    return words


def _describe(field: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    """Keyword arguments of the option."""
    found = {key: value for key, value in field.metadata.items() if value}
    needed = field.default is dataclasses.MISSING
    found |= {"required": True} if needed else {"default": field.default}
    if typing.get_origin(hint) is tuple:
        hint, found["nargs"] = typing.get_args(hint)[0], "+" if needed else "*"
    # A choice or nothing is another kind of union than a number or nothing.
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint, found["nargs"] = next(one for one in typing.get_args(hint) if one is not type(None)), "?"
    if hint is bool:
        return found | {"type": _boolean, "metavar": "True|False"}
    if typing.get_origin(hint) is typing.Literal:
        choices = typing.get_args(hint)
        return found | {"type": type(choices[0]), "choices": choices, "metavar": None}
    return {"type": {int: _whole, float: _number}.get(hint, hint)} | found


def _whole(text: str) -> int:
    """Take a number that libraries can hold; none has a meaning below 0."""
    number = int(_plain(text))
    if not 0 <= number <= LARGEST:
        raise ValueError
    return number


def _threads(text: str) -> int:
    number = _whole(text)
    if not 1 <= number <= MOST_THREADS:
        raise ValueError
    return number


def _number(text: str) -> float:
    number = float(_plain(text))
    if not math.isfinite(number):
        raise ValueError
    return number


def _plain(text: str) -> str:
    """Refuse what Python alone takes for a number: digits of other scripts, with underscores or blanks."""
    if not text.isascii() or "_" in text or text.split() != [text]:
        raise ValueError
    return text


# What argparse calls the kinds in its complaints.
_whole.__name__, _number.__name__ = f"whole number from 0 to {LARGEST}:", "number:"
_threads.__name__ = f"number from 1 to {MOST_THREADS}:"


def _boolean(text: str) -> bool:
    if text not in ("True", "False"):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected True or False")
    return text == "True"
