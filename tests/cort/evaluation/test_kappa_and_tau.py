"""Agreement of labels: known answers as formulas, and oracles that count all pairs."""

from itertools import combinations, product
from math import sqrt

import numpy as np
import pytest
from scipy.stats import kendalltau

from cort.evaluation import agreement
from cort.evaluation.agreement import correlate, kappa


@pytest.fixture(autouse=True)
def resamples(monkeypatch):
    monkeypatch.setattr(agreement, "RESAMPLES", 200)
    return 200


def weighted_kappa(labels, weight):
    """Kappa from the table of observed and expected labels."""
    first, second = zip(*labels, strict=True)
    observed = sum(weight(a, b) for a, b in labels) / len(labels)
    expected = sum(weight(a, b) for a, b in product(first, second)) / len(labels) ** 2
    return 1 - observed / expected


def tau_b(first, second):
    """Kendall's tau-b, by counting the pairs of systems."""
    signs = [
        (np.sign(first[i] - first[j]), np.sign(second[i] - second[j])) for i, j in combinations(range(len(first)), 2)
    ]
    untied = [sum(bool(pair[side]) for pair in signs) for side in (0, 1)]
    return sum(a * b for a, b in signs) / sqrt(untied[0] * untied[1]) if all(untied) else None


def test_kappa_is_agreement_beyond_chance():
    # 20 pairs relevant in both, 15 in neither, 5 and 10 in one: agreement .7, by chance .5 (Cohen 1960).
    labels = np.array([[1, 1]] * 20 + [[1, 0]] * 5 + [[0, 1]] * 10 + [[0, 0]] * 15)
    assert kappa(labels) == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    assert kappa(np.array([[0, 0], [3, 3], [1, 1]])) == 1
    # Opposite labels.
    assert kappa(np.array([[0, 1], [1, 0]])) == -1
    # Without different labels, it is undefined.
    assert kappa(np.empty((0, 2), np.int64)) is kappa(np.full((5, 2), 2)) is None


def test_kappa_is_that_of_all_pairs_of_labels():
    labels = np.random.default_rng(1).integers(0, 4, (60, 2))
    labels[:30, 1] = labels[:30, 0]
    for grades in (labels, labels**2 - 1):
        assert kappa(grades) == pytest.approx(weighted_kappa(grades.tolist(), lambda a, b: (a - b) ** 2))
    binary = (labels >= 2).astype(np.int64)
    assert kappa(binary) == pytest.approx(weighted_kappa(binary.tolist(), lambda a, b: a != b))


def test_tau_counts_pairs_of_systems_that_are_ranked_alike():
    # Two of three pairs alike, in every resample.
    assert correlate(np.array([[0.1, 0.2, 0.3, 0.2, 0.1, 0.3]] * 4), 1) == pytest.approx([1 / 3] * 3)
    assert correlate(np.array([[0.1, 0.2, 0.1, 0.2]]), 1) == pytest.approx([1, 1, 1])
    # One tie of the first ranking: 2 of 2 untied pairs, of 2 and 3.
    assert correlate(np.array([[0.1, 0.2, 0.2, 0.1, 0.2, 0.3]]), 1)[0] == pytest.approx(2 / sqrt(2 * 3))
    # No ranking.
    assert correlate(np.array([[0.5, 0.5, 0.1, 0.2]]), 1) is None


def test_tau_and_its_interval_are_those_of_means_over_drawn_queries(resamples):
    queries, systems = 12, 5
    values = np.random.default_rng(2).integers(0, 4, (queries, 2 * systems)) / 4
    values[:, systems:] = (values[:, systems:] + values[:, :systems]) / 2
    tau, low, high = correlate(values, 7)
    means = values.mean(axis=0)
    assert tau == pytest.approx(tau_b(means[:systems], means[systems:]))
    assert tau == pytest.approx(kendalltau(means[:systems], means[systems:]).statistic)
    draws = np.random.default_rng(7).integers(0, queries, (resamples, queries))
    drawn = [values[rows].sum(axis=0) for rows in draws]
    taus = [tau_b(one[:systems], one[systems:]) for one in drawn]
    assert [low, high] == pytest.approx(np.quantile([one for one in taus if one is not None], [0.025, 0.975]))
    assert low < tau < high
    assert correlate(values, 7) == [tau, low, high]
