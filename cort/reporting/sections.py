"""What the sections of a report show: tables of each kind of result, and rows for the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10

import numpy as np

from cort.evaluation.measures import FIRST, Judged, Measures
from cort.evaluation.names import JUDGED_ONLY
from cort.evaluation.overlap import Common, Overlap
from cort.online.timing import PARTS
from cort.reporting.inputs import MEASURE, Curve, Hardware
from cort.reporting.labels import count, fixed, measure_label, plural
from cort.reporting.panels import WINDOWS, Line, Panel
from cort.reporting.reproduction.fidelity import NumberResult, Reproduction
from cort.reporting.tables import Cell, Column, Table, by_split, columns, grouped
from cort.retrieval.audits import Audit

# With more systems than this, the page shows overlaps with one system instead of all pairs.
MOST_SYSTEMS = 10

TOTALS = ("sequential", "concurrent")
STATISTICS = ("p50", "p95", "p99", "mean")
# Headings for the rows of `latency_blocks`.
HEADINGS = ("System", "Vectors on", "Queries at a time", *PARTS, *(f"{total} p50 / p95 / p99" for total in TOTALS))


def number_of_queries(systems: Sequence[Measures]) -> str:
    """Say over how many queries the means of a split are, which may differ by system."""
    numbers = sorted({one.queries for one in systems})
    most = plural(numbers[-1], "query", "queries")
    return most if len(numbers) == 1 else f"{count(numbers[0])} to {most}"


def incomplete_queries(systems: Sequence[Measures]) -> str:
    """Say how many queries of a split have no relevant passage or no results."""
    parts = []
    if without := max(one.without_relevant for one in systems):
        parts.append(f"without a relevant passage ({count(without)})")
    if empty := [f"{one.system} {count(one.without_results)}" for one in systems if one.without_results]:
        parts.append(f"without results ({', '.join(empty)})")
    return f"Means include queries {' and '.join(parts)}." if parts else ""


def judged_table(measures: Sequence[Measures]) -> Table:
    """Tabulate how many of the first results are unjudged, and the measures with and without these."""
    known = [(one, one.judged) for one in measures if one.judged is not None]
    names = list(dict.fromkeys(name for _, judged in known for name in judged.mean))
    heads = columns(split="", system="", queries="", judgements="", relevant="")
    heads += columns(results=f"among the first {FIRST}", unjudged="unjudged of these")
    heads += [Column(name, measure_label(name)) for name in names]
    rows: list[list[Cell]] = [
        [
            *(one.split, one.system, one.queries, judged.judgements, judged.relevant, judged.results, judged.unjudged),
            *map(judged.mean.get, names),
        ]
        for one, judged in known
    ]
    return Table(heads, rows, 1)


def deeply_judged(measures: Sequence[Measures]) -> dict[str, list[Measures]]:
    """Select the splits that have at least as many judgements as first results, negative ones among them.

    If queries have one relevant passage and no other judgement, as in MS MARCO's dev, nearly all results are unjudged.
    """

    def is_deep(judged: Judged | None, queries: int) -> bool:
        return judged is not None and judged.judgements >= FIRST * queries and judged.relevant < judged.judgements

    return by_split(one for one in measures if is_deep(one.judged, one.queries))


def judged_only_names(systems: Sequence[Measures]) -> dict[str, str]:
    """Map the measures to those over judged passages only."""
    judged = [one.judged for one in systems if one.judged is not None]
    return {name.replace(JUDGED_ONLY, ""): name for one in judged for name in one.mean if JUDGED_ONLY in name}


def overlap_table(overlaps: Sequence[Overlap]) -> Table:
    """Tabulate all pairs of systems on all splits."""
    heads = columns(split="", system="", other="", queries="", depth="", overlap="", same_first="same first passage")
    rows: list[list[Cell]] = [
        [one.split, pair.first, pair.second, one.queries, one.depth, pair.overlap, pair.same_first]
        for one in overlaps
        for pair in one.pairs
    ]
    return Table(heads, rows, 1)


def overlap_rows(overlap: Overlap, baseline: str | None) -> dict[str, dict[str, Common | None]]:
    """Pair each system with all others, or with the baseline alone if there are many systems."""
    pairs = {(pair.first, pair.second): pair for pair in overlap.pairs}
    pairs |= {(second, first): pair for (first, second), pair in pairs.items()}
    others = overlap.systems
    if len(others) > MOST_SYSTEMS:
        others = [baseline if baseline in others else others[0]]
    return {system: {other: pairs.get((system, other)) for other in others} for system in overlap.systems}


@dataclass(frozen=True)
class Statistics:
    """Milliseconds of a complete search or a part of it."""

    p50: float
    p95: float
    p99: float
    mean: float


@dataclass(frozen=True)
class LatencyRow:
    """Latency of one system with its vectors on certain devices and a number of queries at a time, by part."""

    system: str
    device: str
    batch: int
    searches: int
    milliseconds: dict[str, Statistics]


@dataclass(frozen=True)
class Latencies:
    """What the stage `latency` measured with the queries of a split, and the machine."""

    split: str
    queries: int
    depth: int
    threads: int
    hardware: Hardware
    software: dict[str, str | None]
    rows: list[LatencyRow]


def published_latencies(reproduction: Reproduction) -> list[tuple[str, int, NumberResult]]:
    """Select the latencies in ms among published numbers: title of the paper, queries at a time, the number."""
    return [
        (paper.title, int(number.measure.partition("@")[2] or 1), number)
        for paper in reproduction.papers
        for number in paper.numbers
        if number.measure.partition("@")[0] == "latency"
    ]


def latency_table(latencies: Iterable[Latencies]) -> Table:
    """Tabulate the medians of the parts and every statistic of the totals."""
    heads = [
        *columns(split="", system="", device="vectors on", batch="queries at a time", searches=""),
        *(Column(f"{part}_p50", part, 1) for part in PARTS),
        *(Column(f"{total}_{name}", f"{total} {name}", 1) for total in TOTALS for name in STATISTICS),
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


def _medians(row: LatencyRow) -> list[float | None]:
    return [getattr(row.milliseconds.get(part), "p50", None) for part in PARTS]


def latency_blocks(latencies: Sequence[Latencies]) -> list[tuple[str, list[list[str]]]]:
    """Format each file as a caption and rows: medians of the parts, percentiles of the totals."""
    blocks = []
    for one in latencies:
        machine = "; ".join([f"{one.hardware.processor}, {one.hardware.cores} cores", *one.hardware.gpus])
        versions = ", ".join(f"{name} {version}" for name, version in one.software.items() if version)
        caption = (
            f"Milliseconds to retrieve the first {one.depth} results, for {one.queries} queries of {one.split} after a "
            "warm-up: medians of the parts, the total with all parts in sequence (sequential), and the total as "
            f"deployed, with BM25 running beside the dense ranker (concurrent). {machine}; {one.threads} threads; "
            f"{versions}."
        )
        blocks.append((caption, [_latency_cells(row) for row in one.rows]))
    return blocks


def _latency_cells(row: LatencyRow) -> list[str]:
    totals = [row.milliseconds.get(total) for total in TOTALS]
    cells = [" / ".join(fixed(ms, 1) for ms in (one.p50, one.p95, one.p99)) if one else fixed(None) for one in totals]
    return [row.system, row.device, str(row.batch), *(fixed(median, 1) for median in _medians(row)), *cells]


@dataclass(frozen=True)
class AuditRow:
    """One search at one depth, `name` describing its index and width; exact search has no width and no loss."""

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
class AuditBlock:
    """All searches over one encoder's vectors on one split, by depth; `caption` describes the data."""

    split: str
    encoder: str
    caption: str
    measures: list[str]
    rows: list[AuditRow]


def audit_blocks(audits: Sequence[Audit], order: Sequence[str] = ()) -> list[AuditBlock]:
    """Group the audits by split and encoder, in the order given; measures are in `order`."""
    blocks = []
    for (split, encoder), group in grouped(audits, lambda one: (one.split, one.encoder)).items():
        names = dict.fromkeys(name for one in group for exact in one.exact for name in exact.measures)
        measures = [*(name for name in order if name in names), *(name for name in names if name not in order)]
        queries = plural(group[0].queries, "query", "queries")
        size = f"{queries}, {count(group[0].passages)} passages"
        caption = "; ".join([f"{encoder} on {split}: {size}", *filter(None, map(_size, group))])
        blocks.append(AuditBlock(split, encoder, caption, measures, list(_audit_rows(group))))
    return blocks


def _size(audit: Audit) -> str:
    """Say how large an index is, and how many candidates it takes per token if it is one of tokens."""
    megabytes, candidates = audit.storage_bytes, audit.vectors_per_token
    size = f"{audit.index}: {count(max(round(megabytes / 1e6), 1))} MB" if megabytes else ""
    return ", ".join(filter(None, (size, f"{count(candidates)} candidates of each token" if candidates else "")))


def _audit_rows(audits: Sequence[Audit]) -> Iterator[AuditRow]:
    for exact in audits[0].exact:
        times = exact.milliseconds
        yield AuditRow("exact", "exact", None, exact.depth, 1.0, times.mean, times.median, None, {})
        for audit in audits:
            for one in audit.searches:
                if one.depth == exact.depth:
                    mean, median = one.milliseconds.mean, one.milliseconds.median
                    faster = times.mean / mean if mean > 0 else None
                    name = f"{audit.index}, {audit.parameter} {one.width:g}"
                    yield AuditRow(name, audit.index, one.width, one.depth, one.recall, mean, median, faster, one.loss)


def audits_table(blocks: Sequence[AuditBlock]) -> Table:
    """Tabulate all searches, a block per split and encoder."""
    measures = list(dict.fromkeys(name for block in blocks for name in block.measures))
    heads = columns(split="", encoder="", depth="", index="", width="epsilon, ef or probes")
    heads += columns(4, recall="recall of exact") + columns(2, mean_ms="mean (ms)", median_ms="median (ms)")
    heads += columns(1, times_faster="times faster")
    heads += columns(4, **{f"loss_{name}": f"loss of {name}" for name in measures})
    rows: list[list[Cell]] = []
    for block in blocks:
        for one in block.rows:
            width = int(one.width) if one.width is not None and one.width == int(one.width) else one.width
            cells: list[Cell] = [block.split, block.encoder, one.depth, one.index, width, one.recall]
            rows.append([*cells, one.mean, one.median, one.faster, *map(one.loss.get, measures)])
    return Table(heads, rows, 2)


@dataclass(frozen=True)
class Summary:
    """One training in numbers, None where the curve has none. The best step is by the measure if there is one."""

    name: str
    steps: int
    epochs: float | None
    last_loss: float | None
    best_validation_loss: float | None
    best_measure: float | None
    best_step: int | None
    examples_per_second: float | None


def summarize(curve: Curve) -> Summary:
    """Summarize a training in a few numbers."""
    known = {column: curve.known(column) for column in curve.columns}
    losses, epochs, speeds = (known[column][1] for column in ("loss", "epoch", "examples_per_second"))
    (steps, validation), (measured, measures) = known["validation_loss"], known[MEASURE]
    best = None
    if len(measures):
        best = int(measured[np.argmax(measures)])
    elif len(validation):
        best = int(steps[np.argmin(validation)])
    return Summary(
        curve.name,
        int(curve.columns["step"].max()),
        float(epochs.max()) if len(epochs) else None,
        # The mean of the last window, because the loss of a single batch says little.
        float(losses[-max(1, len(losses) // WINDOWS) :].mean()) if len(losses) else None,
        float(validation.min()) if len(validation) else None,
        float(measures.max()) if len(measures) else None,
        best,
        float(np.median(speeds)) if len(speeds) else None,
    )


def audit_panels(blocks: Sequence[AuditBlock]) -> list[Panel]:
    """Plot recall against time: a panel per split, encoder and depth, a line per index and one for exact search."""
    panels = []
    for block in blocks:
        for depth, (exact, *searches) in grouped(block.rows, lambda row: row.depth).items():
            if not searches:
                continue
            indexes = grouped(sorted(searches, key=lambda row: row.mean), lambda row: row.index)
            least = min(0.99, *(row.recall for row in searches))
            lines = [Line("exact search", [exact.mean, exact.mean], [least, 1.0], 0, "line")]
            for look, index in enumerate(dict.fromkeys(row.index for row in searches), start=1):
                rows = indexes[index]
                lines.append(Line(index.upper(), [row.mean for row in rows], [row.recall for row in rows], look))
            title = f"{block.encoder}, {block.split}, first {count(depth)}"
            best = (max(rows, key=lambda row: (row.recall, -row.mean)) for rows in indexes.values())
            reached = [f"{row.name}: {fixed(row.recall)} in {fixed(row.mean, 2)} ms" for row in best]
            ends = "; ".join([f"Exact search takes {fixed(exact.mean, 2)} ms", *reached])
            summary = f"Recall of exact search against milliseconds per query, {title}. {ends}."
            ticks = round_numbers([exact.mean, *(row.mean for row in searches)])
            panels.append(Panel(title, "ms per query, one thread", "recall of exact search", lines, summary, ticks))
    return panels


def round_numbers(values: Sequence[float]) -> list[float]:
    """Choose ticks of 1, 2 and 5 times a power of ten that enclose all values; at least two."""
    known = [value for value in values if value > 0]
    if not known:
        return [0.1, 1.0]
    low, high = floor(log10(min(known))), floor(log10(max(known))) + 1
    marks = [float(f"{digit}e{power}") for power in range(low, high + 1) for digit in (1, 2, 5)]
    first = max(at for at, mark in enumerate(marks) if mark <= min(known))
    last = min(at for at, mark in enumerate(marks) if mark >= max(known))
    return marks[first : max(last, first + 1) + 1]
