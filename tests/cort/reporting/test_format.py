import pytest

from cort.reporting.format import (
    MINUS,
    MISSING,
    best,
    best_first,
    by_cutoff,
    coded,
    count,
    difference,
    duration,
    fixed,
    headline,
    memory,
    named,
    p_value,
    percent,
    plural,
    signed,
    significant,
    typeset,
)
from tests.support.reporting import comparison

NAN = float("nan")


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (fixed(0.1875), "0.188"),
        (fixed(-0.0001), "0.000"),
        (fixed(1234.5678, 1), "1,234.6"),
        (fixed(None), MISSING),
        (fixed(NAN), MISSING),
        # Zero has no sign, wherever it comes from.
        *((signed(value), "0.000") for value in (0, 0.0, -0.0, 0.0004, -0.0004)),
        (signed(0.0006), "+0.001"),
        (signed(-1234.5), "-1,234.500"),
        (count(1234567), "1,234,567"),
        (significant(0.18699), "0.1870"),
        (significant(290.0005), "290.0005"),
        (significant(735.0), "735"),
        (percent(0.26), "26.0 %"),
        (p_value(0.00009), "<0.0001"),
        (p_value(0.0001), "0.0001"),
        (p_value(None), MISSING),
        (plural(1, "query", "queries"), "1 query"),
        (plural(2000, "query", "queries"), "2,000 queries"),
        (typeset("-0.5 [-1.0, a-1]"), f"{MINUS}0.5 [{MINUS}1.0, a-1]"),
        (duration(0.44), "0.4 s"),
        (duration(59.6), "1 min 00 s"),
        (duration(185), "3 min 05 s"),
        (duration(7620), "2 h 07 min"),
        (duration(216_000), "2.5 days"),
        (memory(None), MISSING),
        (memory(999.4), "999 MB"),
        (memory(999.6), "1.0 GB"),
        (named("RR@10"), "RR@10"),
        (named("P(judged_only=True)@5"), "P@5, judged only"),
        (named("R@10"), "R@10"),
    ],
)
def test_numbers_and_names(shown, text):
    assert shown == text


def test_equal_as_shown_is_equally_best():
    values = {"a": 0.3876, "b": None, "c": 0.3884, "d": 0.3, "e": NAN}
    assert best_first(values) == ["c", "a", "d"]
    assert best(values) == ["c", "a"]
    assert best({"a": None}) == []


def test_cutoffs_of_a_measure_are_in_numeric_order_at_the_place_of_the_first():
    names = ["R@1000", "RR@10", "R@10", "AP", "P(judged_only=True)@10", "R@100", "P@10", "RR@5"]
    expected = ["R@10", "R@100", "R@1000", "RR@5", "RR@10", "AP", "P(judged_only=True)@10", "P@10"]
    assert by_cutoff(names) == expected


def test_backticks_become_code_and_markup_stays_text():
    assert coded("set `a: <b>` & c") == "set <code>a: &lt;b&gt;</code> &amp; c"
    # Of a text that quotes otherwise.
    assert coded("the ` of a`b`c") == "the ` of a`b`c"


@pytest.mark.parametrize(
    ("values", "verdict", "said"),
    [
        (
            {"bm25": 0.187, "cort": 0.274},
            "WIN",
            "cort has the highest RR@10, 0.274: +0.087 [-0.010, +0.100] over bm25.",
        ),
        (
            {"bm25": 0.187, "cort": 0.274},
            "NOT SIGNIFICANT",
            "cort has the highest RR@10, 0.274, but does not differ significantly from bm25: +0.087 [-0.010, +0.100].",
        ),
        (
            {"bm25": 0.187, "cort": 0.274},
            "TOO FEW QUERIES",
            "cort has the highest RR@10, 0.274, but has too few queries to be compared with bm25: +0.087 "
            "[-0.010, +0.100].",
        ),
        # Three decimals are shown, and those are equal.
        ({"bm25": 0.187, "cort": 0.1871}, "LOSS", "bm25 has the highest RR@10, 0.187."),
        ({"other": 0.3}, "WIN", "other has the highest RR@10, 0.300."),
    ],
)
def test_one_sentence_says_which_system_is_best(values, verdict, said):
    rows = [comparison("cort", verdict=verdict), comparison("cort", "other")]
    assert headline(values, rows, "RR@10", "bm25") == said


def test_a_difference_has_its_interval():
    assert difference(comparison("cort")) == "+0.087 [-0.010, +0.100]"
