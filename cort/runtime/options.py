"""Command line options, defined by the fields of a dataclass: name, type, default and help.

A field's type decides how its option is parsed: `int`, `float`, `str`, `bool` (True or False, as the workflow writes
it), `Literal` (a choice), `tuple[X, ...]` (any number of values), `X | None` (may be omitted, or given without a
value). A field without a default is a required option.
"""

import argparse
import dataclasses
import math
import operator
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, TypeVar

from cort.runtime.errors import input_error

Settings = TypeVar("Settings")

LARGEST, MOST_THREADS = sys.maxsize, 4096
#: metavars of files and folders, alone or as NAME=FILE; some names may also be those of a hub
PLACES = {"FILE", "FOLDER", "TREC", "PARQUET", "ARROW", "CSV", "JSON", "JSONL", "YAML", "HTML"}
PLACES |= {"NAME_OR_FOLDER", "NAME@COMMIT"}
#: what a field's metadata say to argparse
FOR_ARGPARSE = ("metavar", "help", "choices")
# What must hold of a value and its bound, and how messages put it.
BOUNDS = {
    "ge": (operator.ge, "{:,} or more"),
    "gt": (operator.gt, "more than {:,}"),
    "le": (operator.le, "at most {:,}"),
    "lt": (operator.lt, "less than {:,}"),
}


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
def options_class(fields: type[Settings]) -> type[Settings]:
    """Make a class with fields for options an immutable dataclass with keyword arguments only."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(fields)


def required(metavar: str | None = None, help: str = "", **rules: Any) -> Any:
    """Field of a required option; of those that are keys of the config, see `cort.settings.fields.as_key`."""
    return optional(dataclasses.MISSING, help, metavar, **rules)


def optional(default: Any, help: str = "", metavar: str | None = None, **rules: Any) -> Any:
    """Field of an option with a default, or of a key of the config.

    :param rules: `ge`, `gt`, `le` and `lt` of a number, or of each number in a list; `increasing` numbers in a list.
        Keys have further rules, which are checked before any stage runs.
    """
    return dataclasses.field(default=default, metadata={"metavar": metavar, "help": help, "rules": rules})


def thread_count(default: int = 1, help: str = "") -> Any:
    """Field of an option that is a number of threads or processes."""
    return optional(default, help, "N", ge=1, le=MOST_THREADS)


def add_options(parser: argparse.ArgumentParser, settings: type[Any]) -> None:
    """Add a long option for every field of a dataclass."""
    hints = typing.get_type_hints(settings)
    for field in dataclasses.fields(settings):
        parser.add_argument(f"--{field.name.replace('_', '-')}", **_describe(field, hints[field.name]))


def read_options(settings: type[Settings], args: argparse.Namespace | object) -> Settings:
    """Read the values of a dataclass from parsed arguments, or from options with more fields."""
    values = {field.name: getattr(args, field.name) for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    return settings(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def check_bounds(options: Any) -> None:
    """Refuse numbers out of bounds or order."""
    for field in dataclasses.fields(options):
        option, values = f"--{field.name.replace('_', '-')}", _values(options, field)
        rules = field.metadata.get("rules", {})
        bounds = [(*BOUNDS[rule], bound) for rule, bound in rules.items() if rule in BOUNDS]
        for value in values:
            if isinstance(value, int | float) and not all(holds(value, bound) for holds, _, bound in bounds):
                expected = ", ".join(words.format(bound) for _, words, bound in bounds)
                shown = f"{value:g}" if isinstance(value, float) else value
                raise input_error(option, shown, expected, "change it")
        if "increasing" in rules and list(values) != sorted(set(values)):
            raise input_error(option, " ".join(map(str, values)), "increasing numbers", "give each once, in order")


def places_of(options: Any, outputs: bool) -> Iterator[str]:
    """Yield the files and folders that options name: outputs, or all others. Their metavar is one of `PLACES`."""
    for field in dataclasses.fields(options):
        _, named, kind = (field.metadata.get("metavar") or "").rpartition("=")
        if kind in PLACES and field.name.startswith("output") == outputs:
            places = (value.partition("=")[2] if named else value for value in _values(options, field))
            yield from filter(None, places)


def to_words(options: Any) -> list[str]:
    """Format options as the words of the command line that yields them."""
    words = []
    for field in dataclasses.fields(options):
        values = _values(options, field)
        if values not in ((), (None,)):
            words += [f"--{field.name.replace('_', '-')}", *map(str, values)]
    return words


def _values(options: Any, field: dataclasses.Field[Any]) -> tuple[Any, ...]:
    value = getattr(options, field.name)
    return value if isinstance(value, tuple) else (value,)


def _describe(field: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    """Return the keyword arguments of `add_argument` for an option."""
    given = {key: field.metadata[key] for key in FOR_ARGPARSE if field.metadata.get(key)}
    required = field.default is dataclasses.MISSING
    given |= {"required": True} if required else {"default": field.default}
    if typing.get_origin(hint) is tuple:
        hint, given["nargs"] = typing.get_args(hint)[0], "+" if required else "*"
    # `Literal | None` is a Union, `int | None` a UnionType.
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint, given["nargs"] = next(part for part in typing.get_args(hint) if part is not type(None)), "?"
    if hint is float and type(field.default) is int:
        # As if given on the command line: the processes of a training get all options as words.
        given["default"] = float(field.default)
    if hint is bool:
        # `--open` means `--open True`.
        return given | {"type": _boolean, "metavar": "True|False", "nargs": "?", "const": True}
    if typing.get_origin(hint) is typing.Literal:
        choices = typing.get_args(hint)
        return given | {"type": type(choices[0]), "choices": choices, "metavar": None}
    return {"type": {int: _integer, float: _number}.get(hint, hint)} | given


def _integer(text: str) -> int:
    """Parse plain digits of an integer that libraries can represent; no option may be negative."""
    number = int(_plain(text))
    if not 0 <= number <= LARGEST:
        raise ValueError
    return number


def _number(text: str) -> float:
    number = float(_plain(text))
    if not math.isfinite(number):
        raise ValueError
    return number


def _plain(text: str) -> str:
    """Refuse numbers that only Python accepts: with digits of other scripts, underscores or spaces."""
    if not text.isascii() or "_" in text or text.split() != [text]:
        raise ValueError
    return text


# How argparse names the types in its errors.
_integer.__name__, _number.__name__ = f"whole number from 0 to {LARGEST}:", "number:"


def _boolean(text: str) -> bool:
    if text not in ("True", "False"):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected True or False")
    return text == "True"
