"""What is wrong with the value of a section: the errors of pydantic as lines, each with its place and what to do."""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from cort.runtime.errors import shorten, suggest
from cort.runtime.sections import (
    LINE,
    NOT_BLANK,
    TELLING,
    Section,
    choices_of,
    hint_of,
    is_section,
    keys_of,
    literals,
    noun_of,
    required_of,
    sections_of,
)

#: the keys that lead to it; what was found, what was expected and what to do
Mistake: TypeAlias = tuple[tuple[str, ...], str]

#: types of pydantic's errors -> the bound in its context, and how messages put it
BOUNDS = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "too_short": ("min_length", "at least {} of them"),
    "too_long": ("max_length", "at most {} of them"),
}
WORDS: dict[Any, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    tuple: "a list",
    dict: "a mapping",
    types.NoneType: "null",
    Any: "anything",
}


def mistakes_in(value: Any, hint: Any) -> list[Mistake]:
    """List the mistakes in a value and in all that is inside it."""
    try:
        if is_section(hint):
            # Its validator is built once.
            hint.model_validate(value)
        else:
            TypeAdapter(hint, config=Section.model_config).validate_python(value)
    except ValidationError as error:
        return list(mistakes_of(error, value, hint))
    return []


def lines_of(mistakes: Iterable[Mistake]) -> list[str]:
    """Write mistakes in a file as lines, each with the path of its place."""
    return [f"{'.'.join(path) or 'top level'}: {text}" for path, text in mistakes]


class Found(NamedTuple):
    """Where an error is.

    :ivar path: the keys that lead to it.
    :ivar value: what is there.
    :ivar choices: the types that it may be of.
    :ivar variants: the classes that an entry around it may be of.
    """

    path: tuple[str, ...]
    value: Any
    choices: list[Any]
    variants: list[type[Section]]


def mistakes_of(error: ValidationError, value: Any, hint: Any) -> Iterator[Mistake]:
    """Yield the mistakes that pydantic found in a value of a type: one for each place, and each unknown key."""
    of_values: dict[tuple[str, ...], tuple[bool, str]] = {}
    of_keys: dict[Mistake, None] = {}
    for one in error.errors(include_url=False):
        found = _find(value, hint, one["loc"])
        if mistakes := list(_about_keys(one, found)):
            of_keys |= dict.fromkeys(mistakes)
            continue
        path, fits, text = _about_value(one, found)
        if not text:
            continue
        # Of a choice of types, the one that fits the value says what is wrong with it.
        if path not in of_values or (fits and not of_values[path][0]):
            of_values[path] = fits, text
    inside = {path[:length] for path in of_values for length in range(len(path))} | {path for path, _ in of_keys}
    yield from of_keys
    yield from ((path, text) for path, (fits, text) in of_values.items() if fits or path not in inside)


def _about_keys(error: ErrorDetails, found: Found) -> Iterator[Mistake]:
    """Yield what an error says about the keys of a mapping."""
    name = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        yield _unknown(found, name)
    elif error["type"] == "missing" and isinstance(found.value, dict):
        yield found.path, f"found no key {name}, expected it to be set; add it"
    elif error["type"] == "union_tag_not_found" and isinstance(found.value, dict):
        yield from _without_variant(found)
    elif name == "[key]":
        yield _wrong_name(found, error)


def _about_value(error: ErrorDetails, found: Found) -> tuple[tuple[str, ...], bool, str]:
    """Return the place of a wrong value, whether it has the right type, and what is wrong with it."""
    context = error.get("ctx", {})
    if error["type"] == LINE:
        return (*found.path, *context["path"]), True, error["msg"]
    if error["type"] == "string_unicode":
        text = f"found {_shown(found.value)}, which is not UTF-8, expected text that is; rename or rewrite it"
    elif error["type"] == "missing":
        # A list of a fixed length.
        text = f"found {_shown(found.value)}, expected at least {len(found.value) + 1} of them; fix the value"
    elif error["type"] in BOUNDS:
        bound, words = BOUNDS[error["type"]]
        # Of a list, pydantic counts the right items alone; the others have lines of their own.
        if error["type"] == "too_short" and len(found.value) >= context[bound]:
            return found.path, True, ""
        text = f"found {_shown(found.value)}, expected {words.format(_number(context[bound]))}; fix the value"
    elif error["type"] == "string_pattern_mismatch" and context["pattern"] != NOT_BLANK:
        text = f"found the name {shorten(found.value)}, expected {letters(context['pattern'])}; rename it"
    else:
        return found.path, False, _wrong_type(found)
    return found.path, True, text


def _find(value: Any, hint: Any, loc: tuple[int | str, ...]) -> Found:
    """Follow the place of an error through value and type; names of variants and types are no part of the path."""
    path, choices = list[str](), choices_of(hint)
    # The classes that the last entry on the way, and the one that a tag was said of, may be of.
    variants, around = list[type[Section]](), list[type[Section]]()
    for step in loc:
        if isinstance(value, dict) and step in value:
            hints = [hint_of(keys_of(one)[step]) for one in sections_of(choices) if step in keys_of(one)]
            hints += [typing.get_args(one)[1] for one in choices if typing.get_origin(one) is dict]
            if hints:
                path.append(str(step))
                value = value[step]
                choices, variants = [one for hint in hints for one in choices_of(hint)], around or sections_of(choices)
                around = []
        elif isinstance(value, list | tuple) and isinstance(step, int) and step < len(value):
            path.append(str(step))
            parts = [typing.get_args(one) for one in choices if typing.get_origin(one) is tuple]
            value = value[step]
            choices = [one for first, *_ in parts for one in choices_of(first)]
        elif isinstance(step, str) and step.startswith("@"):
            around, choices = sections_of(choices), [one for one in sections_of(choices) if one.__name__ == step[1:]]
    return Found(tuple(path), value, choices, around or variants)


def _unknown(found: Found, name: str) -> Mistake:
    """Say what is wrong with a key: it is one of another variant, or of none."""
    (own,) = sections_of(found.choices)[:1]
    having = [one for one in found.variants if name in keys_of(one)]
    if not having:
        known = dict.fromkeys(key for one in [own, *found.variants] for key in keys_of(one))
        fix = suggest(name, known, "remove it")
        return found.path, f"found the unknown key {name}, expected one of {', '.join(known)}; {fix}"
    kind = keys_of(own).get("kind")
    alike = [one for one in having if kind and keys_of(one)["kind"].annotation == kind.annotation]
    required = required_of(own)
    alike = alike or [one for one in having if required <= required_of(one)]
    nouns = ", ".join(dict.fromkeys(map(noun_of, alike or having)))
    expected = f"found {name} with {noun_of(own)}, expected it only with {nouns}"
    return (*found.path, name), f"{expected}; remove it"


def _without_variant(found: Found) -> Iterator[Mistake]:
    """Say that an entry has an unknown key, or lacks the key that tells its variant."""
    variants = sections_of(found.choices)
    known = dict.fromkeys(key for one in variants for key in keys_of(one))
    unknown = [name for name in found.value if name not in known]
    for name in unknown:
        fix = suggest(name, known, "remove it")
        yield found.path, f"found the unknown key {name}, expected one of {', '.join(known)}; {fix}"
    if unknown:
        return
    for name in TELLING:
        values = [
            value for one in variants if name in keys_of(one) for value in literals([keys_of(one)[name].annotation])
        ]
        if name in found.value and values and found.value[name] not in values:
            choice = Found((*found.path, name), found.value[name], [Literal[tuple(dict.fromkeys(values))]], [])
            yield choice.path, _wrong_type(choice)
            return
    kinds = [literals([keys_of(one)["kind"].annotation]) for one in variants if "kind" in keys_of(one)]
    kind = found.value.get("kind", kinds[0][0]) if kinds else ""
    alike = [one for one in variants if not kind or kind in literals([keys_of(one)["kind"].annotation])]
    required = [[*required_of(one)] for one in alike]
    origins = " or ".join(dict.fromkeys(names[0] for names in required if len(names) == 1))
    yield found.path, f"found no key {origins}{kind and f' of a {kind}'}, expected it to be set; add it"


def _wrong_name(found: Found, error: ErrorDetails) -> Mistake:
    name = error["input"]
    if not isinstance(name, str):
        # As YAML reads 2019, yes and null.
        path = found.path[:-1] if found.path[-1:] == (str(name),) else found.path
        return path, f"found the key {name!r}, no string, expected a name; put it in quotes"
    return found.path, f"found the name {shorten(name)}, expected {letters(error['ctx']['pattern'])}; rename it"


def letters(pattern: str) -> str:
    """Describe the pattern of a name."""
    match = re.fullmatch(r"\^\[A-Za-z0-9\]\[A-Za-z0-9(.*)\]\*\$", pattern)
    return f"letters, digits and {' '.join(match[1])}, a letter or digit first" if match else f"a match of {pattern}"


def _number(value: float) -> str:
    return f"{int(value) if value == int(value) else value:,}"


def _shown(value: Any) -> str:
    return shorten(list(value) if isinstance(value, tuple) else value)


def _wrong_type(found: Found) -> str:
    choices = found.choices
    if any(typing.get_origin(one) is Literal for one in choices) and found.path:
        # The key that tells the variant may have the values of all.
        fields = [keys_of(one).get(found.path[-1]) for one in found.variants]
        choices = [one for field in fields if field for one in choices_of(hint_of(field))] or choices
    values = list(dict.fromkeys(literals(choices)))
    words = [WORDS[_form(one)] for one in choices if typing.get_origin(one) is not Literal]
    words += [f"one of {', '.join(map(str, values))}"] if len(values) > 1 else map(str, values)
    return f"found {_shown(found.value)}, expected {' or '.join(dict.fromkeys(words))}; {_fix(found.value, choices)}"


def _form(choice: Any) -> Any:
    return dict if is_section(choice) else typing.get_origin(choice) or choice


def _fix(value: Any, choices: list[Any]) -> str:
    forms = {_form(choice) for choice in choices}
    if value is None or (isinstance(value, str) and not value.strip()):
        if forms == {dict}:
            return "write {} or remove it" if sections_of(choices) else "add an entry or remove it"
        return "give a value or remove it"
    if isinstance(value, dict | list | tuple):
        return "fix the value"
    if forms == {str}:
        return "put it in quotes"
    if values := [*map(str, literals(choices))]:
        return suggest(str(value), values, "choose one" if forms == {Literal} else "fix the value")
    return _as_number(value, forms)


def _as_number(value: Any, forms: set[Any]) -> str:
    """Say how to write a number that is in quotes, or not whole."""
    number = math.nan
    if not isinstance(value, bool) and forms & {int, float}:
        with suppress(TypeError, ValueError):
            number = float(value)
    if not math.isfinite(number) or (float not in forms and not number.is_integer()):
        return "fix the value"
    if not isinstance(value, str):
        return f"write {int(number)}"
    # YAML takes 2e-5 for text and 2.0e-5 for a number.
    text = str(int(number)) if int in forms and number.is_integer() else repr(number)
    return f"write {text if '.' in text else text.replace('e', '.0e')}, without quotes"
