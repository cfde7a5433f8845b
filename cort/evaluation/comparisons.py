"""Comparison of pairs of systems on the queries of one split: intervals, tests, verdicts, wins, losses, list lengths.

Values and differences form a matrix with a row per query. They are rounded to multiples of a tiny unit, so that a
double holds every sum exactly. Results are therefore bit-identical in any order of addition, and differences that are
mere rounding errors become 0.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cort.evaluation.values import Values

Matrix = npt.NDArray[np.float64]

# Gains, and losses, listed per system and measure.
LARGEST = 10
# Bits in the mantissa of a double.
DIGITS = 52
# Size of one block of a random matrix: 16 MB.
CELLS_PER_BLOCK = 2 << 20

# With fewer queries there is no verdict, because systems often swap places on other queries; 50 are better still
# (Buckley and Voorhees, Evaluating Evaluation Measure Stability, SIGIR 2000).
MIN_QUERIES = 25
# The difference that `queries_needed` should detect.
DETECTABLE = 0.02

WIN, NOT_SIGNIFICANT, LOSS, TOO_FEW = "WIN", "NOT SIGNIFICANT", "LOSS", "TOO FEW QUERIES"


class Pair(NamedTuple):
    """A system, the system it is compared with, and the role of the latter: part, start, baseline or contrast."""

    system: str
    baseline: str
    relation: str


@dataclass(frozen=True)
class Comparison:
    """One system against another, its `baseline`, by one measure; intervals run from `low` to `high`.

    `t_test` and `randomization_test` are p-values, `_holm` the corrected ones; None where a test is undefined. `won`,
    `tied` and `lost` count queries. The verdict is WIN or LOSS if the difference is significant, which requires at
    least `MIN_QUERIES` queries. For `queries_needed`, see the function of that name.
    """

    system: str
    baseline: str
    relation: str
    measure: str
    verdict: str
    mean: float
    mean_low: float
    mean_high: float
    baseline_mean: float
    baseline_low: float
    baseline_high: float
    difference: float
    difference_low: float
    difference_high: float
    t_test: float | None
    t_test_holm: float | None
    randomization_test: float
    randomization_test_holm: float | None
    significant: bool
    won: int
    tied: int
    lost: int
    queries_needed: int | None

    @property
    def disagrees(self) -> bool:
        """Whether the interval and the verdict seem to contradict each other."""
        return self.verdict != TOO_FEW and self.significant == (self.difference_low <= 0 <= self.difference_high)


@dataclass(frozen=True)
class ListLength:
    """The smallest `depth` at which a system has the recall of the baseline's longest list; None if there is none."""

    system: str
    depth: int | None
    recall: float | None
    baseline_depth: int
    baseline_recall: float


@dataclass(frozen=True)
class Settings:
    """Confidence of the intervals, resamples and seed of bootstrap and randomisation test, and significance level.

    A difference is significant if the corrected p-value of its randomisation test is at most `alpha`, on at least
    `MIN_QUERIES` queries.
    """

    confidence: float
    resamples: int
    alpha: float
    seed: int


@dataclass(frozen=True)
class Comparisons:
    """All comparisons on one split, by pair and measure, and their `Settings`.

    List lengths and the tables of systems refer to one `baseline`.
    """

    split: str
    baseline: str
    queries: int
    confidence: float
    resamples: int
    alpha: float
    seed: int
    comparisons: list[Comparison]
    list_lengths: list[ListLength]

    def against(self, baseline: str | None, measure: str) -> dict[str, Comparison]:
        """Return the comparison of each system with a baseline by a measure."""
        return {row.system: row for row in self.comparisons if row.baseline == baseline and row.measure == measure}


def compare(systems: Mapping[str, Values], pairs: Sequence[Pair], settings: Settings) -> list[Comparison]:
    """Compare pairs of systems by every measure, pair by pair; p-values are corrected over the pairs of a measure."""
    if not pairs:
        return []
    names, measures = list(systems), next(iter(systems.values())).measures
    values = np.stack([system.values for system in systems.values()], axis=1)  # (queries, systems, measures)
    drawn = bootstrap_means(values.reshape(len(values), -1), settings.resamples, settings.seed)
    drawn = drawn.reshape(settings.resamples, *values.shape[1:])
    bounds = interval(drawn, settings.confidence)
    first, second = ([names.index(pair[side]) for pair in pairs] for side in (0, 1))
    units, _ = quantize(values[:, first] - values[:, second])
    flat, shape = units.reshape(len(values), -1), units.shape[1:]
    by_signs = randomization_test(flat, settings.resamples, settings.seed).reshape(shape)
    by_t = np.array(t_test(flat), dtype=object).reshape(shape)
    corrected_t, corrected_signs = ([holm(column.tolist()) for column in p.T] for p in (by_t, by_signs))
    rows = []
    for row, (pair, system, base) in enumerate(zip(pairs, first, second, strict=True)):
        low, high = interval(drawn[:, system] - drawn[:, base], settings.confidence)
        for column, measure in enumerate(measures):
            mean, baseline_mean = (fmean(values[:, place, column]) for place in (system, base))
            corrected = corrected_signs[column][row]
            significant = corrected is not None and corrected <= settings.alpha and len(values) >= MIN_QUERIES
            won, tied, lost = (int((np.sign(units[:, row, column]) == sign).sum()) for sign in (1, 0, -1))
            rows.append(
                Comparison(
                    **pair._asdict(),
                    measure=measure,
                    verdict=judge(mean - baseline_mean, significant, len(values)),
                    mean=mean,
                    mean_low=float(bounds[0, system, column]),
                    mean_high=float(bounds[1, system, column]),
                    baseline_mean=baseline_mean,
                    baseline_low=float(bounds[0, base, column]),
                    baseline_high=float(bounds[1, base, column]),
                    difference=mean - baseline_mean,
                    difference_low=float(low[column]),
                    difference_high=float(high[column]),
                    t_test=by_t[row, column],
                    t_test_holm=corrected_t[column][row],
                    randomization_test=float(by_signs[row, column]),
                    randomization_test_holm=corrected,
                    significant=significant,
                    won=won,
                    tied=tied,
                    lost=lost,
                    queries_needed=queries_needed(values[:, system, column] - values[:, base, column]),
                )
            )
    return rows


def judge(difference: float, significant: bool, queries: int) -> str:
    """Return the verdict on a difference over `queries` queries."""
    if queries < MIN_QUERIES:
        return TOO_FEW
    if not significant:
        return NOT_SIGNIFICANT
    return WIN if difference > 0 else LOSS


def queries_needed(differences: Matrix) -> int | None:
    """Estimate how many queries detect a mean difference of `DETECTABLE` (two-sided alpha 0.05, power 0.8).

    This is the normal approximation for a paired test, ((z_0.975 + z_0.8) s / d)^2, where s is the standard deviation
    of the paired differences (Webber, Moffat and Zobel, Statistical Power in Retrieval Experimentation, CIKM 2008).
    It is at least `MIN_QUERIES`, and None if s is 0 or undefined, as for fewer than 2 queries.
    """
    units, unit = quantize(differences)
    if len(units) < 2 or not (deviation := float(units.std(ddof=1)) * unit):
        return None
    normal = NormalDist()
    return max(MIN_QUERIES, math.ceil(((normal.inv_cdf(0.975) + normal.inv_cdf(0.8)) * deviation / DETECTABLE) ** 2))


def list_lengths(recall: Mapping[str, Sequence[float]], baseline: str) -> list[ListLength]:
    """Find each other system's shortest list with at least the recall of the baseline's longest list."""
    target = recall[baseline][-1] if recall[baseline] else 0.0
    lengths = []
    for name, values in recall.items():
        if name != baseline:
            deep_enough = ((depth, value) for depth, value in enumerate(values, start=1) if value >= target)
            depth, reached = next(deep_enough, (None, None))
            lengths.append(ListLength(name, depth, reached, len(recall[baseline]), target))
    return lengths


def largest_differences(
    systems: Mapping[str, Values], baseline: str, texts: Mapping[str, str]
) -> Iterator[tuple[str, str, str, str, float, float, float]]:
    """List the queries with the largest gains, then those with the largest losses, per system and measure.

    A row has system, measure, query_id, query, the baseline's value, the system's value, and their difference.
    """
    base = systems[baseline]
    for name, system in systems.items():
        units, _ = quantize(system.values - base.values)
        for column, measure in enumerate(system.measures):
            up, down = (np.argsort(sign * units[:, column], kind="stable") for sign in (-1, 1))
            gains, losses = up[units[up, column] > 0], down[units[down, column] < 0]
            for query in [*gains[:LARGEST].tolist(), *losses[:LARGEST].tolist()]:
                query_id = system.query_ids[query]
                before, after = float(base.values[query, column]), float(system.values[query, column])
                yield name, measure, query_id, texts.get(query_id, ""), before, after, after - before


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
    generator = np.random.default_rng(seed)
    queries = len(differences)
    # Rounding may lose half a unit per query on either side.
    observed = np.abs(units.sum(axis=0)) - queries
    reached = np.zeros(units.shape[1], dtype=np.int64)
    for size in _blocks(resamples, queries):
        bits = np.unpackbits(np.frombuffer(generator.bytes(-(-size * queries // 8)), dtype=np.uint8))
        signs = 1.0 - 2.0 * bits[: size * queries].reshape(size, queries)
        reached += (np.abs(signs @ units) >= observed).sum(axis=0)
    return (reached + 1) / (resamples + 1)


def t_test(differences: Matrix) -> list[float | None]:
    """Compute the two-sided p-value of Student's paired t-test for each column; None for fewer than 2 queries.

    p is 1 if all differences are 0, and 0 if they are all equal but not 0.
    """
    from scipy import stats

    if len(differences) < 2:
        return [None] * differences.shape[1]
    units, _ = quantize(differences)
    # SciPy warns if all differences are equal.
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        p_values = stats.ttest_1samp(units, 0.0, axis=0).pvalue
    return [1.0 if same else float(p) for p, same in zip(p_values, (units == 0).all(axis=0), strict=True)]


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Correct the p-values of a family of tests by Holm's step-down method, ignoring undefined ones."""
    known = sorted((p, position) for position, p in enumerate(values) if p is not None)
    corrected: list[float | None] = [None] * len(values)
    largest = 0.0
    for step, (p, position) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - step)))
        corrected[position] = largest
    return corrected


def _blocks(resamples: int, queries: int) -> Iterator[int]:
    """Yield the sizes of blocks of resamples, which add up to `resamples`."""
    size = max(1, CELLS_PER_BLOCK // max(queries, 1))
    for start in range(0, resamples, size):
        yield min(size, resamples - start)


def by_pair(rows: Iterable[Comparison]) -> dict[tuple[str, str], list[Comparison]]:
    """Group comparisons by system and baseline, each group in the order of the measures."""
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for row in rows:
        pairs.setdefault((row.system, row.baseline), []).append(row)
    return pairs


def verdict_lines(compared: Comparisons) -> list[str]:
    """Write a legend, then a line per pair: verdict and numbers by the first measure, then other differences."""
    pairs = by_pair(compared.comparisons).values()
    legend = (
        f"differences with {compared.confidence * 100:g} % intervals over {compared.queries} queries; p of "
        f"the paired randomisation test corrected by Holm's method over {len(pairs)} comparisons; "
        f"WIN and LOSS if at most {compared.alpha:g}"
    )
    return [f"{compared.split}: {line}" for line in [legend, *(_line(rows, compared, len(pairs)) for rows in pairs)]]


def needed(row: Comparison) -> str:
    """Say how many queries a verdict requires."""
    if row.queries_needed is None:
        return f"at least {MIN_QUERIES} are needed"
    return f"about {row.queries_needed:,} are needed to detect a difference of {DETECTABLE}"


def disagreement(pairs: int) -> str:
    """Explain why an interval and its verdict may seem to contradict each other."""
    return (
        "interval and p disagree: the interval is the bootstrap's, for this comparison alone; p is the randomisation "
        f"test's, corrected for all {pairs:,} comparisons"
    )


def _line(rows: list[Comparison], compared: Comparisons, pairs: int) -> str:
    first, others = rows[0], rows[1:]
    pair = f"{first.system} against {first.baseline}: {first.measure} {first.difference:+.3f}"
    if first.verdict == TOO_FEW:
        return f"{TOO_FEW} ({compared.queries:,})  {pair}; {needed(first)}"
    text = (
        f"{first.verdict:<{len(NOT_SIGNIFICANT)}}  {pair} [{first.difference_low:+.3f}, {first.difference_high:+.3f}]"
    )
    if first.randomization_test_holm is not None:
        text += f", p {first.randomization_test_holm:.4f}"
    if first.disagrees:
        text += f" ({disagreement(pairs)})"
    for verdict in (WIN, LOSS):
        if names := [row.measure for row in others if row.verdict == verdict]:
            text += f"; {verdict} in {', '.join(names)}"
    return text
