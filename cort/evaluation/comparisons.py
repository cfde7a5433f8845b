"""Comparison of pairs of systems on the queries of one split: verdicts, wins, losses, list lengths."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from cort.evaluation.significance import bootstrap_means, holm, interval, quantize, queries_needed, randomization_test
from cort.evaluation.values import Values

# Gains, and losses, listed per system and measure.
LARGEST = 10

# With fewer queries there is no verdict, because systems often swap places on other queries; 50 are better still
# (Buckley and Voorhees, Evaluating Evaluation Measure Stability, SIGIR 2000).
MIN_QUERIES = 25
# The difference that `queries_needed` should detect.
DETECTABLE = 0.02

# Families, whose p-values are corrected together; `ALL` is that of files written before there were two.
BASELINE, OTHERS, ALL = "baseline", "others", "all"
WIN, NOT_SIGNIFICANT, LOSS, TOO_FEW = "WIN", "NOT SIGNIFICANT", "LOSS", "TOO FEW QUERIES"


class Pair(NamedTuple):
    """A system, the system it is compared with, and the role of the latter: part, start, baseline or contrast."""

    system: str
    baseline: str
    relation: str

    @property
    def family(self) -> str:
        """The comparisons that this one is corrected with: those with the baseline, or all others."""
        return BASELINE if self.relation == "baseline" else OTHERS


@dataclass(frozen=True)
class Comparison:
    """One system against another, its `baseline`, by one measure; intervals run from `low` to `high`.

    `randomization_test` is a p-value, `_holm` the one corrected over the pairs of the `family` by this measure; `won`,
    `tied` and `lost` count queries. The verdict is WIN or LOSS if the difference is significant, which requires at
    least `MIN_QUERIES` queries. `queries_needed` detect a difference of `DETECTABLE` in a family of this size,
    `queries_to_decide` the difference that is seen here; None if this is unknown.
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
    randomization_test: float
    randomization_test_holm: float
    significant: bool
    won: int
    tied: int
    lost: int
    queries_needed: int | None
    queries_to_decide: int | None = None
    family: str = ALL

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
class Tests:
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
    """All comparisons on one split, by pair and measure, and their `Tests`.

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

    def sizes(self) -> dict[str, int]:
        """Count the pairs of each family."""
        return Counter({(row.system, row.baseline): row.family for row in self.comparisons}.values())

    def against(self, baseline: str | None, measure: str) -> dict[str, Comparison]:
        """Return the comparison of each system with a baseline by a measure."""
        return {row.system: row for row in self.comparisons if row.baseline == baseline and row.measure == measure}


def compare(systems: Mapping[str, Values], pairs: Sequence[Pair], tests: Tests) -> list[Comparison]:
    """Compare pairs of systems by every measure, pair by pair; p-values are corrected by family and measure."""
    if not pairs:
        return []
    names, measures = list(systems), next(iter(systems.values())).measures
    values = np.stack([system.values for system in systems.values()], axis=1)  # (queries, systems, measures)
    means = np.array([[fmean(column) for column in system.T] for system in values.swapaxes(0, 1)])
    drawn = bootstrap_means(values.reshape(len(values), -1), tests.resamples, tests.seed)
    drawn = drawn.reshape(tests.resamples, *means.shape)
    first, second = ([names.index(pair[side]) for pair in pairs] for side in (0, 1))
    differences = values[:, first] - values[:, second]  # (queries, pairs, measures)
    units, _ = quantize(differences)
    p_values = randomization_test(units.reshape(len(values), -1), tests.resamples, tests.seed)
    p_values = p_values.reshape(units.shape[1:])  # (pairs, measures)
    families = [pair.family for pair in pairs]
    corrected = np.empty_like(p_values)
    for family in {*families}:
        own_family = [place for place, name in enumerate(families) if name == family]
        corrected[own_family] = np.array([holm(column.tolist()) for column in p_values[own_family].T]).T
    low, high = interval(drawn, tests.confidence)  # (systems, measures)
    difference_low, difference_high = interval(drawn[:, first] - drawn[:, second], tests.confidence)
    numbers = {
        "mean": means[first],
        "mean_low": low[first],
        "mean_high": high[first],
        "baseline_mean": means[second],
        "baseline_low": low[second],
        "baseline_high": high[second],
        "difference": means[first] - means[second],
        "difference_low": difference_low,
        "difference_high": difference_high,
        "randomization_test": p_values,
        "randomization_test_holm": corrected,
        "significant": (corrected <= tests.alpha) & (len(values) >= MIN_QUERIES),
        "won": (units > 0).sum(axis=0),
        "tied": (units == 0).sum(axis=0),
        "lost": (units < 0).sum(axis=0),
    }
    rows = []
    for (row, pair), (column, measure) in product(enumerate(pairs), enumerate(measures)):
        own: dict[str, Any] = {name: matrix[row, column].item() for name, matrix in numbers.items()}
        verdict = judge(own["difference"], own["significant"], len(values))
        for name, size in {"queries_needed": DETECTABLE, "queries_to_decide": own["difference"]}.items():
            needed = queries_needed(differences[:, row, column], size, tests.alpha, families.count(pair.family))
            own[name] = None if needed is None else max(MIN_QUERIES, needed)
        rows.append(Comparison(**pair._asdict(), measure=measure, verdict=verdict, **own, family=pair.family))
    return rows


def judge(difference: float, significant: bool, queries: int) -> str:
    """Return the verdict on a difference over `queries` queries."""
    if queries < MIN_QUERIES:
        return TOO_FEW
    if not significant:
        return NOT_SIGNIFICANT
    return WIN if difference > 0 else LOSS


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


def by_pair(rows: Iterable[Comparison]) -> dict[tuple[str, str], list[Comparison]]:
    """Group comparisons by system and baseline, each group in the order of the measures."""
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for row in rows:
        pairs.setdefault((row.system, row.baseline), []).append(row)
    return pairs
