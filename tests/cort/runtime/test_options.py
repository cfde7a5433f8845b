import argparse
from dataclasses import dataclass
from typing import Literal

import pytest

from cort.runtime.options import add_options, optional, read_options, required, thread_count, to_words


@dataclass(frozen=True, kw_only=True)
class Shared:
    seed: int = optional(42, "of every random choice")


@dataclass(frozen=True, kw_only=True)
class Options(Shared):
    runs: tuple[str, ...] = required("TREC")
    kind: Literal["query", "passage"] = optional("query")
    grade: Literal[0, 1] = optional(1)
    exact: bool = optional(False)
    rate: float = optional(0.5)
    qrels: str | None = optional(None, metavar="PARQUET")
    part: Literal["held-out", "rest"] | None = optional(None)
    depths: tuple[int, ...] = optional(())
    open: bool = optional(False, "a page")
    threads: int = thread_count()


def parse(*words):
    parser = argparse.ArgumentParser()
    add_options(parser, Options)
    return read_options(Options, parser.parse_args(words))


def test_defaults_are_those_of_the_dataclass_and_options_are_read_from_a_larger_set():
    assert parse("--runs", "a") == Options(runs=("a",))
    assert read_options(Shared, Options(runs=("a",), seed=7)) == Shared(seed=7)


def test_every_type_is_parsed_and_written_back():
    options = Options(runs=("a", "b"), kind="passage", grade=0, exact=True, rate=1e-6, qrels="x", depths=(1, 2))
    assert parse(*to_words(options)) == options
    options = Options(runs=("a",), part="rest", seed=1)
    assert parse(*to_words(options)) == options


def test_a_flag_without_a_value_is_true():
    assert not parse("--runs", "a").open
    assert parse("--runs", "a", "--open").open
    assert parse("--open", "--runs", "a").open
    assert not parse("--runs", "a", "--open", "False").open


@pytest.mark.parametrize("words", [(), ("--qrels",), ("--depths",)])
def test_optional_options_may_lack_a_value(words):
    assert parse("--runs", "a", *words) == Options(runs=("a",))


@pytest.mark.parametrize("words", ["", "--runs", "--exact yes", "--kind x", "--grade 2", "--part x"])
def test_missing_and_wrong_values_are_refused(words):
    with pytest.raises(SystemExit):
        parse(*words.split(), *(("--runs", "a") if " " in words else ()))


@pytest.mark.parametrize("number", ["-1", "1_0", "\u0661", " 1", "1.0", "9" * 30, "nan", ""])
def test_integers_are_plain_digits(number, capsys):
    for option in ("--seed", "--depths"):
        with pytest.raises(SystemExit):
            parse("--runs", "a", option, number)
        assert f"argument {option}: invalid whole number from 0 to" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["nan", "inf", "1e999", "1_0.5", "\u0661"])
def test_numbers_are_finite(number):
    with pytest.raises(SystemExit):
        parse("--runs", "a", "--rate", number)
