"""Read what was written for a key or option: its type, its rules and a value -> all mistakes in it."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeAlias

from cort.runtime.errors import shorten, suggest
from cort.runtime.keys import choices_of, keys_of

Rules: TypeAlias = Mapping[str, Any]
Path: TypeAlias = tuple[str, ...]
Check: TypeAlias = tuple[Callable[[Any, Any], bool], str]
#: the keys that lead to it; what was found, what was expected and what to do
Mistake: TypeAlias = tuple[Path, str]

#: what must hold of a number and its bound, and how messages put it
BOUNDS: dict[str, Check] = {
    "ge": (operator.ge, "at least {:,}"),
    "gt": (operator.gt, "more than {:,}"),
    "le": (operator.le, "at most {:,}"),
    "lt": (operator.lt, "less than {:,}"),
}
# The same of a list or mapping; such rules are not those of its entries.
LENGTHS: dict[str, Check] = {
    "least": (lambda value, bound: len(value) >= bound, "at least {:,} of them"),
    "most": (lambda value, bound: len(value) <= bound, "at most {:,} of them"),
}
OF_LISTS = {*LENGTHS, "unique", "increasing", "entries"}
# By type: how messages call it, and whether a value is of it, whatever is inside. Empty text was rather forgotten.
FORMS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    str: ("a string", lambda value: isinstance(value, str) and value.strip() != ""),
    int: ("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: ("a number", lambda value: is_number(value) and math.isfinite(value)),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    tuple: ("a list", lambda value: isinstance(value, list)),
    dict: ("a mapping", lambda value: isinstance(value, dict)),
    types.NoneType: ("null", lambda value: value is None),
    Any: ("anything", lambda _: True),
}
# Words of the command line: no digits of other scripts, no underscores or spaces, nothing that needs more than 64 bits.
NUMBERS = {
    int: re.compile(r"[+-]?[0-9]{1,18}"),
    float: re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"),
}
TRUTH = {"True": True, "False": False, "true": True, "false": False}


def value_of(word: str, hint: Any) -> Any:
    """Return what a word of the command line means as a type: the word itself, which is then a mistake, if nothing."""
    for choice in choices_of(hint):
        if choice in NUMBERS and NUMBERS[choice].fullmatch(word):
            return choice(word)
        known = TRUTH if choice is bool else {str(value): value for value in _literals([choice])}
        if word in known:
            return known[word]
    return word


def lines_of(mistakes: Iterable[Mistake]) -> list[str]:
    """Write mistakes in a file as lines, each with the path of its place."""
    return [f"{'.'.join(path) or 'top level'}: {text}" for path, text in mistakes]


def mistakes_in(value: Any, hint: Any, rules: Rules, path: Path = ()) -> Iterator[Mistake]:
    """Yield the mistakes in a value, at a path, and in all that is inside."""
    choices = choices_of(hint)
    fitting = [choice for choice in choices if _fits(value, choice)]
    if not fitting and not (value == "" and rules.get("may_be_empty")):
        words = " or ".join(dict.fromkeys(_words(choice) for choice in choices))
        yield path, f"found {shorten(value)}, expected {words}; {_fix(value, choices, rules)}"
    elif isinstance(value, dict):
        yield from _in_mapping(value, fitting, rules, path)
    elif isinstance(value, list):
        yield from _in_list(value, fitting, rules, path)
    elif isinstance(value, str) and str in fitting:
        yield from _in_name(value, rules.get("pattern"), path)
    elif is_number(value):
        yield from _broken(BOUNDS, value, rules, path)


def _in_mapping(value: dict[Any, Any], fitting: list[Any], rules: Rules, path: Path) -> Iterator[Mistake]:
    sections = [choice for choice in fitting if dataclasses.is_dataclass(choice)]
    keys = keys_of(typing.Union[tuple(sections)]) if sections else None  # noqa: UP007
    # If several sections share a key, checks of the config say which keys of theirs are missing.
    for name, key in keys.items() if keys and len(sections) == 1 else ():
        if key.default is dataclasses.MISSING and name not in value:
            yield path, f"found no key {name}, expected it to be set; add it"
    if keys is None:
        yield from _broken(LENGTHS, value, rules, path)
    entry = next((typing.get_args(choice)[1] for choice in fitting if typing.get_origin(choice) is dict), Any)
    for name, part in value.items():
        if not isinstance(name, str):
            # As YAML reads 2019, yes and null.
            yield path, f"found the key {name!r}, no string, expected a name; put it in quotes"
        elif keys is None:
            yield from _in_name(name, rules.get("entries"), (*path, name))
            yield from mistakes_in(part, entry, of_entries(rules), (*path, name))
        elif name in keys:
            yield from mistakes_in(part, keys[name].hint, keys[name].rules, (*path, name))
        else:
            fix = suggest(name, keys, "remove it")
            yield path, f"found the unknown key {name}, expected one of {', '.join(keys)}; {fix}"


def _in_list(value: list[Any], fitting: list[Any], rules: Rules, path: Path) -> Iterator[Mistake]:
    types_in = (typing.get_args(choice) for choice in fitting if typing.get_origin(choice) is tuple)
    entry, *rest = next(types_in, (Any, ...))
    if rest != [...]:
        rules = {**rules, **dict.fromkeys(LENGTHS, 1 + len(rest))}
    mistakes = [*_broken(LENGTHS, value, rules, path)]
    for number, item in enumerate(value):
        mistakes += mistakes_in(item, entry, of_entries(rules), (*path, str(number)))
    yield from mistakes
    if "unique" in rules and not mistakes:
        shown = [f"[{', '.join(item)}]" if isinstance(item, list) else item for item in value]
        for item, times in Counter(shown).items():
            if times > 1:
                yield path, f"found {item} {times} times, expected each once; remove one"
    if "increasing" in rules and not mistakes and value != sorted(set(value)):
        yield path, f"found {value}, expected increasing numbers; sort them"


def of_entries(rules: Rules) -> Rules:
    """Return the rules of a list or mapping that are those of what is in it."""
    return {rule: value for rule, value in rules.items() if rule not in OF_LISTS}


def _in_name(name: str, pattern: str | None, path: Path) -> Iterator[Mistake]:
    if pattern is not None and not re.fullmatch(pattern, name):
        yield path, f"found the name {shorten(name)}, expected {letters(pattern)}; rename it"


def _broken(checks: Mapping[str, Check], value: Any, rules: Rules, path: Path) -> Iterator[Mistake]:
    for rule, (holds, words) in checks.items():
        if rule in rules and not holds(value, rules[rule]):
            yield path, f"found {shorten(value)}, expected {words.format(rules[rule])}; fix the value"


def letters(pattern: str) -> str:
    """Describe the pattern of a name."""
    match = re.fullmatch(r"\^\[A-Za-z0-9\]\[A-Za-z0-9(.*)\]\*\$", pattern)
    return f"letters, digits and {' '.join(match[1])}, a letter or digit first" if match else f"a match of {pattern}"


def _form(choice: Any) -> Any:
    return dict if dataclasses.is_dataclass(choice) else typing.get_origin(choice) or choice


def is_number(value: object) -> bool:
    """Whether a value is a number, which truth values are in Python."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fits(value: Any, choice: Any) -> bool:
    if literals := _literals([choice]):
        return any(value == one and type(value) is type(one) for one in literals)
    return FORMS[_form(choice)][1](value)


def _words(choice: Any) -> str:
    literals = _literals([choice])
    if len(literals) > 1:
        return f"one of {', '.join(map(str, literals))}"
    return str(literals[0]) if literals else FORMS[_form(choice)][0]


def _literals(choices: Iterable[Any]) -> list[Any]:
    """List the values that are spelled out in types."""
    return [value for choice in choices if typing.get_origin(choice) is Literal for value in typing.get_args(choice)]


def _fix(value: Any, choices: tuple[Any, ...], rules: Rules) -> str:  # one case per kind of mistake
    forms = {_form(choice) for choice in choices}
    if value is None and "least" in rules:
        return "add an entry"
    if value is None or (isinstance(value, str) and not value.strip()):
        return "write {} or remove it" if forms == {dict} else "give a value or remove it"
    if isinstance(value, dict | list):
        return "fix the value"
    if forms == {str}:
        return "put it in quotes"
    if literals := [*map(str, _literals(choices))]:
        return suggest(str(value), literals, "choose one" if forms == {Literal} else "fix the value")
    if int in forms and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    number = math.nan
    if isinstance(value, str) and forms & {int, float}:
        with suppress(ValueError):
            number = float(value)
    if not math.isfinite(number):
        return "fix the value"
    # YAML takes 2e-5 for text and 2.0e-5 for a number.
    text = str(int(number)) if int in forms and number.is_integer() else repr(number)
    return f"write {text if '.' in text else text.replace('e', '.0e')}, without quotes"
