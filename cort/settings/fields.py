"""Declare the keys of a config as fields of a dataclass, and write them as a JSON schema.

A key's type, default and bounds are those of its field; its meaning is the docstring below the field. A key whose
default is None is absent from a config that does not set it, unless the field is `nullable`: then it is null.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, TypeVar

from cort.runtime.options import optional

Schema: TypeAlias = dict[str, Any]
Precision: TypeAlias = Literal["fp32", "bf16", "fp16"]
PrecisionOrAuto: TypeAlias = Literal["auto", "fp32", "bf16", "fp16"]
Cleaning: TypeAlias = Literal["raw", "fixed", "cort"]

#: patterns of names: of files and folders; of splits, which are part of patterns of paths; of systems
NAME = "^[A-Za-z0-9][A-Za-z0-9_.-]*$"
SPLIT_NAME = "^[A-Za-z0-9][A-Za-z0-9_-]*$"
SYSTEM_NAME = "^[A-Za-z0-9][A-Za-z0-9+_.-]*$"

AUTO = "^auto$"
# Names of bounds here and in JSON schemas, of numbers and of lists.
OF_NUMBERS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
OF_LISTS = {"least": "minItems", "most": "maxItems"}
# Rules that JSON schema does not have; `cort/experiment/rules.py` checks them.
RULES = ("names", "measures", "unique", "increasing")
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
# Stands for the default of a key.
OF_KEY = object()


def setting(default: Any = dataclasses.MISSING, help: str = "", metavar: str | None = None, **rules: Any) -> Any:
    """Declare a key with bounds or other rules; a key without is a plain field.

    :param help: of the option, if stages inherit the key; `metavar` likewise.
    :param rules: `ge`, `gt`, `le`, `lt` of a number, or of each number in a list; `least` and `most` items of a list;
        `pattern` of a text; `nullable`; `may_be_empty`; `affects_results=False` for a key that only changes speed or
        safety; `names`: the section whose names it takes; `measures`, which it takes beside its default; `unique` and
        `increasing` entries of a list; `also`: further rules of JSON schema.
    """
    return optional(default, help, metavar, **rules)


def as_key(owner: type[Any], key: str, help: str = "", metavar: str | None = None, default: Any = OF_KEY) -> Any:
    """Declare an option that is also a key of a section, `owner`: with its rules and, unless given, default and help.

    Stages that have options for all keys of a section inherit it instead. The option may have another name.
    """
    field = owner.__dataclass_fields__[key]
    own: dict[str, Any] = {"help": "", "metavar": None, "key": (owner, key), **field.metadata}
    given = {"help": help or own["help"], "metavar": metavar or own["metavar"]}
    return dataclasses.field(default=field.default if default is OF_KEY else default, metadata={**own, **given})


def named(pattern: str, required: bool = False) -> Any:
    """Declare a section of named entries; a required one has at least one entry."""
    rules = {"entries": pattern} | ({"also": {"minProperties": 1}} if required else {})
    return dataclasses.field(default_factory=dataclasses.MISSING if required else dict, metadata={"rules": rules})


Section = TypeVar("Section")


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
def section(cls: type[Section]) -> type[Section]:
    """Decorate a class of keys, whose fields stages inherit; it gets no methods, which take time to make."""
    return dataclasses.dataclass(init=False, repr=False, eq=False, frozen=True)(cls)


@section
class General:
    """Top-level keys that are also options of stages."""

    seed: int = setting(42, metavar="N", ge=0, le=4_294_967_295)
    depth: int = setting(1000, "results per query", "N", ge=1, le=100_000)


@section
class Released:
    """Keys of all models that may come from a hub."""

    revision: str | None = setting(None, "commit of the hub repository; required for a hub name")
    """Commit of the hub repository, all 40 digits, with `pretrained`; required with a hub name."""


def key_of(field: str) -> str:
    """Return the key of a field; one that is a word of Python, such as `from`, has an underscore at the end."""
    return field.removesuffix("_")


@functools.cache
def schema_of(cls: Any) -> Schema:
    """Return the JSON schema of a dataclass; callers must not change it."""
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    properties = {key_of(field.name): _schema_of_field(field, hints[field.name]) for field in fields}
    required = [key_of(field.name) for field in fields if field.default is field.default_factory is dataclasses.MISSING]
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": required} if required else {})


def descriptions(cls: type[Any]) -> dict[str, str]:
    """Read the meaning of each key, inherited ones included, from the source code of a dataclass."""
    texts: dict[str, str] = {}
    for field in dataclasses.fields(cls):
        texts |= {field.name: field.metadata["meaning"]} if "meaning" in field.metadata else {}
    for owner in reversed(cls.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0].body  # type: ignore[attr-defined]
        for statement, below in itertools.pairwise(body):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[key_of(name)] = " ".join(text.split())
    return texts


def described(cls: Any) -> Schema:
    """Return the schema of a dataclass with the meaning of each key, for people and editors."""
    schema = copy.deepcopy(schema_of(cls))
    texts = descriptions(cls)
    for name, hint in typing.get_type_hints(cls).items():
        name = key_of(name)
        part = schema["properties"][name]
        # A key that several kinds of entries share is described in the first of them.
        part |= {"description": texts[name]} if name in texts else {}
        inner = part["additionalProperties"] if "propertyNames" in part else part
        for section in sections_in(hint):
            for key, inner_part in described(section)["properties"].items():
                if "description" in inner_part:
                    inner["properties"][key] = inner_part
    return schema


def sections_in(hint: Any) -> Iterator[Any]:
    """Find the dataclasses that a key's type consists of."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for part in typing.get_args(hint):
        yield from sections_in(part)


def _schema_of_field(field: dataclasses.Field[Any], hint: Any) -> Schema:
    rules = field.metadata.get("rules", {})
    schema = _schema_of_type(hint, rules)
    if rules.get("may_be_empty"):
        schema["type"] = [schema["type"], "empty"]
    if rules.get("nullable"):
        schema["type"] = [schema["type"], "null"]
    schema |= {key: rules[key] for key in ("pattern", "affects_results") if key in rules} | rules.get("also", {})
    schema |= {"rules": own} if (own := {key: rules[key] for key in RULES if key in rules}) else {}
    if field.default_factory is not dataclasses.MISSING:
        schema["default"] = {}
    elif field.default is not dataclasses.MISSING and (field.default is not None or rules.get("nullable")):
        schema["default"] = list(field.default) if isinstance(field.default, tuple) else field.default
    return schema


def _schema_of_type(hint: Any, rules: dict[str, Any]) -> Schema:
    """Write a type as a schema; None stands for an absent key and is ignored."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _schema_of_choice([part for part in parts if part is not types.NoneType], rules)
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is tuple:
        return _schema_of_tuple(parts, rules)
    if origin is dict:
        return _schema_of_mapping(parts[1], rules)
    if dataclasses.is_dataclass(hint):
        return dict(schema_of(typing.cast(Any, hint)))
    bounds = {OF_NUMBERS[key]: value for key, value in rules.items() if key in OF_NUMBERS and hint in (int, float)}
    return {"type": TYPES[hint], **bounds}


def _schema_of_choice(parts: list[Any], rules: dict[str, Any]) -> Schema:
    """Write a union: of a single type, of sections, of a number and `auto`, or of a text and a list of texts."""
    schemas = [_schema_of_type(part, rules) for part in parts]
    if len(parts) > 1 and all(map(dataclasses.is_dataclass, parts)):
        # Checks of the config decide which of them is meant, and what it needs.
        properties: Schema = {}
        for key, value in (pair for schema in schemas for pair in schema["properties"].items()):
            if properties.setdefault(key, value) != value:
                raise TypeError(f"{key}: declared in two ways by kinds of one section: {properties[key]} and {value}")
        return {"type": "object", "additionalProperties": False, "properties": properties}
    if len(parts) > 1 and parts[1] == Literal["auto"]:
        return schemas[0] | {"type": [schemas[0]["type"], "string"], "pattern": AUTO}
    merged = {key: value for schema in schemas for key, value in schema.items()}
    return merged | ({"type": [schema["type"] for schema in schemas]} if len(parts) > 1 else {})


def _schema_of_tuple(parts: tuple[Any, ...], rules: dict[str, Any]) -> Schema:
    if parts[-1] is not Ellipsis:
        return {"type": "array", "minItems": len(parts), "maxItems": len(parts), "items": {"type": TYPES[parts[0]]}}
    lengths = {OF_LISTS[key]: value for key, value in rules.items() if key in OF_LISTS}
    return {"type": "array", **lengths, "items": _schema_of_type(parts[0], rules)}


def _schema_of_mapping(value: Any, rules: dict[str, Any]) -> Schema:
    if value is Any:
        return {"type": "object"}
    names = {"propertyNames": {"pattern": rules["entries"]}} if "entries" in rules else {}
    return {"type": "object", **names, "additionalProperties": _schema_of_type(value, rules)}
