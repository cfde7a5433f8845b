"""Command line options of a stage: a class whose fields are keys (`cort/runtime/keys.py`) <-> words of a command line.

A field's type decides how words are read: `bool` is True or False, as the workflow writes it; `tuple[X, ...]` takes any
number of values; `X | None` may be omitted, or given without a value. A field without a default is a required option.
"""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, TypeVar

from cort.runtime.errors import InputError
from cort.runtime.keys import Key, keys_of, setting
from cort.runtime.reading import mistakes_in, value_of

Options = TypeVar("Options")

MOST_THREADS = 4096
#: metavars of files and folders, alone or as NAME=FILE; some names may also be those of a hub
PLACES = {"FILE", "FOLDER", "TREC", "PARQUET", "ARROW", "CSV", "JSON", "JSONL", "YAML", "HTML"}
PLACES |= {"NAME_OR_FOLDER", "NAME@COMMIT"}


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
def options_class(cls: type[Options]) -> type[Options]:
    """Decorate a class of options: an immutable dataclass with keyword arguments only."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


#: declares an option with a default that is no key of the config
optional = setting


def required(metavar: str | None = None, help: str = "", **rules: Any) -> Any:
    """Declare a required option that is no key of the config."""
    return setting(dataclasses.MISSING, help, metavar, **rules)


def thread_count(default: int = 1, help: str = "") -> Any:
    """Declare an option that is a number of threads or processes."""
    return setting(default, help, "N", ge=1, le=MOST_THREADS)


def option_of(name: str) -> str:
    """Return the option for a field of this name."""
    return f"--{name.replace('_', '-')}"


def add_options(parser: argparse.ArgumentParser, options: type[Any]) -> None:
    """Add a long option for every field of a dataclass."""
    for name, key in keys_of(options).items():
        parser.add_argument(option_of(name), help=key.help, **_describe(key))


def parse_options(options: type[Options], args: argparse.Namespace) -> Options:
    """Read the words of a command line.

    :raises InputError: with a line per mistake.
    """
    values, lines = {}, list[str]()
    for name, key in keys_of(options).items():
        given = getattr(args, name, dataclasses.MISSING)
        if given is dataclasses.MISSING:
            # As if given: the processes of a training get all options as words.
            values[name] = float(key.default) if key.hint is float and key.default is not None else key.default
            continue
        if isinstance(given, list):
            entry, *_ = typing.get_args(key.hint)
            given = [value_of(word, entry) for word in given]
        elif given is not None:
            given = value_of(given, key.hint)
        values[name] = tuple(given) if isinstance(given, list) else given
        if given is not None:
            lines += [f"{option_of(name)}: {text}" for _, text in mistakes_in(given, key.hint, key.rules)]
    if lines:
        raise InputError("\n".join(lines))
    return options(**values)


def read_options(options: type[Options], given: object) -> Options:
    """Take the values of a dataclass from options with more fields."""
    return options(**{field.name: getattr(given, field.name) for field in dataclasses.fields(options)})  # type: ignore[arg-type]


def places_of(options: Any, outputs: bool) -> Iterator[str]:
    """Yield the files and folders that options name: outputs, or all others. Their metavar is one of `PLACES`."""
    for name, key in keys_of(type(options)).items():
        _, named, kind = (key.metavar or "").rpartition("=")
        if kind in PLACES and name.startswith("output") == outputs:
            places = (value.partition("=")[2] if named else value for value in _values(options, name))
            yield from filter(None, places)


def words_of(name: str, value: Any) -> list[str]:
    """Format a value, or the values of a list, as the words of an option; nothing for None and an empty list.

    A value that begins with a hyphen is part of the word, or it would be read as an option.
    """
    option = option_of(name)
    if not isinstance(value, list | tuple):
        return [] if value is None else [f"{option}={value}"]
    values = [*map(str, value)]
    if any(word.startswith("-") for word in values):
        return [f"{option}={word}" for word in values]
    return [option, *values] if values else []


def to_words(options: Any) -> list[str]:
    """Format options as the words of the command line that yields them."""
    return [
        word for field in dataclasses.fields(options) for word in words_of(field.name, getattr(options, field.name))
    ]


def _values(options: Any, name: str) -> tuple[Any, ...]:
    value = getattr(options, name)
    return value if isinstance(value, tuple) else (value,)


def _describe(key: Key) -> dict[str, Any]:
    """Return the keyword arguments of `add_argument` for an option; its words are read by `parse_options`."""
    required = key.default is dataclasses.MISSING
    given: dict[str, Any] = {"required": True} if required else {"default": argparse.SUPPRESS}
    hint = key.hint
    if typing.get_origin(hint) is tuple:
        # `--runs a b` and `--runs=a --runs=b` mean the same.
        hint, given["nargs"], given["action"] = typing.get_args(hint)[0], "+" if required else "*", "extend"
    elif key.may_lack:
        given["nargs"] = "?"
    if hint is bool:
        # `--open` means `--open True`.
        return given | {"metavar": "True|False", "nargs": "?", "const": "True"}
    if typing.get_origin(hint) is typing.Literal:
        return given | {"metavar": f"{{{','.join(map(str, typing.get_args(hint)))}}}"}
    return given | {"metavar": key.metavar}
