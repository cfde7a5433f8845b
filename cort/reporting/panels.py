"""What each figure shows, as plain data: panels, lines, and the words that say the same to who cannot see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cort.evaluation.depths import Depths
from cort.evaluation.measures import Measures
from cort.reporting.inputs import Curve, Series
from cort.reporting.labels import count, fixed, measure_label, plural, recall_cutoff
from cort.reporting.tables import by_split, names_of_measures

POINTS = 400
"""Points drawn of one curve: more than a printed panel can show."""
WINDOWS = 40
"""The smoothing window is the training divided by this."""


@dataclass(frozen=True)
class Line:
    """One line of a panel, whose look is a number of colour, marker and dash pattern; 0 is the baseline's black.

    Its kind is "points" (with markers), "line", or "faint" (what a smoothed line was made from). A dashed line drops to
    the axis from the x that is `drop`.
    """

    label: str
    x: list[float]
    y: list[float | None]
    look: int
    kind: str = "points"
    drop: float | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes; `ticks` given means a logarithmic x axis with exactly these marks, in ascending order."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    summary: str
    ticks: list[float] | None = None


def looks(systems: Iterable[str], baseline: str | None) -> dict[str, int]:
    """Give a look to each system, the same in every figure; 0 is kept for the baseline."""
    others = [name for name in dict.fromkeys(systems) if name != baseline]
    found = {name: number for number, name in enumerate(others, start=1)}
    return found if baseline is None else {baseline: 0, **found}


def recall_panels(measures: Sequence[Measures], look: Mapping[str, int]) -> list[Panel]:
    """Draw up recall against the cutoff: one panel per split with two cutoffs or more, one line per system."""
    panels = []
    for split, block in by_split(measures).items():
        cutoffs = sorted({k for name in names_of_measures(block) if (k := recall_cutoff(name)) is not None})
        values = {one.system: [one.mean.get(f"R@{k}") for k in cutoffs] for one in block}
        lines = [
            Line(name, [*cutoffs], row, look[name]) for name, row in values.items() if any(y is not None for y in row)
        ]
        if lines and len(cutoffs) > 1:
            title = f"{split} ({plural(block[0].queries, 'query', 'queries')})"
            summary = f"Recall against the cutoff on {title}. {_last_values(lines)}"
            panels.append(Panel(title, "cutoff k (passages per query)", "recall@k", lines, summary, [*cutoffs]))
    return panels


def depth_panels(depths: Sequence[Depths], look: Mapping[str, int]) -> list[Panel]:
    """Draw up quality after re-ranking against the number of candidates: one panel per split and measure."""
    panels = []
    for split, block in by_split(depths).items():
        for name in dict.fromkeys(name for one in block for name in one.measures):
            systems = [one for one in block if name in one.measures]
            lines = [_depth_line(one, name, look[one.system]) for one in systems]
            ticks: list[float] = sorted({depth for one in systems for depth in one.depths})
            label = measure_label(name)
            summary = f"{label} on {split} against the number of re-ranked candidates. {_last_values(lines)}"
            panels.append(Panel(f"{label}, {split}", "re-ranked candidates per query", label, lines, summary, ticks))
    return panels


def _depth_line(one: Depths, name: str, look: int) -> Line:
    saturation, label = one.saturation.get(name), one.system
    if name in one.saturation:
        label += " (no saturation)" if saturation is None else f" (saturates at {count(saturation)})"
    return Line(label, [*one.depths], one.measures[name], look, drop=saturation)


def training_panels(curves: Iterable[Curve]) -> list[Panel]:
    """Draw up training loss, smoothed over the raw one, and validation loss: one panel per training."""
    panels = []
    for curve in curves:
        (steps, losses), validation = curve.known("loss"), curve.known("validation_loss")
        drawn = [
            _thin_line("", steps, losses, 1, "faint"),
            _thin_line("training loss (moving mean)", steps, smooth(losses), 1, "line"),
            _thin_line("validation loss", *validation, 2, "points"),
        ]
        if lines := [line for line in drawn if line.x]:
            summary = f"Loss of {curve.name} against the update step. {_last_values(lines)}"
            panels.append(Panel(curve.name, "update step", "loss", lines, summary))
    return panels


def smooth(values: Series) -> Series:
    """Take the centred moving mean over one `WINDOWS`-th of the values, at the ends over what is there of it."""
    half = len(values) // WINDOWS // 2
    total = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    start, end = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return np.asarray((total[end] - total[start]) / (end - start), dtype=np.float64)


def thin(steps: Series, values: Series) -> tuple[Series, Series]:
    """Keep at most `POINTS` of the points, evenly spread, the first and the last among them."""
    if len(steps) <= POINTS:
        return steps, values
    kept = np.linspace(0, len(steps) - 1, POINTS).round().astype(np.int64)
    return steps[kept], values[kept]


def _thin_line(label: str, steps: Series, values: Series, look: int, kind: str) -> Line:
    x, y = thin(steps, values)
    return Line(label, x.tolist(), y.tolist(), look, kind)


def _last_values(lines: Iterable[Line]) -> str:
    """Say what a reader would take from the right end of the lines."""
    found = []
    for line in lines:
        known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None]
        if line.label and known:
            found.append(f"{line.label}: {fixed(known[-1][1])} at {fixed(known[-1][0], 0)}")
    return "; ".join(found) + "." if found else ""
