"""The command line of a stage: a section (`cort/runtime/sections.py`) <-> words of a command line.

`bool` is True or False, as the workflow writes it; a list takes any number of values; `X | None` may be omitted, or
given without a value. A field without a default is a required option. Words become values here; pydantic checks
them.
"""

from __future__ import annotations

import argparse
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from cort.runtime.errors import InputError
from cort.runtime.mistakes import mistakes_of
from cort.runtime.sections import Contents, Metavar, Section, choices_of, hint_of, literals, meanings, notes_on

Options = TypeVar("Options", bound=Section)

# No digits of other scripts, no underscores or spaces, nothing that needs more than 64 bits.
NUMBERS = {
    int: re.compile(r"[+-]?[0-9]{1,18}"),
    float: re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"),
}
TRUTH = {"True": True, "False": False, "true": True, "false": False}
METAVARS = {int: "N", float: "X", str: "NAME"}


class Form(NamedTuple):
    """How the words of an option become its value.

    :ivar choices: the types that a word may be of.
    :ivar many: whether it takes a list of words.
    :ivar may_lack: whether it may be None.
    :ivar file: what is in the file or folder that it names.
    :ivar shown: what `--help` calls its value, unless its type says it.
    """

    choices: tuple[Any, ...]
    many: bool
    may_lack: bool
    file: Contents | None
    shown: str

    @property
    def metavar(self) -> str:
        """Name the value for `--help`."""
        if self.shown:
            return self.shown
        values = literals(list(self.choices))
        if bool in self.choices:
            return "True|False"
        if values and all(typing.get_origin(choice) is typing.Literal for choice in self.choices):
            return f"{{{','.join(map(str, values))}}}"
        return next(METAVARS[choice] for choice in self.choices if choice in METAVARS)


def form_of(field: FieldInfo) -> Form:
    """Describe the words of a field."""
    choices = choices_of(field.annotation)
    lists = [choice for choice in choices if typing.get_origin(choice) is tuple]
    words = choices_of(typing.get_args(lists[0])[0]) if lists else choices
    notes = list(notes_on(hint_of(field)))
    file = next((note for note in notes if isinstance(note, Contents)), None)
    shown = next((note[0] for note in notes if isinstance(note, Contents | Metavar)), "")
    kept = tuple(choice for choice in words if choice is not types.NoneType)
    return Form(kept, bool(lists), types.NoneType in choices, file, shown)


def option_of(name: str) -> str:
    """Return the option for a field of this name."""
    return f"--{name.replace('_', '-')}"


class Parser(argparse.ArgumentParser):
    """A parser that says what options mean in `--help` alone: reading that from the sources slows every start down."""

    meanings: Callable[[], dict[str, str]] = dict
    described: Mapping[str, argparse.Action] = MappingProxyType({})

    def add_section(self, options: type[Section]) -> None:
        """Add the options of a section."""
        self.described, self.meanings = add_options(self, options), partial(meanings, options)

    def format_help(self) -> str:
        """Write the help, with the meaning of each option."""
        texts = self.meanings()
        for name, action in self.described.items():
            action.help = texts.get(name, "").replace("%", "%%")
        return super().format_help()


def add_options(parser: argparse.ArgumentParser, options: type[Section]) -> dict[str, argparse.Action]:
    """Add a long option for every field; return them by the field's name."""
    added = {}
    for name, field in options.model_fields.items():
        form = form_of(field)
        given: dict[str, Any] = {"required": True} if field.is_required() else {"default": argparse.SUPPRESS}
        if form.many:
            # `--runs a b` and `--runs=-a --runs=b` are both taken.
            given |= {"nargs": "+" if field.is_required() else "*", "action": "extend"}
        elif bool in form.choices:
            # `--open` means `--open True`.
            given |= {"nargs": "?", "const": "True"}
        elif form.may_lack:
            given["nargs"] = "?"
        added[name] = parser.add_argument(option_of(name), metavar=form.metavar, **given)
    return added


def parse_options(options: type[Options], args: argparse.Namespace) -> Options:
    """Read the words of a command line.

    :raises InputError: with a line per mistake.
    """
    values = dict[str, Any]()
    for name, field in options.model_fields.items():
        words = getattr(args, name, None)
        if words is not None:
            form = form_of(field)
            values[name] = (
                tuple(value_of(word, form) for word in words) if isinstance(words, list) else value_of(words, form)
            )
    try:
        return options.model_validate(values)
    except ValidationError as error:
        lines = [f"{option_of(path[0])}: {text}" for path, text in mistakes_of(error, values, options)]
        raise InputError("\n".join(lines)) from None


def value_of(word: str, form: Form) -> Any:
    """Return what a word means: the word itself, which is then a mistake, if nothing."""
    for choice in form.choices:
        if choice in NUMBERS and NUMBERS[choice].fullmatch(word):
            return choice(word)
        known = TRUTH if choice is bool else {str(value): value for value in literals([choice])}
        if word in known:
            return known[word]
    return word


def words_of(values: Mapping[str, Any]) -> list[str]:
    """Format options as words: `--name=value`, so that `-x` is a value; one for each value of a list, none for None."""
    listed = ((name, value if isinstance(value, tuple | list) else (value,)) for name, value in values.items())
    return [f"{option_of(name)}={value}" for name, given in listed for value in given if value is not None]


def to_words(options: Section) -> list[str]:
    """Format options as the words of the command line that yields them."""
    return words_of({name: getattr(options, name) for name in type(options).model_fields})


def take(options: type[Options], given: Section) -> Options:
    """Take the values of a section from options with more fields."""
    return options.model_construct(**{name: getattr(given, name) for name in options.model_fields})  # type: ignore[return-value]


class Named(NamedTuple):
    """A file or folder that an option names."""

    option: str
    form: str
    path: str

    @property
    def is_output(self) -> bool:
        """Tell whether the stage writes it."""
        return self.option.startswith("output")


def places_of(options: Section) -> Iterator[Named]:
    """Yield each file and folder that options name; also one given as NAME=FILE."""
    for name, field in type(options).model_fields.items():
        if (file := form_of(field).file) is None:
            continue
        value = getattr(options, name)
        for path in value if isinstance(value, tuple) else (value,):
            if path:
                yield Named(name, file.form, path.partition("=")[2] if "=" in file.form else path)
