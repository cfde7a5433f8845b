"""What quality costs: the measure of each system against the time of a query and the memory of a passage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cort.config import paths
from cort.config.comparisons import whole_of
from cort.config.experiment import Experiment
from cort.evaluation.comparisons import Comparisons
from cort.evaluation.measures import Measures
from cort.formats.tables import PASSAGES, count_rows
from cort.reporting.figures import Line, Panel, round_numbers
from cort.reporting.format import INTERVAL, fixed, named
from cort.reporting.results import Latencies
from cort.reporting.tables import Format, Place, Table, frame_of
from cort.systems.base import System

if TYPE_CHECKING:
    import pandas as pd

TIME, MEMORY = "ms per query", "bytes per passage"
COLUMNS = ["split", "system", "mean", "low", "high", TIME, MEMORY, "measure"]
# Bytes of a number.
WIDTHS = {"fp32": 4, "fp16": 2, "int8": 1}
CAPTION = (
    "the first measure with its bootstrap interval; the median time of a search, one after the other, where it was "
    "measured (of smaller vectors, as fp32); the size of the vectors and indexes that are searched, without texts, ids "
    "and models. In bold: no other system is at least as good, as fast and as small."
)
FRONT = (
    "Quality, with its bootstrap interval, against the median time of a query and the memory of a passage. A thin line "
    "joins the systems of the Pareto front."
)


def stored_bytes(experiment: Experiment, name: str) -> float | None:
    """Add up what a system and its parts search: indexes and vectors, without ids; None if a file is missing."""
    sizes: dict[tuple[str, Any], float] = {}
    for part in (experiment.systems[one] for one in experiment.with_parts([name])):
        for file in part.stored():
            if not Path(file).exists():
                return None
            sizes[file, part.reduced] = _size(Path(file), part)
    return sum(sizes.values()) if sizes else None


def _size(path: Path, system: System) -> float:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    metadata = (pa.ipc.open_file(str(path)).schema.metadata or {}) if path.suffix == ".arrow" else {}
    if b"storage" not in metadata:
        return path.stat().st_size
    count, dimension, storage = (metadata[key].decode() for key in (b"count", b"dimension", b"storage"))
    fewer, smaller, _ = system.reduced
    return int(count) * (fewer or int(dimension)) * WIDTHS[smaller or storage]


def bytes_per_passage(experiment: Experiment) -> dict[str, float]:
    """Divide the size of what each system searches by the number of passages, as far as the files are there."""
    passages = experiment.at(paths.PASSAGES)
    number = count_rows(passages, PASSAGES) if Path(passages).exists() else 0
    sizes = {name: stored_bytes(experiment, name) for name in experiment.systems} if number else {}
    return {name: size / number for name, size in sizes.items() if size is not None}


def shares_of_memory(experiment: Experiment, sizes: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """Return what share of the memory each system of smaller vectors needs, by its name and that of the whole ones."""
    pairs = ((name, whole_of(experiment, name)) for name in sizes)
    return {(name, whole): sizes[name] / sizes[whole] for name, whole in pairs if whole and sizes.get(whole)}


def costs_frame(
    measures: Iterable[Measures],
    comparisons: Iterable[Comparisons],
    latencies: Iterable[Latencies],
    sizes: Mapping[str, float],
    measure: str | None = None,
) -> pd.DataFrame:
    """Tabulate what has a known cost: a measure, by default the first of the split, its interval, and the costs."""
    intervals: dict[tuple[str, str, str], tuple[float | None, float | None]] = {}
    for split in comparisons:
        for row in split.comparisons:
            intervals[split.split, row.baseline, row.measure] = (row.baseline_low, row.baseline_high)
            intervals[split.split, row.system, row.measure] = (row.mean_low, row.mean_high)
    times = {row.system: row.total["p50"] for timed in latencies for row in timed.rows if row.batch == 1}
    rows = []
    for one in measures:
        name = measure or next(iter(one.mean), "")
        low, high = intervals.get((one.split, one.system, name), (None, None))
        costs = times.get(one.system), sizes.get(one.system)
        if one.mean.get(name) is not None and any(costs):
            rows.append([one.split, one.system, one.mean[name], low, high, *costs, name])
    return frame_of(rows, COLUMNS)


def costs_table(frame: pd.DataFrame) -> Table:
    """Show the costs, with the systems of the Pareto front in bold."""
    formats: dict[str, Format] = {"measure": named, TIME: partial(fixed, digits=2), MEMORY: partial(fixed, digits=0)}
    bold = set[Place]()
    for _, rows in frame.groupby("split", sort=False):
        known = {place: (row["mean"], row[TIME], row[MEMORY]) for place, row in rows.iterrows()}
        bold |= {(place, "system") for place in front(known)}
    return Table("costs", CAPTION, frame, formats, INTERVAL, "split", frozenset(bold))


def front(points: Mapping[Any, tuple[float, float | None, float | None]]) -> list[Any]:
    """Find the Pareto front of quality and costs: no other point is as good everywhere and better somewhere.

    An unknown cost is as bad as can be.
    """
    values = {
        name: (-quality, *(math.inf if cost is None else cost for cost in costs))
        for name, (quality, *costs) in points.items()
    }
    return [
        name
        for name, own in values.items()
        if not any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in values.values())
    ]


def costs_panels(frame: pd.DataFrame, looks: Mapping[str, int]) -> list[Panel]:
    """Plot the measure against each cost: a panel per split and cost that at least two systems have."""
    panels = []
    for split, rows in frame.groupby("split", sort=False):
        for cost in (TIME, MEMORY):
            known = rows[rows[cost].notna()].sort_values([cost, "system"])
            if len(known) > 1:
                panels.append(_panel(f"{named(known['measure'].iloc[0])}, {split}", cost, known, looks))
    return panels


def _panel(title: str, cost: str, rows: pd.DataFrame, looks: Mapping[str, int]) -> Panel:
    points = {row["system"]: (row["mean"], row[cost], None) for _, row in rows.iterrows()}
    best: Sequence[str] = front(points)
    lines = [Line("Pareto front", [points[one][1] or 0 for one in best], [points[one][0] for one in best], 0, "faint")]
    for _, row in rows.iterrows():
        bars = [] if row["low"] is None else [(row["low"], row["high"])]
        lines.append(Line(row["system"], [row[cost]], [row["mean"]], looks[row["system"]], bars=bars))
    return Panel(title, cost, title.partition(",")[0], lines, round_numbers([*rows[cost]]))
