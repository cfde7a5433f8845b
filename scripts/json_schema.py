"""The keys of a class as a JSON schema, for the reference and for editors; the program itself reads the class."""

import ast
import dataclasses
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from cort.runtime.keys import choices_of, keys_of
from cort.runtime.reading import of_entries

Schema: TypeAlias = dict[str, Any]

TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
OF_NUMBERS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
OF_LISTS, OF_MAPPINGS = {"least": "minItems", "most": "maxItems"}, {"least": "minProperties"}


def schema_of(hint: Any, rules: Mapping[str, Any] | None = None) -> Schema:
    """Write a type with its rules as a schema; a choice of types has the keywords of all."""
    *parts, last = [_of_choice(choice, rules or {}) for choice in choices_of(hint)]
    if parts and last == {"enum": ["auto"]}:
        return parts[0] | {"type": [parts[0]["type"], "string"], "pattern": "^auto$"}
    kinds = list(dict.fromkeys(part["type"] for part in [*parts, last] if "type" in part))
    schema: Schema = {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}
    for part in [*parts, last]:
        schema |= {key: value for key, value in part.items() if key != "type"}
    return schema | _of_keys(hint)


def _of_choice(choice: Any, rules: Mapping[str, Any]) -> Schema:
    first, *rest = typing.get_args(choice) or (choice,)
    form = typing.get_origin(choice)
    if dataclasses.is_dataclass(choice):
        return {"type": "object"}
    if form is Literal:
        return {"enum": [first, *rest]}
    if form is tuple:
        lengths = _named(OF_LISTS, rules) if rest == [...] else dict.fromkeys(OF_LISTS.values(), 1 + len(rest))
        return {"type": "array", **lengths, "items": schema_of(first, of_entries(rules))}
    if form is dict:
        names = {"propertyNames": {"pattern": rules["entries"]}} if "entries" in rules else {}
        entries = {} if rest == [Any] else {"additionalProperties": schema_of(rest[0], of_entries(rules))}
        return {"type": "object", **_named(OF_MAPPINGS, rules), **names, **entries}
    numbers = _named(OF_NUMBERS, rules) if choice in (int, float) else {}
    return {"type": TYPES[choice], **numbers, **({"pattern": rules["pattern"]} if "pattern" in rules else {})}


def _named(keywords: Mapping[str, str], rules: Mapping[str, Any]) -> Schema:
    return {keyword: rules[rule] for rule, keyword in keywords.items() if rule in rules}


def _of_keys(hint: Any) -> Schema:
    """Write the keys of a section, or of all sections that it is a choice of: the program knows which have which."""
    sections = [choice for choice in choices_of(hint) if dataclasses.is_dataclass(choice)]
    if not sections:
        return {}
    properties, required = {}, []
    texts = {name: text for section in sections for name, text in meanings(section).items()}
    for name, key in keys_of(hint).items():
        part = schema_of(key.hint, key.rules)
        part |= {"affects_results": False} if not key.rules.get("affects_results", True) else {}
        if key.default is dataclasses.MISSING:
            required.append(name)
        elif key.default is not None or key.rules.get("nullable"):
            part["default"] = list(key.default) if isinstance(key.default, tuple) else key.default
        properties[name] = part | ({"description": texts[name]} if name in texts else {})
    needed = {"required": required} if required and len(sections) == 1 else {}
    return {"additionalProperties": False, "properties": properties, **needed}


def meanings(cls: Any) -> dict[str, str]:
    """Read the meaning of each key of a class, inherited ones included, from the docstrings below its fields."""
    texts = {name: key.rules["meaning"] for name, key in keys_of(cls).items() if "meaning" in key.rules}
    for owner in reversed(cls.__mro__[:-1]):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        for statement, below in itertools.pairwise(getattr(body, "body", [])):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name.removesuffix("_")] = " ".join(text.split())
    return texts
