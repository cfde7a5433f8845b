"""What the sections of a report show: tables of each kind of result, and rows for the page."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10

import numpy as np

from cort.evaluation.measures import FIRST, Measures
from cort.evaluation.names import JUDGED_ONLY
from cort.evaluation.overlap import Common, Overlap
from cort.reporting.inputs import MEASURE, Curve, Hardware
from cort.reporting.labels import MISSING, count, fixed, measure_label, plural
from cort.reporting.panels import WINDOWS, Line, Panel
from cort.reporting.reproduction.fidelity import NumberResult, Reproduction
from cort.reporting.tables import Cell, Column, Table, by_split, columns, grouped
from cort.retrieval.audits import Audit
from cort.systems.timing import PARTS

# With more systems than this, the page shows each system's overlap with the baseline instead of all pairs.
MOST_SYSTEMS = 10

TOTALS = ("sequential", "concurrent")
STATISTICS = ("p50", "p95", "p99", "mean")
# Headings of `LatencyRow.cells`.
HEADINGS = ("System", "Vectors on", "Queries at a time", *PARTS, *(f"{total} p50 / p95 / p99" for total in TOTALS))


def number_of_queries(systems: Sequence[Measures]) -> str:
    """Say over how many queries the means of a split are, which may differ by system."""
    numbers = sorted({system.queries for system in systems})
    most = plural(numbers[-1], "query", "queries")
    return most if len(numbers) == 1 else f"{count(numbers[0])} to {most}"


def incomplete_queries(systems: Sequence[Measures]) -> str:
    """Say how many queries of a split have no relevant passage, no results, or few."""
    parts = []
    if without := max(row.without_relevant for row in systems):
        parts.append(f"without a relevant passage ({count(without)})")
    if empty := [f"{row.system} {count(row.without_results)}" for row in systems if row.without_results]:
        parts.append(f"without results ({', '.join(empty)})")
    if short := [f"{row.system} {count(row.short)}" for row in systems if row.short]:
        parts.append(f"with fewer results than the largest cutoff ({', '.join(short)})")
    return f"Means include queries {', '.join(parts)}." if parts else ""


def judged_table(measures: Sequence[Measures]) -> Table:
    """Tabulate how many of the top results are unjudged, and the measures with and without them."""
    known = [(row, row.judged) for row in measures if row.judged]
    names = list(dict.fromkeys(name for _, judged in known for name in judged.mean))
    heads = columns(split="", system="", queries="", judgements="", relevant="")
    heads += columns(results=f"among the first {FIRST}", unjudged="unjudged of these")
    heads += [Column(name, measure_label(name)) for name in names]
    rows: list[list[Cell]] = [
        [
            *(row.split, row.system, row.queries, judged.judgements, judged.relevant, judged.results, judged.unjudged),
            *map(judged.mean.get, names),
        ]
        for row, judged in known
    ]
    return Table(heads, rows, 1)


def deeply_judged(measures: Sequence[Measures]) -> dict[str, list[Measures]]:
    """Select the splits with at least `FIRST` judgements per query, negative ones among them.

    If queries have one relevant passage and no other judgement, as in MS MARCO's dev, nearly all results are unjudged.
    """
    return by_split(
        row
        for row in measures
        if (judged := row.judged) and judged.judgements >= FIRST * row.queries and judged.relevant < judged.judgements
    )


def judged_only_names(systems: Sequence[Measures]) -> dict[str, str]:
    """Map measures to their variants over judged passages only."""
    names = [name for row in systems if row.judged for name in row.judged.mean]
    return {name.replace(JUDGED_ONLY, ""): name for name in names if JUDGED_ONLY in name}


def overlap_table(overlaps: Sequence[Overlap]) -> Table:
    """Tabulate all pairs of systems on all splits."""
    heads = columns(split="", system="", other="", queries="", depth="", overlap="", same_first="same first passage")
    heads += columns(rbo="RBO")
    rows: list[list[Cell]] = [
        [
            *(overlap.split, pair.first, pair.second, overlap.queries, overlap.depth),
            *(pair.overlap, pair.same_first, pair.rbo),
        ]
        for overlap in overlaps
        for pair in overlap.pairs
    ]
    return Table(heads, rows, 1)


def overlap_rows(overlap: Overlap, baseline: str | None) -> dict[str, dict[str, Common | None]]:
    """Pair each system with all others or, if there are many systems, with the baseline only."""
    pairs = {(pair.first, pair.second): pair for pair in overlap.pairs}
    pairs |= {(second, first): pair for (first, second), pair in pairs.items()}
    others = overlap.systems
    if len(others) > MOST_SYSTEMS:
        others = [baseline if baseline in others else others[0]]
    return {system: {other: pairs.get((system, other)) for other in others} for system in overlap.systems}


@dataclass(frozen=True)
class LatencyRow:
    """`STATISTICS` of one system's latency by part, with its vectors on `device` and `batch` queries at a time."""

    system: str
    device: str
    batch: int
    searches: int
    milliseconds: dict[str, dict[str, float]]

    def get(self, part: str, statistic: str) -> float | None:
        """Return a statistic of a part, or None if the system does not have that part."""
        return self.milliseconds[part][statistic] if part in self.milliseconds else None

    @property
    def cells(self) -> list[str]:
        """Format the row under `HEADINGS`."""
        medians = [fixed(self.get(part, "p50"), 1) for part in PARTS]
        totals = [
            " / ".join(fixed(self.get(total, statistic), 1) for statistic in STATISTICS[:3])
            if total in self.milliseconds
            else MISSING
            for total in TOTALS
        ]
        return [self.system, self.device, str(self.batch), *medians, *totals]


@dataclass(frozen=True)
class Latencies:
    """What the stage `latency` measured on the queries of a split, and on which machine."""

    split: str
    queries: int
    depth: int
    threads: int
    hardware: Hardware
    software: dict[str, str | None]
    rows: list[LatencyRow]

    @property
    def caption(self) -> str:
        """Describe the rows, the machine and its software."""
        machine = "; ".join([f"{self.hardware.processor}, {self.hardware.cores} cores", *self.hardware.gpus])
        versions = ", ".join(f"{name} {version}" for name, version in self.software.items() if version)
        return (
            f"Milliseconds to retrieve the top {self.depth} results, for {self.queries} queries of {self.split} after "
            "a warm-up: medians of the parts, the total with all parts in sequence (sequential), and the total as "
            f"deployed, with BM25 running in parallel with the dense ranker (concurrent). {machine}; {self.threads} "
            f"threads; {versions}."
        )


def published_latencies(reproduction: Reproduction) -> list[tuple[str, int, NumberResult]]:
    """Select the published latencies in ms: title of the paper, queries at a time, the number."""
    return [
        (paper.title, int(number.measure.partition("@")[2] or 1), number)
        for paper in reproduction.papers
        for number in paper.numbers
        if number.measure.partition("@")[0] == "latency"
    ]


def latency_table(latencies: Iterable[Latencies]) -> Table:
    """Tabulate the medians of the parts and all statistics of the totals."""
    heads = [
        *columns(split="", system="", device="vectors on", batch="queries at a time", searches=""),
        *(Column(f"{part}_p50", part, 1) for part in PARTS),
        *(Column(f"{total}_{name}", f"{total} {name}", 1) for total in TOTALS for name in STATISTICS),
    ]
    rows = [
        [
            *(split.split, row.system, row.device, row.batch, row.searches),
            *(row.get(part, "p50") for part in PARTS),
            *(row.get(total, name) for total in TOTALS for name in STATISTICS),
        ]
        for split in latencies
        for row in split.rows
    ]
    return Table(heads, rows)


@dataclass(frozen=True)
class AuditRow:
    """One search at one depth; `name` describes its index and width, which exact search lacks, as it lacks a loss."""

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
    """Group the audits by split and encoder, in the order given; measures in `order` come first."""
    blocks = []
    for (split, encoder), group in grouped(audits, lambda audit: (audit.split, audit.encoder)).items():
        names = dict.fromkeys(name for audit in group for exact in audit.exact for name in exact.measures)
        measures = list(dict.fromkeys([*(name for name in order if name in names), *names]))
        queries = plural(group[0].queries, "query", "queries")
        size = f"{queries}, {count(group[0].passages)} passages"
        caption = "; ".join([f"{encoder} on {split}: {size}", *filter(None, map(_size, group))])
        blocks.append(AuditBlock(split, encoder, caption, measures, list(_audit_rows(group))))
    return blocks


def _size(audit: Audit) -> str:
    """Describe the size of an index and, if it is an IVF-PQ index, its number of candidates."""
    parts = []
    if audit.storage_bytes:
        parts.append(f"{audit.index}: {count(max(round(audit.storage_bytes / 1e6), 1))} MB")
    if audit.vectors_per_token:
        parts.append(f"{count(audit.vectors_per_token)} candidates of each vector of a query")
    return ", ".join(parts)


def _audit_rows(audits: Sequence[Audit]) -> Iterator[AuditRow]:
    for exact in audits[0].exact:
        depth, times = exact.depth, exact.milliseconds
        yield AuditRow("exact", "exact", None, depth, 1.0, times.mean, times.median, None, {})
        for audit in audits:
            # Exact search is timed anew in each audit, perhaps on another machine.
            own = next((one.milliseconds.mean for one in audit.exact if one.depth == depth), times.mean)
            for search in (search for search in audit.searches if search.depth == depth):
                mean, median = search.milliseconds.mean, search.milliseconds.median
                faster = own / mean if mean > 0 else None
                name = f"{audit.index}, {audit.parameter} {search.width:g}"
                yield AuditRow(name, audit.index, search.width, depth, search.recall, mean, median, faster, search.loss)


def audits_table(blocks: Sequence[AuditBlock]) -> Table:
    """Tabulate all searches, a block per split and encoder."""
    measures = list(dict.fromkeys(name for block in blocks for name in block.measures))
    heads = columns(split="", encoder="", depth="", index="", width="epsilon, ef or probes")
    heads += columns(4, recall="recall of exact") + columns(2, mean_ms="mean (ms)", median_ms="median (ms)")
    heads += columns(1, times_faster="times faster")
    heads += columns(4, **{f"loss_{name}": f"loss of {name}" for name in measures})
    rows: list[list[Cell]] = []
    for block in blocks:
        for row in block.rows:
            width = int(row.width) if row.width is not None and row.width % 1 == 0 else row.width
            cells: list[Cell] = [block.split, block.encoder, row.depth, row.index, width, row.recall]
            rows.append([*cells, row.mean, row.median, row.faster, *map(row.loss.get, measures)])
    return Table(heads, rows, 2)


@dataclass(frozen=True)
class Summary:
    """One training in numbers, None where the curve has none. A measure, if there is one, decides the best step."""

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
    losses, epochs, speeds = (curve.known(column)[1] for column in ("loss", "epoch", "examples_per_second"))
    (steps, validation), (measured, measures) = curve.known("validation_loss"), curve.known(MEASURE)
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
            title = f"{block.encoder}, {block.split}, top {count(depth)}"
            best = (max(rows, key=lambda row: (row.recall, -row.mean)) for rows in indexes.values())
            reached = [f"{row.name}: {fixed(row.recall)} in {fixed(row.mean, 2)} ms" for row in best]
            ends = "; ".join([f"Exact search takes {fixed(exact.mean, 2)} ms", *reached])
            summary = f"Recall of exact search against milliseconds per query, {title}. {ends}."
            ticks = round_numbers([exact.mean, *(row.mean for row in searches)])
            panels.append(Panel(title, "ms per query, one thread", "recall of exact search", lines, summary, ticks))
    return panels


def round_numbers(values: Sequence[float]) -> list[float]:
    """Choose ticks of 1, 2 and 5 times a power of ten that enclose all values; at least two."""
    positive = [value for value in values if value > 0]
    if not positive:
        return [0.1, 1.0]
    low, high = floor(log10(min(positive))), floor(log10(max(positive))) + 1
    marks = [float(f"{digit}e{power}") for power in range(low, high + 1) for digit in (1, 2, 5)]
    first = bisect_right(marks, min(positive)) - 1
    last = bisect_left(marks, max(positive))
    return marks[first : max(last, first + 1) + 1]
