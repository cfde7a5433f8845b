import argparse
from typing import Annotated, Literal

import pytest
from pydantic import Field

from cort.runtime.command_line import Parser, add_options, parse_options, take, to_words
from cort.runtime.errors import InputError
from cort.runtime.sections import Maybe, ParquetFile, Section, Several, Threads, TrecFile, same_as
from tests.support.errors import line_of


class Shared(Section):
    seed: int = 42
    """of every random choice"""


class Keys(Section):
    epochs: int = Field(10, ge=1)
    """Passes over the queries."""
    parts: Several[Annotated[int, Field(ge=2)]] = Field((2,), min_length=1)


class Options(Shared):
    runs: Several[TrecFile]
    kind: Literal["passage", "query"] = "query"
    grade: Literal[0, 1] = 1
    exact: bool = False
    rate: float = 0.5
    qrels: Maybe[ParquetFile] = None
    part: Maybe[Literal["held-out", "rest"]] = None
    depths: Several[int] = ()
    open: bool = False
    """a page"""
    threads: Threads = 1
    most: Maybe[int] = Field(None, ge=3)
    epochs: int = same_as(Keys, "epochs", default=1)
    parts: Several[Annotated[int, Field(ge=2)]] = same_as(Keys, "parts")


def parse(*words):
    parser = argparse.ArgumentParser()
    add_options(parser, Options)
    return parse_options(Options, parser.parse_args(words))


def test_defaults_are_those_of_the_section_and_options_are_taken_from_a_larger_set():
    assert parse("--runs", "a") == Options(runs=("a",))
    assert take(Shared, Options(runs=("a",), seed=7)) == Shared(seed=7)


def test_what_is_said_below_an_option_is_its_help_also_of_one_that_is_a_key():
    parser = Parser()
    parser.add_section(Options)
    # Only the help reads what options mean.
    parser.format_help()
    helps = {action.dest: action.help for action in parser._actions}
    assert (helps["seed"], helps["open"], helps["epochs"]) == (
        *("of every random choice", "a page", "Passes over the queries."),
    )


def test_every_type_is_parsed_and_written_back():
    options = Options(runs=("a", "b"), kind="passage", grade=0, exact=True, rate=1e-6, qrels="x", depths=(1, 2))
    assert parse(*to_words(options)) == options
    options = Options(runs=("-a",), part="rest", seed=1)
    assert parse(*to_words(options)) == options


def test_a_flag_without_a_value_is_true():
    assert not parse("--runs", "a").open
    assert parse("--runs", "a", "--open").open
    assert parse("--open", "--runs", "a").open
    assert not parse("--runs", "a", "--open", "False").open


@pytest.mark.parametrize("words", [(), ("--qrels",), ("--depths",)])
def test_optional_options_may_lack_a_value(words):
    assert parse("--runs", "a", *words) == Options(runs=("a",))


@pytest.mark.parametrize("words", [(), ("--runs",)])
def test_missing_values_are_refused(words):
    with pytest.raises(SystemExit):
        parse(*words)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--exact yes", "--exact: found 'yes', expected true or false; fix the value"),
        ("--kind qurey", "--kind: found 'qurey', expected one of passage, query; did you mean query?"),
        ("--grade 2", "--grade: found '2', expected one of 0, 1; choose one"),
        ("--part x", "--part: found 'x', expected one of held-out, rest; choose one"),
        ("--depths 1 x", "--depths: found 'x', expected an integer; fix the value"),
        ("--qrels=", "--qrels: found '', expected a string; give a value or remove it"),
        ("--threads 0", "--threads: found 0, expected at least 1; fix the value"),
        ("--most 2", "--most: found 2, expected at least 3; fix the value"),
        ("--epochs 0", "--epochs: found 0, expected at least 1; fix the value"),
        ("--parts 1", "--parts: found 1, expected at least 2; fix the value"),
    ],
)
def test_wrong_values_are_refused(words, line):
    assert line_of(parse, "--runs", "a", *words.split()) == line


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(InputError) as caught:
        parse("--runs", "a", "--threads", "-1", "--seed", "x", "--depths", "1", "y", "z")
    assert [line.split(",")[0] for line in str(caught.value).split("\n")] == [
        *("--seed: found 'x'", "--depths: found 'y'", "--depths: found 'z'", "--threads: found -1"),
    ]


@pytest.mark.parametrize("number", ["1_0", "\u0661", " 1", "1.0", "9" * 30, "nan", ""])
def test_integers_are_plain_digits(number):
    for option in ("--seed", "--depths"):
        with pytest.raises(InputError, match=rf"^{option}: found .*, expected an integer; "):
            parse("--runs", "a", option, number)


@pytest.mark.parametrize("number", ["nan", "inf", "1e999", "1_0.5", "\u0661"])
def test_numbers_are_finite(number):
    with pytest.raises(InputError, match=r"^--rate: found .*, expected a number; "):
        parse("--runs", "a", "--rate", number)
