"""How much of what systems rank is judged, as a table of all splits and as what the page shows of some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cort.evaluation.judged import FIRST, Judged
from cort.evaluation.measures import Measures
from cort.evaluation.names import JUDGED_ONLY
from cort.reporting.labels import fixed, measure_label
from cort.reporting.tables import Cell, Column, Table, by_split, columns


@dataclass(frozen=True)
class JudgedBlock:
    """Unjudged passages on one split as shown; a value is that over all passages and that over judged ones only."""

    split: str
    per_query: str
    measures: list[str]
    rows: list[tuple[str, str, str, list[tuple[str, str]]]]


def judged_table(measures: Sequence[Measures]) -> Table:
    """Put together how much is judged of the first results of all systems, and the measures without the rest."""
    found = [(one, one.judged) for one in measures if one.judged is not None]
    names = list(dict.fromkeys(name for _, judged in found for name in judged.mean))
    heads = columns(split="", system="", queries="", judgements="", relevant="")
    heads += columns(results=f"among the first {FIRST}", unjudged="unjudged of these")
    heads += [Column(name, measure_label(name)) for name in names]
    rows: list[list[Cell]] = [
        [
            *(one.split, one.system, one.queries, judged.judgements, judged.relevant, judged.results, judged.unjudged),
            *map(judged.mean.get, names),
        ]
        for one, judged in found
    ]
    return Table(heads, rows, 1)


def judged_blocks(measures: Sequence[Measures]) -> list[JudgedBlock]:
    """Show the splits on which this says something: those with judgements for all of the first results, also negative.

    Where a query has one relevant passage and no other is judged, as in MS MARCO's dev, nearly all are without.
    """
    blocks = []
    for split, block in by_split(measures).items():
        found = [(one, one.judged) for one in block if one.judged is not None and _is_deep(one.judged, one.queries)]
        if found:
            first, judged = found[0]
            names = list(dict.fromkeys(name for _, one in found for name in one.mean if JUDGED_ONLY not in name))[1:]
            rows = [(one.system, *_shares(one.queries, judged), _values(judged, names)) for one, judged in found]
            per_query = fixed(judged.judgements / first.queries, 0)
            blocks.append(JudgedBlock(split, per_query, [measure_label(name) for name in names], rows))
    return blocks


def _is_deep(judged: Judged, queries: int) -> bool:
    return judged.judgements >= FIRST * queries and judged.relevant < judged.judgements


def _shares(queries: int, judged: Judged) -> tuple[str, str]:
    return f"{100 * judged.unjudged / judged.results:.1f} %", fixed(judged.unjudged / queries, 1)


def _values(judged: Judged, names: Sequence[str]) -> list[tuple[str, str]]:
    without = {name.replace(JUDGED_ONLY, ""): value for name, value in judged.mean.items() if JUDGED_ONLY in name}
    return [(fixed(judged.mean.get(name)), fixed(without.get(name))) for name in names]
