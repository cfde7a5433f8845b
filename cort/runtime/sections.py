"""Sections: pydantic models of the keys of a config and of the options of a stage, and what is wrong with their values.

A field's type, default and bounds are pydantic's; the docstring below a field is its meaning, in the reference of keys
and in `--help`. A variant of a section is a class of its own, and its docstring is what messages call it.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import itertools
import os
import textwrap
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

# Plugins of other packages, which nothing here needs, take a tenth of a second to look for.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, PydanticUndefined, core_schema

Value = TypeVar("Value")
#: a type of an error of `line`, whose text is complete
LINE = "line"
NOT_BLANK = r"\S"


class Section(BaseModel):
    """Keys of a config or options of a stage; an unknown one is a mistake."""

    # `defer_build`: a stage starts without building the validators of sections that it does not use.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True, allow_inf_nan=False)


# What is said about a key beside its type.


class Names(NamedTuple):
    """A key that takes names of a section of the config."""

    section: str


class Contents(NamedTuple):
    """An option that is a file or folder; `form` is what is in it, as `--help` shows it."""

    form: str


class Metavar(NamedTuple):
    """What `--help` calls the value of an option."""

    name: str


class Mark(NamedTuple):
    """A fact about a key without a value of its own."""

    about: str


#: a key that takes measures beside its default
MEASURE = Mark("measure")
#: a key that changes speed or safety, and no result
SPEED = Mark("speed")


class NotNull:
    """A key that is absent, None in Python, unless it is set: a config may not say null."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate the type, with its bounds, without None; defaults are not validated."""
        schema = handler(source)
        return schema["schema"] if schema["type"] == "nullable" else schema


def line(text: str, path: tuple[str, ...] = ()) -> PydanticCustomError:
    """Create the error of a validator whose text is the whole line after the place, which `path` leads on from."""
    return PydanticCustomError(LINE, "{text}", {"text": text, "path": path})


def _unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    shown = [f"[{', '.join(item)}]" if isinstance(item, tuple) else item for item in values]
    for item, times in Counter(shown).items():
        if times > 1:
            raise line(f"found {item} {times} times, expected each once; remove one")
    return values


def _increasing(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if list(values) != sorted(set(values)):
        raise line(f"found {list(values)}, expected increasing numbers; sort them")
    return values


def _no_truth(value: Any) -> Any:
    # In Python, True is 1, and so it is for pydantic's choices.
    if isinstance(value, bool):
        raise PydanticCustomError("literal_error", "a truth value")
    return value


UNIQUE, INCREASING, NO_TRUTH = AfterValidator(_unique), AfterValidator(_increasing), BeforeValidator(_no_truth)

#: text that is not blank: an empty one was rather forgotten
Text: TypeAlias = Annotated[str, Field(pattern=NOT_BLANK)]
#: a list, which YAML and a command line give where Python has a tuple
Several: TypeAlias = Annotated[tuple[Value, ...], Field(strict=False)]
#: a key that is absent unless it is set
NOT_NULL = NotNull()
Maybe: TypeAlias = Annotated[Value | None, NOT_NULL]


class FirstFitting:
    """An entry is of the first of several classes whose required keys it has, with the values that these spell out."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Join the classes as a union with tags, their names after an @."""
        classes = {f"@{one.__name__}": one for one in choices_of(source)}

        def choose(entry: Any) -> str | None:
            if isinstance(entry, Section):
                return f"@{type(entry).__name__}"
            is_entry = isinstance(entry, dict)
            return next((tag for tag, one in classes.items() if is_entry and _fits(one, entry)), None)

        choices = {tag: handler.generate_schema(one) for tag, one in classes.items()}
        return core_schema.tagged_union_schema(choices, discriminator=choose)


def _fits(section: type[Section], entry: dict[str, Any]) -> bool:
    for name, field in keys_of(section).items():
        if field.is_required() and name not in entry:
            return False
        values = literals(choices_of(hint_of(field)))
        if len(values) == 1 and name in TELLING and entry.get(name, field.default) not in values:
            return False
    return True


def variant_of(field: FieldInfo, entry: dict[str, Any]) -> type[Section] | None:
    """Return the class of an entry of a section of named entries; None if it is of none."""
    (hint,) = (typing.get_args(choice)[1] for choice in choices_of(field.annotation))
    return next((one for one in sections_in(hint) if _fits(one, entry)), None)


def default_of(section: type[Section], name: str) -> Any:
    """Return the default of a key."""
    return section.model_fields[name].default


def has_default(field: FieldInfo) -> bool:
    """Tell whether a key that is not set has a value."""
    is_absent = any(isinstance(note, NotNull) for note in field.metadata) and field.default is None
    return not field.is_required() and not is_absent


FIRST_FITTING = FirstFitting()
#: keys whose value tells the class of an entry
TELLING = ("kind", "method", "form")


def within(low: float, high: float) -> Callable[[Any], Any]:
    """Create a check of all numbers in a value."""

    def check(value: Any) -> Any:
        for path, number in _numbers(value):
            if not low <= number <= high:
                bound = f"at most {high:,}" if number > high else f"at least {low:,}"
                raise line(f"found {number}, expected {bound}; fix the value", path)
        return value

    return check


def _numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(part, (*path, str(key)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def by_name(value: Any) -> Any:
    """Sort free keys, whose order means nothing; declared ones are in the order of their declaration."""
    return {key: by_name(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def same_as(owner: type[Section], name: str, required: bool = False, **changed: Any) -> Any:
    """Declare an option that is also a key of a section: with its bounds, meaning and, unless given, its default."""
    field = copy.copy(owner.model_fields[name])
    if required or "default" in changed:
        field.default, field.default_factory = changed.get("default", PydanticUndefined), None
        field._attributes_set = {**field._attributes_set, "default": field.default}
    field.metadata = [*field.metadata, Same(owner, name)]
    return field


class Same(NamedTuple):
    """The key that an option is, too."""

    owner: type[Section]
    name: str


#: number of threads or processes
Threads: TypeAlias = Annotated[int, Field(ge=1, le=4096)]
AnyFile: TypeAlias = Annotated[Text, Contents("FILE")]
FolderPath: TypeAlias = Annotated[Text, Contents("FOLDER")]
TrecFile: TypeAlias = Annotated[Text, Contents("TREC")]
ParquetFile: TypeAlias = Annotated[Text, Contents("PARQUET")]
ArrowFile: TypeAlias = Annotated[Text, Contents("ARROW")]
CsvFile: TypeAlias = Annotated[Text, Contents("CSV")]
JsonFile: TypeAlias = Annotated[Text, Contents("JSON")]
YamlFile: TypeAlias = Annotated[Text, Contents("YAML")]
JsonLinesFile: TypeAlias = Annotated[Text, Contents("JSONL")]
HtmlFile: TypeAlias = Annotated[Text, Contents("HTML")]


# What a class declares.


def is_section(hint: Any) -> bool:
    """Tell whether a type is a section."""
    return isinstance(hint, type) and issubclass(hint, Section)


def hint_of(field: FieldInfo) -> Any:
    """Return the type of a field with what is said about it."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def choices_of(hint: Any) -> list[Any]:
    """List the types that a type is a choice of, without what is said about them; None only where null is a value."""
    form, (first, *rest) = typing.get_origin(hint), (*typing.get_args(hint), None)
    if form is Annotated:
        choices = choices_of(first)
        is_null = not any(isinstance(note, NotNull) for note in rest)
        return [choice for choice in choices if is_null or choice is not types.NoneType]
    if form in (types.UnionType, typing.Union):
        return [choice for part in typing.get_args(hint) for choice in choices_of(part)]
    return [hint]


def notes_on(hint: Any) -> Iterator[Any]:
    """Yield what is said about a type and about the types in it, without its bounds."""
    form, parts = typing.get_origin(hint), typing.get_args(hint)
    if form is Annotated:
        yield from (note for note in parts[1:] if isinstance(note, Names | Contents | Metavar | Mark | NotNull))
        yield from notes_on(parts[0])
    elif form in (types.UnionType, typing.Union, tuple, dict):
        for part in parts:
            yield from notes_on(part)


def keys_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys of a section by name; one that is a word of Python, such as `from`, is a field `from_`."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def sections_in(hint: Any) -> list[type[Section]]:
    """List the sections that a type is a choice of."""
    return sections_of(choices_of(hint))


def plain(section: Section) -> dict[str, Any]:
    """Write a section as a mapping, as a file would have it: with lists, and without keys that are absent."""
    values: dict[str, Any] = {}
    for name, field in keys_of(type(section)).items():
        value = getattr(section, name if name in type(section).model_fields else f"{name}_")
        if value is not None or types.NoneType in choices_of(hint_of(field)):
            values[name] = _plain(value)
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return plain(value)
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [*map(_plain, value)] if isinstance(value, tuple | list) else value


@functools.cache
def meanings(section: type[BaseModel]) -> dict[str, str]:
    """Read the meaning of each key, inherited ones included, from the docstrings below the fields.

    Read on demand: pydantic would read them whenever a stage starts, which takes as long as building the section.
    """
    texts = {name: field.description for name, field in section.model_fields.items() if field.description}
    for owner in reversed(section.__mro__):
        if is_section(owner) and owner is not Section:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
            for statement, below in itertools.pairwise(getattr(body, "body", [])):
                match statement, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        texts[name] = " ".join(text.split())
    for name, field in section.model_fields.items():
        same = next((note for note in field.metadata if isinstance(note, Same)), None)
        if same and name not in texts:
            texts[name] = meanings(same.owner).get(same.name, "")
    return texts


def noun_of(section: type[BaseModel]) -> str:
    """Return what messages call an entry of this class: the first line of its docstring."""
    words = (inspect.getdoc(section) or section.__name__).partition("\n")[0].rstrip(".")
    return words[0].lower() + words[1:]


def literals(choices: Iterable[Any]) -> list[Any]:
    """List the values that are spelled out in types."""
    return [value for choice in choices if typing.get_origin(choice) is Literal for value in typing.get_args(choice)]


def sections_of(choices: Iterable[Any]) -> list[type[Section]]:
    """Return those of some types that are sections."""
    return [choice for choice in choices if is_section(choice)]


def required_of(section: type[Section]) -> set[str]:
    """Return the required keys of a section, without the one whose value tells its class."""
    return {name for name, field in keys_of(section).items() if field.is_required() and name not in TELLING}
