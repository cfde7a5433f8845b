"""How long searches take, as `cort.latency` measured it, and beside the latencies that papers published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cort.formats.artifacts import Node, read_json
from cort.online.timing import PARTS
from cort.reporting.labels import fixed
from cort.reporting.tables import Cell, Column, Table

TOTALS = ("sequential", "concurrent")
STATISTICS = ("p50", "p95", "p99", "mean")


@dataclass(frozen=True)
class Row:
    """One system with its vectors on some devices, so many queries at a time; ms by part, then by statistic."""

    system: str
    device: str
    batch: int
    searches: int
    milliseconds: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Latencies:
    """What was measured with the queries of a split, and on what."""

    split: str
    queries: int
    depth: int
    threads: int
    machine: str
    versions: str
    rows: list[Row]


@dataclass(frozen=True)
class Published:
    """A latency of a paper in ms; ours is None where it was not measured."""

    paper: str
    row: str
    batch: int
    published: float
    ours: float | None


def read_latencies(path: str | Path) -> Latencies:
    """Read what the stage `latency` wrote."""
    node = read_json(path)
    hardware = node["hardware"]
    cards = [card.text() for card in hardware["gpus"].items()]
    machine = "; ".join([f"{hardware['processor'].text()}, {hardware['cores'].count()} cores", *cards])
    versions = ", ".join(f"{name} {one.value}" for name, one in node["software"].members() if one.value)
    rows = [_row(one) for one in node["rows"].items()]
    queries, depth, threads = (node[name].count() for name in ("queries", "depth", "threads"))
    return Latencies(node["split"].text(), queries, depth, threads, machine, versions, rows)


def _row(node: Node) -> Row:
    parts = {
        name: {statistic: float(values[statistic].of(float)) for statistic in STATISTICS}
        for name, values in node["milliseconds"].members()
    }
    place = node["system"].text(), node["device"].text()
    return Row(*place, node["batch"].count(), node["searches"].count(), parts)


def read_published(path: str | Path) -> list[Published]:
    """Take the latencies from what the stage `reproduction` wrote."""
    found = []
    for paper in read_json(path)["papers"].items():
        numbers = paper.get("numbers")
        for one in numbers.items() if numbers else []:
            measure, _, batch = one["measure"].text().partition("@")
            if measure == "latency":
                place = paper["title"].text(), one["row"].text(), int(batch or 1)
                found.append(Published(*place, float(one["published"].of(float)), one["ours"].number()))
    return found


def latency_table(latencies: Iterable[Latencies]) -> Table:
    """Put all rows together: medians of the parts, and every statistic of the totals."""
    columns = [
        *(Column("split", "split"), Column("system", "system"), Column("device", "vectors on")),
        *(Column("batch", "queries at a time"), Column("searches", "searches")),
        *(Column(f"{part}_p50", part, 1) for part in PARTS),
        *(Column(f"{total}_{one}", f"{total} {one}", 1) for total in TOTALS for one in STATISTICS),
    ]
    rows = [_cells(measured.split, row) for measured in latencies for row in measured.rows]
    return Table(columns, rows)


def _cells(split: str, row: Row) -> list[Cell]:
    parts = row.milliseconds
    medians = [parts[part]["p50"] if part in parts else None for part in PARTS]
    totals = [parts[total][one] if total in parts else None for total in TOTALS for one in STATISTICS]
    return [split, row.system, row.device, row.batch, row.searches, *medians, *totals]


@dataclass(frozen=True)
class Block:
    """What the page shows of one measurement: a caption, headings, and rows of a name and of texts."""

    caption: str
    headings: list[str]
    rows: list[tuple[str, list[str]]]


def latency_blocks(latencies: Sequence[Latencies]) -> list[Block]:
    """Write the numbers for a reader: medians of the parts, percentiles of the totals."""
    headings = ["System", "Vectors on", "Queries at a time", *PARTS]
    headings += [f"{total} p50 / p95 / p99" for total in TOTALS]
    blocks = []
    for one in latencies:
        caption = (
            f"Milliseconds of the first {one.depth} results for {one.queries} queries of {one.split}, after a warm-up: "
            "medians of the parts, all one after the other (sequential), and as deployed, with BM25 beside the dense "
            f"ranker (concurrent). {one.machine}; {one.threads} threads; {one.versions}."
        )
        blocks.append(Block(caption, headings, [(row.system, _shown(row)) for row in one.rows]))
    return blocks


def _shown(row: Row) -> list[str]:
    parts = row.milliseconds
    totals = [
        " / ".join(fixed(parts[total][one], 1) for one in ("p50", "p95", "p99")) if total in parts else fixed(None)
        for total in TOTALS
    ]
    medians = [fixed(parts[part]["p50"] if part in parts else None, 1) for part in PARTS]
    return [row.device, str(row.batch), *medians, *totals]
