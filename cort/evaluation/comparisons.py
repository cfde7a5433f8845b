"""Comparing systems with a baseline on the queries of one split: intervals, tests, wins and losses, list lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt

from cort.evaluation.measures import Values
from cort.evaluation.significance import bootstrap_means, holm, interval, quantize, randomization_test, t_test

LARGEST = 10
"""Gains, and losses, listed per system and measure."""


@dataclass(frozen=True)
class Comparison:
    """One system against the baseline by one measure; an interval is from `low` to `high`.

    `t_test` and `randomization_test` are p-values, `_holm` those corrected; None where a test is not defined. `won`,
    `tied` and `lost` count queries.
    """

    system: str
    measure: str
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


@dataclass(frozen=True)
class ListLength:
    """`depth` is the shortest list of a system with at least the recall of the baseline's longest; None if none has."""

    system: str
    depth: int | None
    recall: float | None
    baseline_depth: int
    baseline_recall: float


@dataclass(frozen=True)
class Settings:
    """Chance that an interval holds the mean, size of the bootstrap and of the randomisation test, seed of both.

    A difference is significant if its corrected p-value of the randomisation test is at most `alpha`.
    """

    confidence: float
    resamples: int
    alpha: float
    seed: int


@dataclass(frozen=True)
class Comparisons:
    """All comparisons on one split, with the `Settings` they were made with."""

    split: str
    baseline: str
    queries: int
    confidence: float
    resamples: int
    alpha: float
    seed: int
    comparisons: list[Comparison]
    list_lengths: list[ListLength]


def compare(systems: Mapping[str, Values], baseline: str, settings: Settings) -> list[Comparison]:
    """Compare every other system with the baseline by every measure, in the order of the systems."""
    names = [name for name in systems if name != baseline]
    measures, base = systems[baseline].measures, systems[baseline].values
    values = np.stack([base, *(systems[name].values for name in names)], axis=1)
    drawn = bootstrap_means(values.reshape(len(base), -1), settings.resamples, settings.seed)
    drawn = drawn.reshape(settings.resamples, *values.shape[1:])
    low, high = interval(drawn, settings.confidence)
    difference_low, difference_high = interval(drawn[:, 1:] - drawn[:, :1], settings.confidence)
    units, _ = quantize(values[:, 1:] - values[:, :1])
    flat, shape = units.reshape(len(base), -1), units.shape[1:]
    by_signs = randomization_test(flat, settings.resamples, settings.seed).reshape(shape) if names else np.empty(shape)
    by_t = np.array(t_test(flat), dtype=object).reshape(shape)
    corrected_t, corrected_signs = (
        [holm(found[:, column].tolist()) for column in range(len(measures))] for found in (by_t, by_signs)
    )
    rows = []
    for row, name in enumerate(names):
        for column, measure in enumerate(measures):
            reached, before = fmean(systems[name].values[:, column]), fmean(base[:, column])
            corrected = corrected_signs[column][row]
            won, tied, lost = (int((np.sign(units[:, row, column]) == sign).sum()) for sign in (1, 0, -1))
            rows.append(
                Comparison(
                    system=name,
                    measure=measure,
                    mean=reached,
                    mean_low=float(low[1 + row, column]),
                    mean_high=float(high[1 + row, column]),
                    baseline_mean=before,
                    baseline_low=float(low[0, column]),
                    baseline_high=float(high[0, column]),
                    difference=reached - before,
                    difference_low=float(difference_low[row, column]),
                    difference_high=float(difference_high[row, column]),
                    t_test=by_t[row, column],
                    t_test_holm=corrected_t[column][row],
                    randomization_test=float(by_signs[row, column]),
                    randomization_test_holm=corrected,
                    significant=corrected is not None and corrected <= settings.alpha,
                    won=won,
                    tied=tied,
                    lost=lost,
                )
            )
    return rows


def list_lengths(recall: Mapping[str, Sequence[float]], baseline: str) -> list[ListLength]:
    """Find for every other system the shortest list with at least the recall of the baseline's longest."""
    wanted = recall[baseline][-1] if recall[baseline] else 0.0
    found = []
    for name, values in recall.items():
        if name != baseline:
            depth = next((k for k, value in enumerate(values, start=1) if value >= wanted), None)
            reached = None if depth is None else values[depth - 1]
            found.append(ListLength(name, depth, reached, len(recall[baseline]), wanted))
    return found


def largest_differences(
    systems: Mapping[str, Values], baseline: str, texts: Mapping[str, str]
) -> Iterator[tuple[str, str, str, str, float, float, float]]:
    """List the queries with the largest gains, then those with the largest losses, of each system and measure.

    A row is system, measure, query id, query, the baseline's value, the system's, and their difference.
    """
    base = systems[baseline]
    for name, one in systems.items():
        units, _ = quantize(one.values - base.values)
        for column, measure in enumerate(one.measures):
            for query in _extremes(units[:, column]):
                query_id = one.query_ids[query]
                before, after = float(base.values[query, column]), float(one.values[query, column])
                yield name, measure, query_id, texts.get(query_id, ""), before, after, after - before


def _extremes(units: npt.NDArray[np.float64]) -> list[int]:
    gains = [row for row in np.argsort(-units, kind="stable").tolist() if units[row] > 0]
    losses = [row for row in np.argsort(units, kind="stable").tolist() if units[row] < 0]
    return gains[:LARGEST] + losses[:LARGEST]
