"""How systems differ from the baseline, as the stage `compare` found, as tables and in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields

from cort.evaluation.comparisons import Comparison, Comparisons
from cort.reporting.labels import MISSING, count, fixed, measure_label, plural, signed
from cort.reporting.tables import Cell, Column, Table, columns

HEADINGS = {
    "baseline_mean": "baseline's mean",
    "t_test": "t-test",
    "randomization_test": "randomisation",
    "low": "from",
    "high": "to",
    "holm": "corrected",
}
P_VALUES = ("t_test", "t_test_holm", "randomization_test", "randomization_test_holm")


def significant_differences(comparisons: Iterable[Comparisons]) -> set[tuple[str, str, str]]:
    """List (split, system, measure) of all significant differences."""
    return {(one.split, row.system, row.measure) for one in comparisons for row in one.comparisons if row.significant}


def legend(comparisons: Sequence[Comparisons]) -> str:
    """Say what the mark of a significant difference means; nothing where nothing was compared."""
    if not comparisons:
        return ""
    one = comparisons[0]
    return (
        f"* differs significantly from {one.baseline}: p of the paired randomisation test ({count(one.resamples)} "
        f"random signs), corrected by Holm's method over the systems of the split for each measure, is at most "
        f"{one.alpha:g}."
    )


def p_value(value: float | None) -> str:
    """Show a p-value with four decimals, or that it is below the smallest of these."""
    return MISSING if value is None else "<.0001" if value < 0.0001 else f"{value:.4f}".removeprefix("0")


def shown_interval(low: float, high: float, *, sign: bool = False) -> str:
    """Show an interval with three decimals."""
    return " to ".join((signed if sign else fixed)(bound) for bound in (low, high))


def comparisons_table(comparisons: Iterable[Comparisons]) -> Table:
    """Put together all comparisons, a block per split."""
    heads = columns(split="", baseline="")
    for field in fields(Comparison):
        heading = HEADINGS.get(field.name) or HEADINGS.get(field.name.rpartition("_")[2], "")
        heads.append(Column(field.name, heading, 4 if field.name in P_VALUES else 3))
    rows: list[list[Cell]] = []
    blocks = set()
    for one in comparisons:
        blocks.add(len(rows))
        for row in one.comparisons:
            shown = {"measure": measure_label(row.measure), "significant": "yes" if row.significant else "no"}
            rows.append([one.split, one.baseline, *(asdict(row) | shown).values()])
    return Table(heads, rows, blocks=frozenset(blocks))


def lengths_table(comparisons: Iterable[Comparisons]) -> Table:
    """Put together the shortest lists that hold as much as the baseline's longest."""
    heads = columns(split="", system="", depth="shortest list", recall="its recall", baseline="")
    heads += columns(baseline_depth="baseline's list", baseline_recall="its recall")
    rows = [
        [one.split, row.system, row.depth, row.recall, one.baseline, row.baseline_depth, row.baseline_recall]
        for one in comparisons
        for row in one.list_lengths
    ]
    return Table(heads, rows)


def wanted_recall(comparisons: Comparisons) -> str:
    """Say what the lists must hold: the recall of the baseline's longest list."""
    first = comparisons.list_lengths[0]
    passages = plural(first.baseline_depth, "passage", "passages")
    return f"the first {passages} of {comparisons.baseline} (recall {fixed(first.baseline_recall)})"
