"""Paired comparison of systems on the same queries: intervals, tests, and the correction for many tests.

Values and differences stand in a matrix, one row per query. Sums are taken of whole numbers of units so small that
nothing is lost, and so few that a double holds every sum: so the results are the same to the last bit in whatever order
a machine adds, and differences that are nothing but rounding are none.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

# Of a double.
DIGITS = 52
# Cells of a random matrix at a time: 16 MB.
CELLS_PER_BLOCK = 2 << 20


def quantize(values: Matrix) -> tuple[Matrix, float]:
    """Express values in whole units, and the unit: any sum of as many values as there are rows is exact."""
    largest = max(float(np.abs(values).max(initial=0.0)), 1.0) * max(len(values), 1)
    unit = 2.0 ** (math.ceil(math.log2(largest)) - DIGITS)
    return np.rint(values / unit), unit


def bootstrap_means(values: Matrix, resamples: int, seed: int) -> Matrix:
    """Means over queries drawn with replacement, as many as there are: one row per resample, one column per column.

    The same queries are drawn for all columns, so the difference of two columns is that of paired samples.
    """
    units, unit = quantize(values)
    generator = np.random.default_rng(seed)
    queries = len(values)
    sums = []
    for size in _blocks(resamples, queries):
        drawn = generator.integers(0, queries, (size, queries)) + queries * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * queries).reshape(size, queries)
        sums.append(counts.astype(np.float64) @ units)
    means: Matrix = np.concatenate(sums) * (unit / queries)
    return means


def interval(means: Matrix, confidence: float) -> Matrix:
    """Percentile interval of resampled means: a row of lower and a row of upper bounds."""
    tail = (1 - confidence) / 2
    bounds: Matrix = np.quantile(means, [tail, 1 - tail], axis=0)
    return bounds


def randomization_test(differences: Matrix, resamples: int, seed: int) -> Matrix:
    """Two-sided p-value of each column by the paired randomisation test, (b + 1) / (resamples + 1).

    If the two systems were alike, each difference would have either sign with the same chance; b counts the random
    signs that give a mean at least as far from 0 as the one observed.
    """
    units, _ = quantize(differences)
    generator = np.random.default_rng(seed)
    queries = len(differences)
    # Half a unit per query may be lost on either side.
    observed = np.abs(units.sum(axis=0)) - queries
    reached = np.zeros(units.shape[1], dtype=np.int64)
    for size in _blocks(resamples, queries):
        bits = np.unpackbits(np.frombuffer(generator.bytes(-(-size * queries // 8)), dtype=np.uint8))
        signs = 1.0 - 2.0 * bits[: size * queries].reshape(size, queries)
        reached += (np.abs(signs @ units) >= observed).sum(axis=0)
    return (reached + 1) / (resamples + 1)


def t_test(differences: Matrix) -> list[float | None]:
    """Two-sided p-value of each column by Student's paired t-test; 1 if nothing differs, None for fewer than 2 queries.

    Differences that are all the same but not 0 have no variance, and p is 0.
    """
    from scipy import stats

    if len(differences) < 2:
        return [None] * differences.shape[1]
    units, _ = quantize(differences)
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        # Of differences that are all alike, for which see above.
        warnings.simplefilter("ignore", RuntimeWarning)
        found = stats.ttest_1samp(units, 0.0, axis=0).pvalue
    return [1.0 if same else float(p) for p, same in zip(found, (units == 0).all(axis=0), strict=True)]


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Correct the p-values of one family of tests by Holm's step-down method; unknown ones are no part of it."""
    known = sorted((p, position) for position, p in enumerate(values) if p is not None)
    corrected: list[float | None] = [None] * len(values)
    largest = 0.0
    for step, (p, position) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - step)))
        corrected[position] = largest
    return corrected


def _blocks(resamples: int, queries: int) -> Iterator[int]:
    """Sizes of blocks of resamples that add up to all."""
    size = max(1, CELLS_PER_BLOCK // max(queries, 1))
    for start in range(0, resamples, size):
        yield min(size, resamples - start)
