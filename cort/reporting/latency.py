"""How long searches take, as `cort.latency` measured it, and beside the latencies that papers published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cort.online.timing import PARTS
from cort.reporting.inputs import Hardware
from cort.reporting.labels import fixed
from cort.reporting.reproduction.fidelity import NumberResult, Reproduction
from cort.reporting.tables import Column, Table, columns

TOTALS = ("sequential", "concurrent")
STATISTICS = ("p50", "p95", "p99", "mean")
HEADINGS = ("System", "Vectors on", "Queries at a time", *PARTS, *(f"{total} p50 / p95 / p99" for total in TOTALS))
"""Of what `latency_blocks` writes."""


@dataclass(frozen=True)
class Statistics:
    """Milliseconds of a part of a search, or of all of it."""

    p50: float
    p95: float
    p99: float
    mean: float


@dataclass(frozen=True)
class Row:
    """One system with its vectors on some devices, so many queries at a time; milliseconds by part."""

    system: str
    device: str
    batch: int
    searches: int
    milliseconds: dict[str, Statistics]


@dataclass(frozen=True)
class Latencies:
    """What the stage `latency` measured with the queries of a split, and on what."""

    split: str
    queries: int
    depth: int
    threads: int
    hardware: Hardware
    software: dict[str, str | None]
    rows: list[Row]


def published_latencies(reproduction: Reproduction) -> list[tuple[str, int, NumberResult]]:
    """Take the latencies in ms from all published numbers: title of the paper, queries at a time, the number."""
    return [
        (paper.title, int(one.measure.partition("@")[2] or 1), one)
        for paper in reproduction.papers
        for one in paper.numbers
        if one.measure.partition("@")[0] == "latency"
    ]


def latency_table(latencies: Iterable[Latencies]) -> Table:
    """Put all rows together: medians of the parts, and every statistic of the totals."""
    heads = [
        *columns(split="", system="", device="vectors on", batch="queries at a time", searches=""),
        *(Column(f"{part}_p50", part, 1) for part in PARTS),
        *(Column(f"{total}_{one}", f"{total} {one}", 1) for total in TOTALS for one in STATISTICS),
    ]
    rows = [
        [
            *(one.split, row.system, row.device, row.batch, row.searches, *_medians(row)),
            *(getattr(row.milliseconds.get(total), name, None) for total in TOTALS for name in STATISTICS),
        ]
        for one in latencies
        for row in one.rows
    ]
    return Table(heads, rows)


def _medians(row: Row) -> list[float | None]:
    return [row.milliseconds[part].p50 if part in row.milliseconds else None for part in PARTS]


def latency_blocks(latencies: Sequence[Latencies]) -> list[tuple[str, list[list[str]]]]:
    """Write the numbers for a reader, a caption and rows: medians of the parts, percentiles of the totals."""
    blocks = []
    for one in latencies:
        machine = "; ".join([f"{one.hardware.processor}, {one.hardware.cores} cores", *one.hardware.gpus])
        versions = ", ".join(f"{name} {version}" for name, version in one.software.items() if version)
        caption = (
            f"Milliseconds of the first {one.depth} results for {one.queries} queries of {one.split}, after a warm-up: "
            "medians of the parts, all one after the other (sequential), and as deployed, with BM25 beside the dense "
            f"ranker (concurrent). {machine}; {one.threads} threads; {versions}."
        )
        blocks.append((caption, [_shown(row) for row in one.rows]))
    return blocks


def _shown(row: Row) -> list[str]:
    totals = [row.milliseconds.get(total) for total in TOTALS]
    shown = [" / ".join(fixed(ms, 1) for ms in (one.p50, one.p95, one.p99)) if one else fixed(None) for one in totals]
    return [row.system, row.device, str(row.batch), *(fixed(median, 1) for median in _medians(row)), *shown]
