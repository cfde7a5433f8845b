"""The gate on simulated queries: what it finds, and how often noise alarms it."""

from itertools import product

import numpy as np
import pytest

from cort.evaluation import comparisons
from cort.evaluation.gate import changes, decide, digest_of
from cort.evaluation.significance import loss_test
from cort.formats import tables
from tests.support.common import write_rows

QUERIES, SEEDS = 300, 100
TESTS = comparisons.Tests(0.95, 1000, 0.05, 1)


def draw(seed, loss=0.05):
    """Values of nDCG@10 before, and changes: a deviation of .2, as between two encoders, and a mean loss."""
    random = np.random.default_rng(seed)
    return random.uniform(0.2, 0.8, QUERIES), random.normal(-loss, 0.2, QUERIES)


def verdict(before, change, margin=0.0):
    """Whether the gate finds a loss."""
    old, new = (dict(enumerate(map(float, values))) for values in (before, before + change))
    return decide(old, new, margin, TESTS).lost


def test_a_planted_loss_is_found():
    assert sum(verdict(*draw(seed)) for seed in range(SEEDS)) >= 95


def test_noise_of_the_same_size_passes():
    def shuffled(seed):
        before, change = draw(seed)
        return verdict(before, change * np.random.default_rng(1000 + seed).choice([-1, 1], QUERIES))

    assert sum(map(shuffled, range(SEEDS))) <= 5


def test_a_loss_that_is_accepted_passes_and_a_larger_one_does_not():
    assert sum(verdict(*draw(seed, 0.05), margin=0.05) for seed in range(SEEDS)) <= 5
    assert sum(verdict(*draw(seed, 0.10), margin=0.05) for seed in range(SEEDS)) >= 95


def test_p_is_the_share_of_assignments_of_signs_with_a_lower_sum():
    differences, margin = np.array([-0.5, 0.1, -0.2, -0.3, 0.05]), 0.1
    moved = differences + margin
    sums = [float(np.dot(signs, moved)) for signs in product([-1, 1], repeat=len(moved))]
    exact = sum(total <= moved.sum() + 1e-12 for total in sums) / len(sums)
    assert loss_test(differences, margin, 20_000, 3) == pytest.approx(exact, abs=0.01)


def test_few_queries_decide_nothing():
    values = {str(query): 0.5 for query in range(24)}
    assert decide(values, values, 0.0, TESTS) is None
    same = decide({**values, "x": 1.0}, {**values, "x": 1.0}, 0.0, TESTS)
    assert (same.p, same.lost, same.needed) == (1.0, False, None)


def test_the_digest_is_that_of_queries_and_judgements_in_any_order(tmp_path):
    def digest(queries, judged, level=1):
        write_rows(tmp_path / "queries.parquet", tables.QUERIES, queries)
        write_rows(tmp_path / "qrels.parquet", tables.QRELS, judged)
        return digest_of(tmp_path / "queries.parquet", tmp_path / "qrels.parquet", level)

    queries, judged = [("q1", "a"), ("q2", "b")], [("q1", "d1", 1), ("q2", "d1", 0)]
    known = digest(queries, judged)
    assert digest(queries[::-1], judged[::-1]) == known
    others = [digest(queries, judged, 2), digest([("q1", "a"), ("q2", "c")], judged), digest(queries, judged[:1])]
    assert len({known, *others}) == 4


def test_changed_settings_are_named():
    assert [*changes({"a": "1", "b": "2", "d": "4"}, {"a": "1", "b": "3", "c": "5"})] == [
        "b: 2 -> 3",
        "c: nothing -> 5",
        "d: 4 -> nothing",
    ]
