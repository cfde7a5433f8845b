"""Options of all stages: what is also a key of the config is declared there alone, and bounds hold."""

import dataclasses
import importlib
import math
import re
import typing
from collections import defaultdict

import pytest

from cort.experiment.keys import Experiment
from cort.runtime.cli import parser_of
from cort.runtime.options import BOUNDS, check_bounds, read_options
from cort.settings.fields import sections_in
from tests.support.common import ROOT

# Options that are no keys, by what is expected of them, in every stage that has one of this name.
EXPECTED = {
    "0 or more": "gpus",
    "1 or more": "batch k pool processes samples",
    "1 or more, at most 4,096": "threads",
    "more than 0, at most 1": "recall",
}
# Options of numbers without bounds: the files say what fits, or any number does.
UNBOUNDED = """bm25_warm_up checkpoint_every memory_mb port queries warm_up weight weights width widths"""
# Options that have the name of a key, a default or bounds, and another meaning: other kinds of things, ...
OTHERS = {"form", "kind", "measures", "samples"}
# ... or the choice of a registry, or a setting of systems, which stages do not know: their code would depend on it.
OTHERS |= {"loss", "method", "normalization", "k", "recall", "weight"}
# ... or what a machine has, which may be less than the key asks for.
OTHERS |= {"gpus"}
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


def keys_of(section, seen):
    """Yield the fields of all keys in a section."""
    if section not in seen:
        seen.add(section)
        for field in dataclasses.fields(section):
            yield field
            for inner in sections_in(typing.get_type_hints(section)[field.name]):
                yield from keys_of(inner, seen)


KEYS = defaultdict(list)
for key in keys_of(Experiment, set()):
    KEYS[key.name].append(key)


def is_key(field):
    """Whether an option is inherited or taken from a key."""
    return "key" in field.metadata or any(field is key for key in KEYS[field.name])


def numbers(options):
    """Yield the fields of numbers; their bounds, rule -> number; whether they are floats."""
    hints = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        kinds = {hints[field.name], *typing.get_args(hints[field.name])} & {int, float}
        if kinds:
            rules = field.metadata.get("rules", {})
            yield field, {rule: bound for rule, bound in rules.items() if rule in BOUNDS}, float in kinds


def expected_of(bounds):
    return ", ".join(BOUNDS[rule][1].format(bound) for rule, bound in bounds.items())


def nearest(rule, bound, is_float):
    """The nearest values to a bound that keep and that break it."""
    if not is_float:
        return (bound, bound - 1) if rule == "ge" else (bound, bound + 1)
    up, down = math.nextafter(bound, math.inf), math.nextafter(bound, -math.inf)
    return {"ge": (bound, down), "gt": (up, bound), "le": (bound, up), "lt": (down, bound)}[rule]


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
                changed |= set() if field.default in (default, dataclasses.MISSING, None) else {(stage, field.name)}
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
        parser = parser_of(options, *command)
        given = {one.option_strings[0]: (one.choices or ["1"])[0] for one in parser._actions if one.required}
        for field, bounds, is_float in numbers(options):
            name = f"--{field.name.replace('_', '-')}"
            for rule, bound in bounds.items():
                inside, outside = (
                    [f"{option}={word}" for option, word in (given | {name: value}).items()]
                    for value in nearest(rule, bound, is_float)
                )
                check_bounds(read_options(options, parser.parse_args(inside)))
                if rule == "ge" and bound == 0 and not is_float:
                    with pytest.raises(SystemExit):
                        main([*command, *outside])
                    assert f"argument {name}: invalid whole number from 0" in capsys.readouterr().err
                    continue
                assert main([*command, *outside]) == 1, (stage, outside)
                line = capsys.readouterr().err.splitlines()[-1]
                expected = re.escape(expected_of(bounds))
                assert re.search(f" ERROR {name}: found [^ ]+, expected {expected}; change it$", line), stage
