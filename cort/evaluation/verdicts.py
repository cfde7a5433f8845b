"""Verdicts on pairs of systems, a line each: for the log, the terminal, and whoever greps either."""

from __future__ import annotations

from collections.abc import Iterable

from cort.evaluation.comparisons import LOSS, NO_DIFFERENCE, WIN, Comparison, Comparisons


def by_pair(rows: Iterable[Comparison]) -> dict[tuple[str, str], list[Comparison]]:
    """Group comparisons by system and what it is compared with, each group in the order of the measures."""
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for row in rows:
        pairs.setdefault((row.system, row.baseline), []).append(row)
    return pairs


def lines(found: Comparisons) -> list[str]:
    """Write a line per pair: the verdict by the first measure with its numbers, then other measures with verdicts."""
    return [f"{found.split}: {_line(rows)}" for rows in by_pair(found.comparisons).values()]


def explain(found: Comparisons) -> str:
    """Say in one line what the numbers of these lines are."""
    return (
        f"{found.split}: differences with {found.confidence * 100:g} % intervals over {found.queries} queries; p of "
        f"the paired randomisation test corrected by Holm's method over {len(by_pair(found.comparisons))} comparisons; "
        f"WIN and LOSS if at most {found.alpha:g}"
    )


def _line(rows: list[Comparison]) -> str:
    one, further = rows[0], rows[1:]
    numbers = f"{one.difference:+.3f} [{one.difference_low:+.3f}, {one.difference_high:+.3f}]"
    text = f"{one.verdict:<{len(NO_DIFFERENCE)}}  {one.system} against {one.baseline}: {one.measure} {numbers}"
    if one.randomization_test_holm is not None:
        text += f", p {one.randomization_test_holm:.4f}"
    for verdict in (WIN, LOSS):
        if names := [row.measure for row in further if row.verdict == verdict]:
            text += f"; {verdict} in {', '.join(names)}"
    return text
