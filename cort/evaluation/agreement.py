"""Agreement of two sets of labels of the same queries: on the labels, and on the ranking of systems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cort.evaluation.significance import Matrix, bootstrap_means, interval, quantize

RESAMPLES, CONFIDENCE = 2_000, 0.95


@dataclass(frozen=True)
class Agreement:
    """Two splits with `queries` in common, and `pairs` of a query and a document that both judge.

    `kappa` is Cohen's, on relevant or not, and `weighted_kappa` weighs the difference of two grades by its square.
    `tau` is Kendall's tau-b of the rankings of the systems by the mean of a measure over the common queries, and the
    ends of its 95 % bootstrap interval. None where a value is undefined.
    """

    first: str
    second: str
    queries: int
    pairs: int
    kappa: float | None
    weighted_kappa: float | None
    systems: int
    measure: str | None
    tau: list[float] | None


def kappa(labels: npt.NDArray[np.int64]) -> float | None:
    """Compute the quadratic-weighted kappa of two columns of labels; of labels 0 and 1, it is Cohen's.

    :return: None if all labels are equal, or there are none.
    """
    if (labels == labels[:1, :1]).all():
        return None
    from sklearn.metrics import cohen_kappa_score

    # scikit-learn weighs by the places of labels in this list.
    return float(cohen_kappa_score(*labels.T, labels=np.arange(labels.min(), labels.max() + 1), weights="quadratic"))


def correlate(values: Matrix, seed: int) -> list[float] | None:
    """Correlate two rankings of systems by their mean values.

    :param values: a row per query, with values of two or more systems by the first labels, then by the second.
    :return: tau-b and the ends of its interval, from resamples of the queries that rank the systems; None without.
    """
    from scipy.stats import kendalltau

    # Whole units add up exactly, so that equal means are ties.
    units, _ = quantize(values)
    means = np.concatenate([units.mean(axis=0, keepdims=True), bootstrap_means(units, RESAMPLES, seed)])
    tau, *drawn = (float(kendalltau(*np.split(row, 2)).statistic) for row in means)
    if np.isnan(tau):
        return None
    return [tau, *interval(np.array(drawn)[~np.isnan(drawn)], CONFIDENCE).tolist()]
