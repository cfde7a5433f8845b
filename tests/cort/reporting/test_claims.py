import pytest

from cort.evaluation.curves import Consistency, Depths
from cort.evaluation.measures import Measures
from cort.reporting.reproduction.fidelity import FAILS, HOLDS, UNKNOWN, Results, judge
from cort.reporting.reproduction.paper import Claim, Comparison, Operand, find_mistakes, mistakes_of_claim, read_claim
from tests.support.reporting import PAPER, write_paper

RESULTS = Results(
    {(name, "dev"): Measures(name, "dev", 1, 7, {"RR@10": value}) for name, value in {"a": 0.3, "b": 0.2}.items()},
    {("c", "dev"): Depths("c", "dev", 1, 7, [1, 2], {"RR@10": [0.1, 0.3]}, {})},
    {("a", "dev"): Consistency("a", "dev", "r", 7, [1, 10], [0.9, 0.5])},
)
A, B, NONE = {"system": "a"}, {"system": "b"}, {"system": "none"}


def claim(*tests, **more):
    return {"section": "1", "text": "So it is.", "split": "dev", "measure": "RR@10", "tests": list(tests), **more}


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ({"higher": A, "than": B}, HOLDS),
        ({"higher": B, "than": A}, FAILS),
        ({"higher": A, "than": A}, FAILS),
        ({"higher": A, "than": B, "by": 0.1}, HOLDS),
        ({"higher": A, "than": B, "by": 0.11}, FAILS),
        ({"higher": A, "than": 0.29}, HOLDS),
        ({"higher": A, "than": [B, 0.31]}, FAILS),
        ({"higher": A, "than": [B, NONE]}, UNKNOWN),
        ({"higher": A, "than": [0.31, NONE]}, FAILS),
        ({"lower": B, "than": A}, HOLDS),
        ({"lower": A, "than": A}, FAILS),
        ({"lower": B, "than": A, "by": 0.11}, FAILS),
        ({"near": A, "to": B, "within": 0.1}, HOLDS),
        ({"near": B, "to": A, "within": 0.09}, FAILS),
        ({"near": A, "to": A}, HOLDS),
        ({"near": {**A, "minus": "b"}, "to": 0.1}, HOLDS),
        ({"near": {**A, "minus": "none"}, "to": 0.1}, UNKNOWN),
        ({"near": {"system": "c", "depth": 2}, "to": 0.3}, HOLDS),
        ({"higher": {"system": "c"}, "than": 0.05, "depths": [1, 2]}, HOLDS),
        ({"higher": {"system": "c"}, "than": 0.2, "depths": [1, 2]}, FAILS),
        ({"higher": {"system": "c"}, "than": 0.05, "depths": [1, 2, 4]}, UNKNOWN),
        ({"near": {**A, "measure": "consistency", "depth": 10}, "to": 0.5}, HOLDS),
        ({"near": {**A, "split": "test"}, "to": 0.3}, UNKNOWN),
    ],
)
def test_outcomes(test, outcome):
    assert judge(read_claim(claim(test)), RESULTS).outcome == outcome


def test_one_that_fails_decides_and_one_that_is_unknown_comes_next():
    tests = {HOLDS: {"higher": A, "than": B}, FAILS: {"higher": B, "than": A}, UNKNOWN: {"higher": A, "than": NONE}}
    for names, outcome in (([*tests], FAILS), ([HOLDS, UNKNOWN], UNKNOWN), ([HOLDS], HOLDS)):
        assert judge(read_claim(claim(*(tests[name] for name in names))), RESULTS).outcome == outcome


def test_what_is_read_and_said():
    read = read_claim(claim({"lower": {**A, "minus": "b", "depth": 5}, "than": [B, 1], "by": 0.5}, note="Or not."))
    first = Operand(system="a", split="dev", measure="RR@10", depth=5, minus="b")
    second = Operand(system="b", split="dev", measure="RR@10")
    comparisons = [Comparison("lower", first, second, 0.5), Comparison("lower", first, 1.0, 0.5)]
    assert read == Claim("1", "So it is.", "Or not.", comparisons)
    made, against_number = judge(read, RESULTS).comparisons
    assert (made.first, made.second) == ("MRR@10 at 5 of a minus that of b on dev", "MRR@10 of b on dev")
    assert (made.ours, against_number.second) == ([None, 0.2], "the paper's number")


@pytest.mark.parametrize(
    ("test", "line"),
    [
        ({}, ": found none of them, expected one of higher, lower, near"),
        ({"higher": A, "near": B, "to": 1}, ": found higher and near"),
        ({"higher": A}, ": found no key than"),
        ({"near": A, "to": B, "by": 1}, ".by: found by with near"),
        ({"higher": {}, "than": 1}, ": found no system"),
        ({"higher": A, "than": [1, {}]}, ": found no system"),
    ],
)
def test_mistakes(test, line):
    (found,) = mistakes_of_claim("claims.0", claim(test))
    assert found.startswith(f"claims.0.tests.0{line}")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"tests": []}, "tests: found []"),
        ({"tests": [{"higher": 1, "than": 1}]}, "tests.0.higher: found 1"),
        ({"tests": [{"higher": A, "than": "b"}]}, "tests.0.than: found 'b'"),
        ({"measure": "rank"}, "measure: found the name 'rank'"),
    ],
)
def test_shape(tmp_path, changes, line):
    path = write_paper(tmp_path, {**PAPER, "claims": [claim({"higher": A, "than": B}) | changes]})
    (found,) = find_mistakes(path)
    assert found.startswith(f"{path}: claims.0.{line}")
