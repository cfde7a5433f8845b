"""Figures as plain data: panels, lines, and a summary for screen readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cort.evaluation.curves import Depths
from cort.evaluation.measures import Measures
from cort.reporting.inputs import Curve, Series
from cort.reporting.labels import count, fixed, measure_label, plural, recall_cutoff
from cort.reporting.tables import by_split, names_of_measures

# Points drawn per curve: more than a printed panel can show.
POINTS = 400
# Number of smoothing windows in a training.
WINDOWS = 40


@dataclass(frozen=True)
class Line:
    """One line of a panel; `look` numbers a combination of colour, marker and dashes, 0 being the baseline's black.

    `kind` is "points" (with markers), "line", or "faint" (the raw data behind a smoothed line). A dashed line drops to
    the axis at the x `drop`.
    """

    label: str
    x: list[float]
    y: list[float | None]
    look: int
    kind: str = "points"
    drop: float | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes. With `ticks`, in ascending order, the x axis is logarithmic and has exactly these ticks."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    summary: str
    ticks: list[float] | None = None


def looks(systems: Iterable[str], baseline: str | None) -> dict[str, int]:
    """Give each system a look, the same in every figure; 0 is reserved for the baseline."""
    others = [name for name in dict.fromkeys(systems) if name != baseline]
    numbered = {name: number for number, name in enumerate(others, start=1)}
    return numbered if baseline is None else {baseline: 0, **numbered}


def recall_panels(measures: Sequence[Measures], look: Mapping[str, int]) -> list[Panel]:
    """Plot recall against the cutoff: one panel per split with at least two cutoffs, one line per system."""
    panels = []
    for split, block in by_split(measures).items():
        cutoffs = sorted({k for name in names_of_measures(block) if (k := recall_cutoff(name)) is not None})
        values = {system.system: [system.mean.get(f"R@{k}") for k in cutoffs] for system in block}
        lines = [
            Line(name, [*cutoffs], row, look[name]) for name, row in values.items() if any(y is not None for y in row)
        ]
        if lines and len(cutoffs) > 1:
            title = f"{split} ({plural(block[0].queries, 'query', 'queries')})"
            summary = f"Recall against the cutoff on {title}. {last_values(lines)}"
            panels.append(Panel(title, "cutoff k (passages per query)", "recall@k", lines, summary, [*cutoffs]))
    return panels


def depth_panels(depths: Sequence[Depths], look: Mapping[str, int]) -> list[Panel]:
    """Plot quality after re-ranking against the number of candidates: one panel per split and measure."""
    panels = []
    for split, block in by_split(depths).items():
        for name in dict.fromkeys(name for curve in block for name in curve.measures):
            systems = [curve for curve in block if name in curve.measures]
            lines = [_depth_line(curve, name, look[curve.system]) for curve in systems]
            ticks: list[float] = sorted({depth for curve in systems for depth in curve.depths})
            label = measure_label(name)
            summary = f"{label} on {split} against the number of re-ranked candidates. {last_values(lines)}"
            panels.append(Panel(f"{label}, {split}", "re-ranked candidates per query", label, lines, summary, ticks))
    return panels


def _depth_line(curve: Depths, name: str, look: int) -> Line:
    saturation, label = curve.saturation.get(name), curve.system
    if name in curve.saturation:
        label += " (no saturation)" if saturation is None else f" (saturates at {count(saturation)})"
    return Line(label, [*curve.depths], curve.measures[name], look, drop=saturation)


def training_panels(curves: Iterable[Curve]) -> list[Panel]:
    """Plot raw and smoothed training loss and validation loss: one panel per training."""
    panels = []
    for curve in curves:
        (steps, losses), validation = curve.known("loss"), curve.known("validation_loss")
        drawn = [
            _thin_line("", steps, losses, 1, "faint"),
            _thin_line("training loss (moving mean)", steps, smooth(losses), 1, "line"),
            _thin_line("validation loss", *validation, 2, "points"),
        ]
        if lines := [line for line in drawn if line.x]:
            summary = f"Loss of {curve.name} against the update step. {last_values(lines)}"
            panels.append(Panel(curve.name, "update step", "loss", lines, summary))
    return panels


def smooth(values: Series) -> Series:
    """Compute the centred moving mean over one `WINDOWS`-th of the values; at the ends the window is shorter."""
    half = len(values) // WINDOWS // 2
    total = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    start, end = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return np.asarray((total[end] - total[start]) / (end - start), dtype=np.float64)


def thin(steps: Series, values: Series) -> tuple[Series, Series]:
    """Keep at most `POINTS` points, evenly spaced, including the first and the last."""
    if len(steps) <= POINTS:
        return steps, values
    kept = np.linspace(0, len(steps) - 1, POINTS).round().astype(np.int64)
    return steps[kept], values[kept]


def _thin_line(label: str, steps: Series, values: Series, look: int, kind: str) -> Line:
    x, y = thin(steps, values)
    return Line(label, x.tolist(), y.tolist(), look, kind)


def last_values(lines: Iterable[Line]) -> str:
    """Describe the last value of each line."""
    ends = []
    for line in lines:
        known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None]
        if line.label and known:
            ends.append(f"{line.label}: {fixed(known[-1][1])} at {fixed(known[-1][0], 0)}")
    return "; ".join(ends) + "." if ends else ""
