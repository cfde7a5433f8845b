"""The bounds of the numbers on all stages' command lines, and that what lies outside is refused by name."""

import dataclasses
import importlib
import math
import re
import typing
from collections import defaultdict

import pytest

from cort.system.cli import parser_of
from cort.system.options import BOUNDS, check_bounds, read_options
from tests.support.common import ROOT

# Options by what is expected of them, in every stage that has one of this name.
EXPECTED = {
    "0 or more": """b flops_warmup k1 margin max_gradient_norm max_requests passage_flops patience query_flops
        relative_margin warmup_updates weight_decay""",
    "1 or more": """at_once batch batch_size bytes candidates depth dimension edges ef_construction filters first_rank
        gpus gradient_accumulation incoming k lists max_query_words max_words megabytes min_passage_words
        min_query_words min_words negatives number outgoing pool pool_depth processes queries relevance_level
        requests_per_minute results sample sample_size samples scale test_queries threads tokens_at_once top_k
        validation_queries""",
    "2 or more": "folds",
    "3 or more": "passage_length query_length",
    "8 or more": "max_length",
    "256 or more": "sample",
    "more than 0": "adam_epsilon learning_rate pos_weight temperature validate_every",
    "0 or more, at most 1": "b",
    "1 or more, at most 100,000": "epochs",
    "1 or more, at most 1,000,000": "resamples",
    "2 or more, at most 512": "query_length",
    "2 or more, at most 1,000": "M",
    "10 or more, at most 1,000,000": "vocabulary_size",
    "more than 0, at most 1": "keep recall",
    "more than 0, less than 1": "alpha confidence",
}
# Options that some stages have without bounds: the model or the files say what fits, or any number does.
ALSO_WITHOUT = "b gpus k1 max_length passage_length queries query_length relevance_level sample"


def commands():
    """Yield the name, the main function, the command's words and the options of each command of each stage."""
    for path in sorted((ROOT / "cort").glob("*.py")):
        module = importlib.import_module(f"cort.{path.stem}".removesuffix(".__init__"))
        if hasattr(module, "main"):
            named = getattr(module, "COMMANDS", None) or {"": (module.Options, None)}
            for command, (options, _) in named.items():
                yield f"{path.stem} {command}".strip(), module.main, command.split(), options


def numbers(options):
    """Yield the fields of numbers, but for those of threads; their bounds, rule -> number; whether they are floats."""
    hints = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        kinds = {hints[field.name], *typing.get_args(hints[field.name])} & {int, float}
        if kinds and "type" not in field.metadata:
            rules = field.metadata.get("rules", {})
            bounds = field.metadata.get("bounds") or {rule: rules[rule] for rule in ("ge", "gt") if rule in rules}
            yield field, bounds, float in kinds


def expected_of(bounds):
    return ", ".join(BOUNDS[rule][1].format(bound) for rule, bound in bounds.items())


def nearest(rule, bound, is_float):
    """The nearest values to a bound that keep and that break it."""
    if not is_float:
        return (bound, bound - 1) if rule == "ge" else (bound, bound + 1)
    up, down = math.nextafter(bound, math.inf), math.nextafter(bound, -math.inf)
    return {"ge": (bound, down), "gt": (up, bound), "le": (bound, up), "lt": (down, bound)}[rule]


def test_options_of_one_name_have_the_same_bounds_in_all_stages():
    found, without = defaultdict(set), set()
    for _, _, _, options in commands():
        for field, bounds, _ in numbers(options):
            found[expected_of(bounds)].add(field.name)
            without |= set() if bounds else {field.name}
    found.pop("")
    assert found == {words: set(names.split()) for words, names in EXPECTED.items()}
    assert without & set().union(*found.values()) == set(ALSO_WITHOUT.split())


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
                assert re.search(f" ERROR {name}: found [^ ]+, expected {expected_of(bounds)}; change it$", line), stage
