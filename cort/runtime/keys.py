"""Declare the keys of a config and the options of a stage: fields of a dataclass, of which all readers learn the same.

A key's type, default and rules are those of its field. One whose default is None is absent unless it is set; if it is
`nullable`, it is null. The meaning of a key of the config is the docstring below its field; an option has a `help`.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any, Literal, TypeVar

Section = TypeVar("Section")


def setting(default: Any = MISSING, help: str = "", metavar: str | None = None, **rules: Any) -> Any:
    """Declare a key or option with rules; a key without any is a plain field.

    :param help: of the option; stages inherit keys or take them by `cort.settings.fields.as_key`. `metavar` likewise.
    :param rules: `ge`, `gt`, `le`, `lt` of a number, or of each number in a list or mapping; `least` and `most` entries
        of a list or mapping, `unique` or `increasing` ones; `pattern` of a text; `entries`, the pattern of names in a
        mapping; `choices`, where a type cannot list them, and `meaning`, where a docstring cannot; `nullable`;
        `may_be_empty`; `affects_results=False` for a key that only changes speed or safety; `names`: the section whose
        names it takes; `measures`, which it takes beside its default.
    """
    return dataclasses.field(default=default, metadata={"metavar": metavar, "help": help, "rules": rules})


def named(pattern: str, required: bool = False) -> Any:
    """Declare a section of named entries; a required one has at least one entry."""
    rules = {"entries": pattern} | ({"least": 1} if required else {})
    return dataclasses.field(default_factory=MISSING if required else dict, metadata={"rules": rules})


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
def section(cls: type[Section]) -> type[Section]:
    """Decorate a class of keys, whose fields stages inherit; it gets no methods, which take time to make."""
    return dataclasses.dataclass(init=False, repr=False, eq=False, frozen=True)(cls)


@dataclasses.dataclass(frozen=True)
class Key:
    """A key or option as it was declared.

    :ivar hint: its type, with None only if a config may say null.
    :ivar default: MISSING if it must be set, None if it is absent unless it is set; an empty mapping of a section.
    :ivar may_lack: whether its type has None.
    """

    hint: Any
    rules: Mapping[str, Any]
    default: Any
    may_lack: bool = False
    help: str = dataclasses.field(default="", compare=False)
    metavar: str | None = dataclasses.field(default=None, compare=False)


def keys_of(hint: Any) -> dict[str, Key]:
    """Return the keys of a class by name, or of all the classes that a type is a choice of; none of other types."""
    return _keys_of(hint)


@functools.cache
def _keys_of(hint: Any) -> dict[str, Key]:
    keys: dict[str, Key] = {}
    for section in filter(dataclasses.is_dataclass, choices_of(hint)):
        hints = typing.get_type_hints(section)
        for field in dataclasses.fields(section):
            # One that is a word of Python, such as `from`, is a field `from_`.
            name, key = field.name.removesuffix("_"), _key_of(field, hints[field.name])
            if keys.setdefault(name, key) != key:
                raise TypeError(f"{name}: declared in two ways by variants of one section: {keys[name]} and {key}")
    return keys


def _key_of(field: dataclasses.Field[Any], hint: Any) -> Key:
    about: dict[str, Any] = {"rules": {}, "help": "", "metavar": None, **field.metadata}
    rules, choices = about["rules"], choices_of(hint)
    kept = [one for one in choices if one is not types.NoneType or rules.get("nullable")]
    hint = Literal[tuple(rules["choices"])] if "choices" in rules else typing.Union[tuple(kept)]  # noqa: UP007
    default = field.default if field.default_factory is MISSING else {}
    return Key(hint, rules, default, types.NoneType in choices, about["help"], about["metavar"])


def part_of(hint: Any, name: str) -> Key:
    """Return the key of this name, or an entry of this name in a mapping of named entries."""
    entries = [typing.get_args(choice)[1] for choice in choices_of(hint) if typing.get_origin(choice) is dict]
    return keys_of(hint).get(name) or Key(entries[0] if entries else Any, {}, None)


def in_order(values: Any, hint: Any) -> Any:
    """Copy nested mappings with the keys of a section in the order in which they are declared, others sorted.

    Named entries of a section stay in the order of their file, which is that of tables and pages.
    """
    if not isinstance(values, dict):
        return values
    keys = [*keys_of(hint)]
    of_sections = keys_of(part_of(hint, "").hint)
    names = [*values] if of_sections and not keys else sorted(values)
    names.sort(key=lambda name: keys.index(name) if name in keys else len(keys))
    return {name: in_order(values[name], part_of(hint, name).hint) for name in names}


def choices_of(hint: Any) -> tuple[Any, ...]:
    """List the types that a type is a choice of."""
    # `Literal | None` is a Union, `int | None` a UnionType.
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
