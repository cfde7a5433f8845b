"""Verdicts on pairs of systems, a line each: for the log, the terminal, and whoever greps either."""

from __future__ import annotations

from collections.abc import Iterable

from cort.evaluation.comparisons import (
    DETECTABLE,
    LOSS,
    MIN_QUERIES,
    NOT_SIGNIFICANT,
    TOO_FEW,
    WIN,
    Comparison,
    Comparisons,
)


def by_pair(rows: Iterable[Comparison]) -> dict[tuple[str, str], list[Comparison]]:
    """Group comparisons by system and what it is compared with, each group in the order of the measures."""
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for row in rows:
        pairs.setdefault((row.system, row.baseline), []).append(row)
    return pairs


def lines(found: Comparisons) -> list[str]:
    """Write a line per pair: the verdict by the first measure with its numbers, then other measures with verdicts."""
    return [f"{found.split}: {_line(rows, found)}" for rows in by_pair(found.comparisons).values()]


def explain(found: Comparisons) -> str:
    """Say in one line what the numbers of these lines are."""
    return (
        f"{found.split}: differences with {found.confidence * 100:g} % intervals over {found.queries} queries; p of "
        f"the paired randomisation test corrected by Holm's method over {len(by_pair(found.comparisons))} comparisons; "
        f"WIN and LOSS if at most {found.alpha:g}"
    )


def needed(row: Comparison) -> str:
    """Say how many queries a verdict takes."""
    if row.queries_needed is None:
        return f"at least {MIN_QUERIES} are needed"
    return f"about {row.queries_needed:,} are needed to detect a difference of {DETECTABLE}"


def disagreement(pairs: int) -> str:
    """Say why the interval of a difference and the verdict may seem to contradict each other."""
    return (
        "interval and p disagree: the interval is the bootstrap's, for this comparison alone; p is the randomisation "
        f"test's, corrected for all {pairs:,} comparisons"
    )


def _line(rows: list[Comparison], found: Comparisons) -> str:
    one, further = rows[0], rows[1:]
    pair = f"{one.system} against {one.baseline}: {one.measure} {one.difference:+.3f}"
    if one.verdict == TOO_FEW:
        return f"{TOO_FEW} ({found.queries:,})  {pair}; {needed(one)}"
    text = f"{one.verdict:<{len(NOT_SIGNIFICANT)}}  {pair} [{one.difference_low:+.3f}, {one.difference_high:+.3f}]"
    if one.randomization_test_holm is not None:
        text += f", p {one.randomization_test_holm:.4f}"
    if one.disagrees:
        text += f" ({disagreement(len(by_pair(found.comparisons)))})"
    for verdict in (WIN, LOSS):
        if names := [row.measure for row in further if row.verdict == verdict]:
            text += f"; {verdict} in {', '.join(names)}"
    return text
