"""Options of all stages: what is also a key of the config is declared there alone, and bounds hold."""

import importlib
import math
import re
import typing
from collections import defaultdict

from cort.config.root import Root
from cort.runtime.cli import parser_of
from cort.runtime.command_line import option_of, parse_options
from cort.runtime.mistakes import BOUNDS
from cort.runtime.sections import Same, choices_of, hint_of, is_section, literals, meanings
from tests.support.common import ROOT

# Options that are no keys, by what is expected of them, in every stage that has one of this name.
EXPECTED = {
    "at least 0": "bm25_warm_up memory_mb port warm_up",
    "at least 0, at most 1": "gpus",
    "at least 0, at most 1,024": "gpus",
    "at least 0, at most 1,000": "weights",
    "at least 16": "memory_mb",
    "at least 1": "batch pool processes samples",
    "at least 1, at most 100,000": "depths",
    "at least 1, at most 4,096": "threads",
    "at least 1, at most 65,536": "matryoshka",
}
# Options of numbers without bounds: the files say what fits, or any number does.
UNBOUNDED = "checkpoint_every width widths"
# Options that have the name of a key, a default or bounds, and another meaning or fewer forms, or a choice that the
# config makes of the same registry.
OTHERS = {"depths", "form", "gpus", "kind", "matryoshka", "measures", "samples", "loss", "method", "weights"}
# Options that may have fewer values than their key: of a released encoder, those that its files can have.
FEWER = {("pretrained", "pooling")}
# What a JSON schema calls bounds.
KEYWORDS = {"minimum": "greater_than_equal", "exclusiveMinimum": "greater_than"}
KEYWORDS |= {"maximum": "less_than_equal", "exclusiveMaximum": "less_than"}


def commands():
    """Yield the name, the main function, the command's words and the options of each command of each stage."""
    for path in sorted((ROOT / "cort").glob("*.py")):
        module = importlib.import_module(f"cort.{path.stem}".removesuffix(".__init__"))
        if hasattr(module, "main"):
            named = getattr(module, "COMMANDS", {"": module.__name__})
            for command, name in named.items():
                options = importlib.import_module(name).Options
                yield f"{path.stem} {command}".strip(), module.main, command.split(), options


def sections_in(hint):
    """Yield the sections that a type may have inside, and those that they inherit from."""
    if is_section(hint):
        yield from (owner for owner in hint.__mro__ if is_section(owner))
        for field in hint.model_fields.values():
            yield from sections_in(field.annotation)
    for part in typing.get_args(hint):
        yield from sections_in(part)


KEYS = defaultdict(set)
for section in sections_in(Root):
    for name in section.__annotations__:
        KEYS[name].add(section)


def key_of(options, name):
    """The section and the name of the key that an option is, if any."""
    for note in options.model_fields[name].metadata:
        if isinstance(note, Same):
            return note.owner, note.name
    owner = next(owner for owner in options.__mro__ if name in owner.__annotations__)
    return (owner, name) if owner in KEYS[name] else None


def without_default(section, name):
    """The schema of the values of a field other than None."""
    schema = section.model_json_schema()
    field = section.model_fields[name]
    part = schema["properties"][field.alias or name]
    choices = [choice for choice in part.get("anyOf", [part]) if choice != {"type": "null"}]
    return [
        {key: choice[key] for key in choice if key not in ("title", "default", "description")} for choice in choices
    ]


def numbers(options):
    """Yield the names of fields of numbers; their bounds, keyword -> number; whether they are floats."""
    for name in options.model_fields:
        for part in without_default(options, name):
            number = part.get("items", part)
            if number.get("type") in ("integer", "number") and "enum" not in number:
                bounds = {keyword: number[keyword] for keyword in KEYWORDS if keyword in number}
                yield name, bounds, number["type"] == "number"


def expected_of(bounds):
    return ", ".join(BOUNDS[KEYWORDS[keyword]][1].format(f"{bound:,}") for keyword, bound in bounds.items())


def nearest(keyword, bound, is_float):
    """The nearest values to a bound that keep and that break it."""
    if not is_float:
        return (bound, bound - 1) if keyword == "minimum" else (bound, bound + 1)
    up, down = math.nextafter(bound, math.inf), math.nextafter(bound, -math.inf)
    values = {"minimum": (bound, down), "exclusiveMinimum": (up, bound)}
    return (values | {"maximum": (bound, up), "exclusiveMaximum": (down, bound)})[keyword]


def examples(options):
    """Words for the options that are required."""
    for name, field in options.model_fields.items():
        if field.is_required():
            choices = [part for choice in choices_of(hint_of(field)) for part in [choice, *typing.get_args(choice)]]
            yield name, next(iter(literals(choices)), 1)


def test_what_the_help_says_about_an_option_is_a_sentence():
    said = {text for _, _, _, options in commands() for text in meanings(options).values() if text}
    assert {text for text in said if not re.fullmatch(r"[A-Z0-9`][^{}]*\.", text)} == set()


def test_options_that_are_keys_are_declared_once():
    again = set()
    for stage, _, _, options in commands():
        bounded = {name for name, bounds, _ in numbers(options) if bounds}
        for name, field in options.model_fields.items():
            if name in KEYS.keys() - OTHERS and not key_of(options, name):
                bare = field.is_required() or field.default in (None, ())
                again |= set() if bare and name not in bounded else {(stage, name)}
    assert again == set()


def test_options_that_are_keys_take_the_same_values():
    different = set()
    for stage, _, _, options in commands():
        for name in options.model_fields:
            key = key_of(options, name)
            if key and without_default(options, name) != without_default(*key):
                different.add((stage, name))
    assert different == FEWER


def test_options_of_one_name_have_the_same_bounds_in_all_stages():
    found, unbounded = defaultdict(set), set()
    for _, _, _, options in commands():
        for name, bounds, _ in numbers(options):
            if not bounds:
                unbounded.add(name)
            elif not key_of(options, name):
                found[expected_of(bounds)].add(name)
    assert found == {words: set(names.split()) for words, names in EXPECTED.items()}
    assert unbounded == set(UNBOUNDED.split())


def test_what_is_just_outside_is_refused_in_one_line_and_what_is_just_inside_is_not(capsys):
    tried = 0
    for stage, main, command, options in commands():
        parser, needed = parser_of(options, *command), dict(examples(options))
        for name, bounds, is_float in numbers(options):
            for keyword, bound in bounds.items():
                inside, outside = (
                    [f"{option_of(name)}={word}" for name, word in (needed | {name: value}).items()]
                    for value in nearest(keyword, bound, is_float)
                )
                parse_options(options, parser.parse_args(inside))
                assert main([*command, *outside]) == 1, (stage, outside)
                line = capsys.readouterr().err.splitlines()[-1]
                expected = re.escape(expected_of({keyword: bound}))
                assert re.search(f" ERROR {option_of(name)}: found [^ ]+, expected {expected}; ", line), stage
                tried += 1
    assert tried > 300
