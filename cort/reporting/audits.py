"""What a report shows of approximate indexes: their table, recall against time, and both in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10

from cort.reporting.labels import count, fixed, plural
from cort.reporting.panels import Line, Panel
from cort.reporting.tables import Cell, Table, columns, grouped
from cort.retrieval.audits import Audit


@dataclass(frozen=True)
class Row:
    """One search at one depth, its index and width in words as `name`; exact search has no width and loses nothing."""

    name: str
    index: str
    width: float | None
    depth: int
    recall: float
    mean: float
    median: float
    faster: float | None
    loss: dict[str, float]


@dataclass(frozen=True)
class Block:
    """All searches of one encoder's vectors on one split, by depth; `caption` says what they were measured on."""

    split: str
    encoder: str
    caption: str
    measures: list[str]
    rows: list[Row]


def audit_blocks(audits: Sequence[Audit], order: Sequence[str] = ()) -> list[Block]:
    """Put the audits of one encoder on one split together, in the order given, measures in `order`."""
    blocks = []
    for (split, encoder), some in grouped(audits, lambda one: (one.split, one.encoder)).items():
        found = dict.fromkeys(name for one in some for exact in one.exact for name in exact.measures)
        measures = [*(name for name in order if name in found), *(name for name in found if name not in order)]
        queries = plural(some[0].queries, "query", "queries")
        caption = f"{encoder} on {split}: {queries}, {count(some[0].passages)} passages{_sizes(some)}"
        blocks.append(Block(split, encoder, caption, measures, list(_rows(some))))
    return blocks


def _sizes(audits: Sequence[Audit]) -> str:
    """Say how large indexes are, and what one of tokens takes of each."""
    found = []
    for one in audits:
        size = f"{one.index}: {count(max(round(one.storage_bytes / 1e6), 1))} MB" if one.storage_bytes else ""
        taken = f"{count(one.vectors_per_token)} candidates of each token" if one.vectors_per_token else ""
        found.append(", ".join(filter(None, (size, taken))))
    return "".join(f"; {words}" for words in found if words)


def _rows(audits: Sequence[Audit]) -> Iterator[Row]:
    for exact in audits[0].exact:
        times = exact.milliseconds
        yield Row("exact", "exact", None, exact.depth, 1.0, times.mean, times.median, None, {})
        for audit in audits:
            for one in audit.searches:
                if one.depth == exact.depth:
                    mean, median = one.milliseconds.mean, one.milliseconds.median
                    faster = times.mean / mean if mean > 0 else None
                    name = f"{audit.index}, {audit.parameter} {one.width:g}"
                    yield Row(name, audit.index, one.width, one.depth, one.recall, mean, median, faster, one.loss)


def audits_table(blocks: Sequence[Block]) -> Table:
    """Put together all searches, one block per split and encoder."""
    measures = list(dict.fromkeys(name for block in blocks for name in block.measures))
    heads = columns(split="", encoder="", depth="", index="", width="epsilon, ef or probes")
    heads += columns(4, recall="recall of exact") + columns(2, mean_ms="mean (ms)", median_ms="median (ms)")
    heads += columns(1, times_faster="times faster")
    heads += columns(4, **{f"loss_{name}": f"loss of {name}" for name in measures})
    rows: list[list[Cell]] = []
    for block in blocks:
        for one in block.rows:
            width = int(one.width) if one.width is not None and one.width == int(one.width) else one.width
            found: list[Cell] = [block.split, block.encoder, one.depth, one.index, width]
            rows.append([*found, one.recall, one.mean, one.median, one.faster, *map(one.loss.get, measures)])
    return Table(heads, rows, 2)


def audit_panels(blocks: Sequence[Block]) -> list[Panel]:
    """Draw up recall against time: one panel per split, encoder and depth, a line per index, and exact search."""
    panels = []
    for block in blocks:
        for depth in dict.fromkeys(one.depth for one in block.rows):
            rows = [one for one in block.rows if one.depth == depth]
            exact, searches = rows[0], sorted(rows[1:], key=lambda one: one.mean)
            if not searches:
                continue
            least = min(one.recall for one in searches)
            lines = [Line("exact search", [exact.mean, exact.mean], [min(least, 0.99), 1.0], 0, "line")]
            for look, index in enumerate(dict.fromkeys(one.index for one in rows[1:]), start=1):
                own = [one for one in searches if one.index == index]
                lines.append(Line(index.upper(), [one.mean for one in own], [one.recall for one in own], look))
            title = f"{block.encoder}, {block.split}, first {count(depth)}"
            summary = f"Recall of exact search against milliseconds per query, {title}. {_in_words(exact, searches)}"
            ticks = round_numbers([one.mean for one in rows])
            panels.append(Panel(title, "ms per query, one thread", "recall of exact search", lines, summary, ticks))
    return panels


def _in_words(exact: Row, searches: Sequence[Row]) -> str:
    said = [f"Exact search takes {fixed(exact.mean, 2)} ms"]
    for index in dict.fromkeys(one.index for one in searches):
        best = max((one for one in searches if one.index == index), key=lambda one: (one.recall, -one.mean))
        said.append(f"{best.name}: {fixed(best.recall)} in {fixed(best.mean, 2)} ms")
    return "; ".join(said) + "."


def round_numbers(values: Sequence[float]) -> list[float]:
    """Choose marks, 1, 2 and 5 times a power of ten, that hold all values between them; at least two."""
    known = [value for value in values if value > 0]
    if not known:
        return [0.1, 1.0]
    low, high = floor(log10(min(known))), floor(log10(max(known))) + 1
    marks = [float(f"{digit}e{power}") for power in range(low, high + 1) for digit in (1, 2, 5)]
    first = max(at for at, mark in enumerate(marks) if mark <= min(known))
    last = min(at for at, mark in enumerate(marks) if mark >= max(known))
    return marks[first : max(last, first + 1) + 1]
