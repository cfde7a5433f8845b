import itertools
import math

import numpy as np
import pytest
from scipy import stats

from cort.evaluation import significance


def differences(seed, queries, columns=3, shift=0.0):
    return np.random.default_rng(seed).normal(shift, 0.3, (queries, columns))


def exact_p(values):
    """p-value over all assignments of signs."""
    signs = np.array(list(itertools.product((1, -1), repeat=len(values))))
    return float((np.abs(signs @ values) >= abs(values.sum()) - 1e-9).mean())


@pytest.mark.parametrize("seed", range(2))
def test_the_randomisation_test_comes_near_the_exact_one(seed):
    values = differences(seed, 11, shift=0.15)
    found = significance.randomization_test(values, 20_000, seed)
    assert found.tolist() == significance.randomization_test(values, 20_000, seed).tolist()
    assert found.tolist() != significance.randomization_test(values, 20_000, seed + 1).tolist()
    for column, p in enumerate(found):
        # Four standard deviations of a share among 20,000.
        assert p == pytest.approx(exact_p(values[:, column]), abs=4 * math.sqrt(0.25 / 20_000))


def test_the_randomisation_test_counts_signs_that_give_the_mean_observed():
    # Of the four assignments of signs, two are as far from 0; rounding must not lose them.
    assert significance.randomization_test(np.array([[0.1], [0.2]]), 40_000, 1)[0] == pytest.approx(1 / 2, abs=0.02)
    assert significance.randomization_test(np.array([[0.3]]), 100, 1)[0] == 1.0
    found = significance.randomization_test(np.full((50, 1), 0.5), 999, 1)
    assert found[0] == 1 / 1000


def test_systems_that_differ_by_rounding_alone_do_not_differ():
    noise = np.random.default_rng(1).normal(0, 1e-16, (40, 1))
    for values in (np.zeros((40, 1)), noise):
        assert significance.randomization_test(values, 500, 3).tolist() == [1.0]


def test_the_bootstrap_agrees_with_scipys():
    values = differences(6, 60, columns=1)[:, 0]
    ours = significance.interval(significance.bootstrap_means(values[:, None], 20_000, 1), 0.9)[:, 0]
    theirs = stats.bootstrap((values,), np.mean, n_resamples=20_000, confidence_level=0.9, method="percentile", rng=2)
    assert ours == pytest.approx([theirs.confidence_interval.low, theirs.confidence_interval.high], abs=0.004)


def test_all_columns_are_drawn_together_and_a_constant_has_an_interval_of_no_width():
    values = differences(7, 20, columns=1)
    means = significance.bootstrap_means(np.hstack([values, values + 0.25]), 200, 1)
    assert means[:, 1] - means[:, 0] == pytest.approx(0.25, abs=1e-9)
    for constant in (np.array([[0.25]]), np.full((9, 1), 0.25)):
        found = significance.interval(significance.bootstrap_means(constant, 100, 1), 0.95)
        assert found.tolist() == [[0.25], [0.25]]


def test_sums_do_not_depend_on_their_order_nor_on_blocks(monkeypatch):
    values = differences(8, 300)
    units, unit = significance.quantize(values)
    assert units * unit == pytest.approx(values, abs=1e-12)
    order = np.random.default_rng(1).permutation(300)
    assert units.sum(axis=0).tolist() == units[order].sum(axis=0).tolist()
    means = significance.bootstrap_means(values, 50, 4)
    monkeypatch.setattr(significance, "CELLS_PER_BLOCK", 300 * 8)
    assert np.array_equal(significance.bootstrap_means(values, 50, 4), means)


@pytest.mark.parametrize(
    ("values", "corrected"),
    [
        # The example of Holm's method in most textbooks.
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.9, 0.8], [1.0, 1.0]),
        ([0.02, 0.02], [0.04, 0.04]),
        ([], []),
    ],
)
def test_holm(values, corrected):
    assert significance.holm(values) == pytest.approx(corrected)


@pytest.mark.parametrize(("comparisons", "quantile"), [(1, 1.959964), (5, 2.575829), (100, 3.480756)])
def test_the_number_of_queries_that_detects_a_difference(comparisons, quantile):
    """The smallest of as many p-values is at most .05 / comparisons."""
    values = np.random.default_rng(3).normal(0.1, 0.3, 60)
    expected = math.ceil(((quantile + 0.841621) * values.std(ddof=1) / 0.02) ** 2)
    assert significance.queries_needed(values, 0.02, 0.05, comparisons) == pytest.approx(expected, abs=1)
    for number in (0, 1, 30):
        assert significance.queries_needed(np.full(number, 0.3), 0.02, 0.05, comparisons) is None
