"""How systems differ from the baseline: what the stage `compare` found, read and checked, as tables and in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cort.formats.artifacts import Node, read_json
from cort.reporting.labels import MISSING, count, fixed, measure_label, plural, signed
from cort.reporting.tables import Cell, Column, Table


@dataclass(frozen=True)
class Contrast:
    """One system against the baseline by one measure; intervals are (low, high), p-values (as it is, corrected)."""

    system: str
    measure: str
    mean: float
    mean_interval: tuple[float, float]
    baseline_mean: float
    baseline_interval: tuple[float, float]
    difference: float
    difference_interval: tuple[float, float]
    t_test: tuple[float | None, float | None]
    randomization_test: tuple[float | None, float | None]
    significant: bool
    won: int
    tied: int
    lost: int


@dataclass(frozen=True)
class ListLength:
    """`depth` is the shortest list with at least the recall of the baseline's longest, None where none has."""

    system: str
    depth: int | None
    recall: float | None
    baseline_depth: int
    baseline_recall: float


@dataclass(frozen=True)
class Contrasts:
    """All comparisons on one split."""

    split: str
    baseline: str
    queries: int
    confidence: float
    resamples: int
    alpha: float
    rows: list[Contrast]
    lengths: list[ListLength]


def read_contrasts(path: str | Path) -> Contrasts:
    """Read what the stage `compare` wrote."""
    node = read_json(path)
    return Contrasts(
        node["split"].text(),
        node["baseline"].text(),
        node["queries"].count(),
        _float(node["confidence"]),
        node["resamples"].count(),
        _float(node["alpha"]),
        [_contrast(one) for one in node["comparisons"].items()],
        [_length(one) for one in node["list_lengths"].items()],
    )


def _contrast(node: Node) -> Contrast:
    return Contrast(
        node["system"].text(),
        node["measure"].text(),
        _float(node["mean"]),
        (_float(node["mean_low"]), _float(node["mean_high"])),
        _float(node["baseline_mean"]),
        (_float(node["baseline_low"]), _float(node["baseline_high"])),
        _float(node["difference"]),
        (_float(node["difference_low"]), _float(node["difference_high"])),
        (node["t_test"].number(), node["t_test_holm"].number()),
        (node["randomization_test"].number(), node["randomization_test_holm"].number()),
        bool(node["significant"].of(bool)),
        node["won"].count(),
        node["tied"].count(),
        node["lost"].count(),
    )


def _length(node: Node) -> ListLength:
    depth = node.get("depth")
    return ListLength(
        node["system"].text(),
        None if depth is None else depth.count(),
        node["recall"].number(),
        node["baseline_depth"].count(),
        _float(node["baseline_recall"]),
    )


def _float(node: Node) -> float:
    return float(node.of(float))


def significant_differences(contrasts: Iterable[Contrasts]) -> set[tuple[str, str, str]]:
    """List (split, system, measure) of all significant differences."""
    return {(one.split, row.system, row.measure) for one in contrasts for row in one.rows if row.significant}


def legend(contrasts: Sequence[Contrasts]) -> str:
    """Say what the mark of a significant difference means; nothing where nothing was compared."""
    if not contrasts:
        return ""
    one = contrasts[0]
    return (
        f"* differs significantly from {one.baseline}: p of the paired randomisation test ({count(one.resamples)} "
        f"random signs), corrected by Holm's method over the systems of the split for each measure, is at most "
        f"{one.alpha:g}."
    )


def p_value(value: float | None) -> str:
    """Show a p-value with four decimals, or that it is below the smallest of these."""
    return MISSING if value is None else "<.0001" if value < 0.0001 else f"{value:.4f}".removeprefix("0")


def shown_interval(interval: tuple[float, float], *, sign: bool = False) -> str:
    """Show an interval with three decimals."""
    return " to ".join((signed if sign else fixed)(bound) for bound in interval)


def contrasts_table(contrasts: Iterable[Contrasts]) -> Table:
    """Put together all comparisons, a block per split."""
    columns = [
        Column("split", "split"),
        Column("baseline", "baseline"),
        Column("system", "system"),
        Column("measure", "measure"),
        Column("mean", "mean"),
        Column("mean_low", "from"),
        Column("mean_high", "to"),
        Column("baseline_mean", "baseline's mean"),
        Column("baseline_low", "from"),
        Column("baseline_high", "to"),
        Column("difference", "difference"),
        Column("difference_low", "from"),
        Column("difference_high", "to"),
        Column("t_test", "t-test", 4),
        Column("t_test_holm", "corrected", 4),
        Column("randomization_test", "randomisation", 4),
        Column("randomization_test_holm", "corrected", 4),
        Column("significant", "significant"),
        Column("won", "won"),
        Column("tied", "tied"),
        Column("lost", "lost"),
    ]
    rows: list[list[Cell]] = []
    blocks = set()
    for one in contrasts:
        blocks.add(len(rows))
        for row in one.rows:
            names: list[Cell] = [one.split, one.baseline, row.system, measure_label(row.measure)]
            numbers: list[Cell] = [row.mean, *row.mean_interval, row.baseline_mean, *row.baseline_interval]
            numbers += [row.difference, *row.difference_interval]
            tests: list[Cell] = [*row.t_test, *row.randomization_test, "yes" if row.significant else "no"]
            rows.append([*names, *numbers, *tests, row.won, row.tied, row.lost])
    return Table(columns, rows, blocks=frozenset(blocks))


def lengths_table(contrasts: Iterable[Contrasts]) -> Table:
    """Put together the shortest lists that hold as much as the baseline's longest."""
    columns = [
        Column("split", "split"),
        Column("system", "system"),
        Column("depth", "shortest list"),
        Column("recall", "its recall"),
        Column("baseline", "baseline"),
        Column("baseline_depth", "baseline's list"),
        Column("baseline_recall", "its recall"),
    ]
    rows = [
        [one.split, row.system, row.depth, row.recall, one.baseline, row.baseline_depth, row.baseline_recall]
        for one in contrasts
        for row in one.lengths
    ]
    return Table(columns, rows)


def wanted_recall(contrasts: Contrasts) -> str:
    """Say what the lists must hold: the recall of the baseline's longest list."""
    first = contrasts.lengths[0]
    passages = plural(first.baseline_depth, "passage", "passages")
    return f"the first {passages} of {contrasts.baseline} (recall {fixed(first.baseline_recall)})"
