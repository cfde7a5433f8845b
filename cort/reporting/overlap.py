"""What systems have in common on splits without judgements, as a table of all pairs and as what the page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cort.evaluation.overlap import Overlap
from cort.reporting.labels import fixed, plural
from cort.reporting.tables import Cell, Table, columns

# Systems of which the page shows all pairs; of more, those with one of them.
MOST_SYSTEMS = 10


@dataclass(frozen=True)
class OverlapBlock:
    """A split as shown: a row per system, a column per system that it is compared with; a cell is a text and a note."""

    split: str
    queries: str
    depth: int
    others: list[str]
    rows: list[tuple[str, list[tuple[str, str]]]]


def overlap_table(found: Sequence[Overlap]) -> Table:
    """Put together all pairs of systems on all splits."""
    heads = columns(split="", system="", other="", queries="", depth="", overlap="", same_first="same first passage")
    rows: list[list[Cell]] = [
        [one.split, pair.first, pair.second, one.queries, one.depth, pair.overlap, pair.same_first]
        for one in found
        for pair in one.pairs
    ]
    return Table(heads, rows, 1)


def overlap_blocks(found: Sequence[Overlap], baseline: str | None) -> list[OverlapBlock]:
    """Show each split."""
    blocks = []
    for one in found:
        known = {(pair.first, pair.second): pair for pair in one.pairs}
        known |= {(second, first): pair for (first, second), pair in known.items()}
        others = one.systems
        if len(others) > MOST_SYSTEMS:
            others = [baseline if baseline in others else others[0]]
        rows = []
        for system in one.systems:
            pairs = [known.get((system, other)) for other in others]
            cells = [(fixed(pair.overlap), fixed(pair.same_first)) if pair else ("", "") for pair in pairs]
            rows.append((system, cells))
        queries = plural(one.queries, "query", "queries")
        blocks.append(OverlapBlock(one.split, queries, one.depth, others, rows))
    return blocks
