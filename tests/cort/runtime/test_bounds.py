"""Options of all stages: what is also a key of the config is declared there alone, and bounds hold."""

import dataclasses
import importlib
import math
import re
import typing
from collections import defaultdict

from cort.experiment.keys import Experiment
from cort.runtime.cli import parser_of
from cort.runtime.keys import choices_of, keys_of
from cort.runtime.options import option_of, parse_options
from cort.runtime.reading import BOUNDS
from tests.support.common import ROOT

# Options that are no keys, by what is expected of them, in every stage that has one of this name.
EXPECTED = {
    "at least 0": "bm25_warm_up memory_mb port warm_up",
    "at least 0, at most 1": "gpus",
    "at least 16": "memory_mb",
    "at least 1": "batch pool processes samples",
    "at least 1, at most 1,024": "gpus",
    "at least 1, at most 4,096": "threads",
}
# Options of numbers without bounds: the files say what fits, or any number does.
UNBOUNDED = "checkpoint_every width widths"
# Options that have the name of a key, a default or bounds, and another meaning, or a choice that the config makes of
# the same registry, or a single value where the config may have several.
OTHERS = {"form", "gpus", "kind", "measures", "samples", "loss", "storage"}
# Options with another default than their key: a person reads the results, a file of triples is read once, a grid has
# a measure.
OWN_DEFAULTS = {("analyze overlap", "depth"), ("search", "depth"), ("import_triples", "epochs")}
OWN_DEFAULTS |= {("tune bm25", "measure")}


def commands():
    """Yield the name, the main function, the command's words and the options of each command of each stage."""
    for path in sorted((ROOT / "cort").glob("*.py")):
        module = importlib.import_module(f"cort.{path.stem}".removesuffix(".__init__"))
        if hasattr(module, "main"):
            named = getattr(module, "COMMANDS", None) or {"": (module.Options, None)}
            for command, (options, _) in named.items():
                yield f"{path.stem} {command}".strip(), module.main, command.split(), options


def fields_in(hint):
    """Yield the fields of all keys of a section, and of the sections in it."""
    for choice in [hint, *typing.get_args(hint)]:
        if dataclasses.is_dataclass(choice):
            yield from dataclasses.fields(choice)
            for key in keys_of(choice).values():
                yield from fields_in(key.hint)
        elif choice is not hint:
            yield from fields_in(choice)


KEYS = defaultdict(list)
for key in fields_in(Experiment):
    KEYS[key.name].append(key)


def is_key(field):
    """Whether an option is inherited or taken from a key."""
    return "key" in field.metadata or any(field is key for key in KEYS[field.name])


def numbers(options):
    """Yield the fields of numbers; their bounds, rule -> number; whether they are floats."""
    for field, key in zip(dataclasses.fields(options), keys_of(options).values(), strict=True):
        kinds = {*choices_of(key.hint), *typing.get_args(key.hint)} & {int, float}
        if kinds:
            yield field, {rule: bound for rule, bound in key.rules.items() if rule in BOUNDS}, float in kinds


def expected_of(bounds):
    return ", ".join(BOUNDS[rule][1].format(bound) for rule, bound in bounds.items())


def nearest(rule, bound, is_float):
    """The nearest values to a bound that keep and that break it."""
    if not is_float:
        return (bound, bound - 1) if rule == "ge" else (bound, bound + 1)
    up, down = math.nextafter(bound, math.inf), math.nextafter(bound, -math.inf)
    return {"ge": (bound, down), "gt": (up, bound), "le": (bound, up), "lt": (down, bound)}[rule]


def example(hint):
    """A value of an option of some type."""
    first, *_ = typing.get_args(hint) or [None]
    return first if typing.get_origin(hint) is typing.Literal else 1 if first is None else example(first)


def test_options_that_are_keys_are_declared_once():
    for stage, _, _, options in commands():
        for field in dataclasses.fields(options):
            if is_key(field) or field.name in OTHERS:
                continue
            helps = {key.metadata.get("help") for key in KEYS[field.name]} - {"", None}
            assert field.metadata.get("help") not in helps, (stage, field.name)
            bare = field.default in (dataclasses.MISSING, None, ()) and not field.metadata.get("rules")
            assert bare or not KEYS[field.name], (stage, field.name)


def types_of(hint):
    """The types that a type is a choice of, or the values, without None."""
    parts = typing.get_args(hint) or [hint]
    return {inner for part in parts for inner in typing.get_args(part) or [part]} - {type(None)}


def test_options_that_are_taken_from_keys_have_their_types_and_defaults():
    changed = set()
    for stage, _, _, options in commands():
        hints = typing.get_type_hints(options)
        for field in dataclasses.fields(options):
            owner, key = field.metadata.get("key", (None, ""))
            if owner is not None and field.name not in OTHERS:
                assert types_of(hints[field.name]) <= types_of(typing.get_type_hints(owner)[key]), (stage, field.name)
                default = owner.__dataclass_fields__[key].default
                same = default is None or field.default in (default, dataclasses.MISSING, None)
                changed |= set() if same else {(stage, field.name)}
    assert changed == OWN_DEFAULTS


def test_options_of_one_name_have_the_same_bounds_in_all_stages():
    found, unbounded = defaultdict(set), set()
    for _, _, _, options in commands():
        for field, bounds, _ in numbers(options):
            if not bounds:
                unbounded.add(field.name)
            elif not is_key(field):
                found[expected_of(bounds)].add(field.name)
    assert found == {words: set(names.split()) for words, names in EXPECTED.items()}
    assert unbounded == set(UNBOUNDED.split())


def test_what_is_just_outside_is_refused_in_one_line_and_what_is_just_inside_is_not(capsys):
    for stage, main, command, options in commands():
        parser, keys = parser_of(options, *command), keys_of(options).items()
        needed = {name: example(key.hint) for name, key in keys if key.default is dataclasses.MISSING}
        for field, bounds, is_float in numbers(options):
            for rule, bound in bounds.items():
                inside, outside = (
                    [f"{option_of(name)}={word}" for name, word in (needed | {field.name: value}).items()]
                    for value in nearest(rule, bound, is_float)
                )
                parse_options(options, parser.parse_args(inside))
                assert main([*command, *outside]) == 1, (stage, outside)
                line = capsys.readouterr().err.splitlines()[-1]
                expected = re.escape(expected_of({rule: bound}))
                assert re.search(f" ERROR {option_of(field.name)}: found [^ ]+, expected {expected}; ", line), stage
