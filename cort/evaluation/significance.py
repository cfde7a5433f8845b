"""Significance of differences between systems: bootstrap intervals, the randomisation test, Holm's correction, power.

Values and differences form a matrix with a row per query. They are rounded to multiples of a tiny unit, so that a
double holds every sum exactly. Results are therefore bit-identical in any order of addition, and differences that are
mere rounding errors become 0.
"""

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

# Bits in the mantissa of a double.
DIGITS = 52
# Size of one block of a random matrix: 16 MB.
CELLS_PER_BLOCK = 2 << 20
POWER = 0.8


def quantize(values: Matrix) -> tuple[Matrix, float]:
    """Express values as whole units; also return the unit. Any sum of as many values as there are rows is exact."""
    largest = max(float(np.abs(values).max(initial=0.0)), 1.0) * max(len(values), 1)
    unit = 2.0 ** (math.ceil(math.log2(largest)) - DIGITS)
    return np.rint(values / unit), unit


def bootstrap_means(values: Matrix, resamples: int, seed: int) -> Matrix:
    """Compute means over queries drawn with replacement: a row per resample, a column per column of `values`.

    The same queries are drawn for all columns, so differences between columns are those of paired samples.
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
    """Compute percentile intervals of resampled means: a row of lower bounds and a row of upper bounds."""
    tail = (1 - confidence) / 2
    bounds: Matrix = np.quantile(means, [tail, 1 - tail], axis=0)
    return bounds


def randomization_test(differences: Matrix, resamples: int, seed: int) -> Matrix:
    """Compute the two-sided p-value of the paired randomisation test for each column, (b + 1) / (resamples + 1).

    Under the null hypothesis, both signs of a difference are equally likely; b counts the random assignments of signs
    whose mean is at least as far from 0 as the observed mean.
    """
    units, _ = quantize(differences)
    # Rounding may lose half a unit per query on either side.
    observed = np.abs(units.sum(axis=0)) - len(units)
    reached = np.zeros(units.shape[1], dtype=np.int64)
    for sums in _random_sums(units, resamples, seed):
        reached += (np.abs(sums) >= observed).sum(axis=0)
    return (reached + 1) / (resamples + 1)


def loss_test(differences: Matrix, margin: float, resamples: int, seed: int) -> float:
    """Compute the one-sided p-value of the paired randomisation test that a mean is below ``-margin``.

    The null hypothesis is at its border: differences are symmetric about ``-margin``, so that differences plus the
    margin have random signs. With a margin, 1 - p is that of a test of non-inferiority, up to ties.

    :param differences: one per query.
    """
    units, _ = quantize(differences[:, None] + margin)
    observed = units.sum(axis=0) + len(units)
    reached = sum(int((sums <= observed).sum()) for sums in _random_sums(units, resamples, seed))
    return (reached + 1) / (resamples + 1)


def _random_sums(units: Matrix, resamples: int, seed: int) -> Iterator[Matrix]:
    """Yield blocks of sums with random signs, a row per resample."""
    generator = np.random.default_rng(seed)
    queries = len(units)
    for size in _blocks(resamples, queries):
        bits = np.unpackbits(np.frombuffer(generator.bytes(-(-size * queries // 8)), dtype=np.uint8))
        signs = 1.0 - 2.0 * bits[: size * queries].reshape(size, queries)
        yield signs @ units


def holm(values: Sequence[float]) -> list[float]:
    """Correct the p-values of a family of tests by Holm's step-down method."""
    corrected = [0.0] * len(values)
    largest = 0.0
    for step, (p, position) in enumerate(sorted((p, position) for position, p in enumerate(values))):
        largest = max(largest, min(1.0, p * (len(values) - step)))
        corrected[position] = largest
    return corrected


def queries_needed(differences: Matrix, difference: float, alpha: float, comparisons: int) -> int | None:
    """Estimate how many queries detect a mean difference in the largest of several comparisons (power 0.8).

    This is the normal approximation for a paired two-sided test, ((z_(1 - a/2) + z_0.8) s / d)^2, where s is the
    standard deviation of the paired differences (Webber, Moffat and Zobel, Statistical Power in Retrieval
    Experimentation, CIKM 2008), and a is the level of Holm's first step, alpha / comparisons. With the observed
    mean as the difference, it is optimistic where that is larger than the true one by chance. None if s is 0 or
    undefined, as for fewer than 2 queries, or the difference is 0.
    """
    units, unit = quantize(differences)
    if len(units) < 2 or not difference or not (deviation := float(units.std(ddof=1)) * unit):
        return None
    normal = NormalDist()
    needed = normal.inv_cdf(1 - alpha / comparisons / 2) + normal.inv_cdf(POWER)
    return math.ceil((needed * deviation / difference) ** 2)


def _blocks(resamples: int, queries: int) -> Iterator[int]:
    """Yield the sizes of blocks of resamples, which add up to `resamples`."""
    size = max(1, CELLS_PER_BLOCK // max(queries, 1))
    for start in range(0, resamples, size):
        yield min(size, resamples - start)
