"""Figures: lines by system, one pair of axes or several, as SVG; the same data give the same bytes."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import TYPE_CHECKING, Any

from cort.reporting.format import count, fixed

if TYPE_CHECKING:
    import pandas as pd

# After Okabe and Ito, darkened where needed for a contrast of 3:1 with white; the first one is the baseline's.
COLOURS = ("#1b1b1b", "#0072b2", "#d55e00", "#00805c", "#a8478c", "#96690a", "#3a8fc4", "#7a1f4b", "#6b6b6b")
MARKERS = ("s", "o", "^", "D", "v", "P", "X", "<", ">", "p", "h")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
# Inches of one panel, and of a line of the legend below it.
WIDTH, HEIGHT, LEGEND = 4.4, 2.9, 0.19
NOTHING = "No figure: too little was measured."
# Points of a training that are drawn: more than a printed panel can show.
POINTS = 400
STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dcdcdc",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.markersize": 4.5,
}


@dataclass(frozen=True)
class Line:
    """One line; `look` numbers a colour, a marker and dashes, 0 being the baseline's.

    `kind` is "points" (with markers), "line", or "faint" (the raw data behind a smoothed line). A dashed line drops to
    the axis at the x `drop`; `bars` are intervals of y.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    look: int
    kind: str = "points"
    drop: float | None = None
    bars: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes; `ticks` of a logarithmic x axis, which is linear without them, or if one is not above 0."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    ticks: Sequence[float] | None = None

    @property
    def summary(self) -> str:
        """Say where each line ends, for people who do not see it."""
        ends = [f"{one.label}: {fixed(one.y[-1])} at {fixed(one.x[-1], 1)}" for one in self.lines if one.label]
        return f"{self.title}: {self.y_label} by {self.x_label}. {'; '.join(ends)}."


def lines_of(frame: pd.DataFrame, looks: dict[str, int]) -> list[Line]:
    """Make a line of each column with values, whose x is the index."""
    columns = {str(name): frame[name].dropna() for name in frame.columns}
    return [Line(name, [*column.index], [*column], looks[name]) for name, column in columns.items() if len(column)]


def thin(values: pd.Series) -> pd.Series:
    """Keep at most `POINTS` points, evenly spaced, with the first and the last."""
    import numpy as np

    return values.iloc[np.unique(np.linspace(0, len(values) - 1, POINTS).round().astype(int))]


def draw(panels: Sequence[Panel]) -> str:
    """Draw panels, two per row, as an SVG file on white, which says so if there are none."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    columns = min(2, len(panels)) or 1
    rows = -(-len(panels) // columns) or 1
    longest = max((len(panel.lines) for panel in panels), default=0)
    text = io.StringIO()
    # The user's matplotlib settings must not change the figures.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Of all ids in the file.
        matplotlib.rcParams.update(STYLE | {"svg.hashsalt": "cort"})
        height = HEIGHT + LEGEND * -(-longest // 2) if panels else 0.6
        figure = Figure(figsize=(WIDTH * columns, height * rows), layout="constrained", facecolor="white")
        FigureCanvasSVG(figure)
        for place, panel in enumerate(panels, start=1):
            _draw(figure.add_subplot(rows, columns, place), panel)
        if not panels:
            figure.text(0.5, 0.5, NOTHING, ha="center", va="center")
        # A second layout has room for the labels of the ticks that fit the axes of the first.
        figure.draw_without_rendering()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return text.getvalue()


def embed(panels: Sequence[Panel]) -> list[tuple[str, str]]:
    """Draw each panel for a page: address of the picture, and its description."""
    pictures = (base64.b64encode(draw([panel]).encode()).decode() for panel in panels)
    return [(f"data:image/svg+xml;base64,{one}", panel.summary) for one, panel in zip(pictures, panels, strict=True)]


def _draw(axes: Any, panel: Panel) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    for place, line in enumerate(panel.lines):
        _draw_line(axes, line, sum(lies_on(line, other) for other in panel.lines[place + 1 :]))
    if panel.ticks and min(panel.ticks) > 0:
        axes.set_xscale("log", base=2)
        left, right = axes.get_xlim()
        axes.set_xlim(min(left, panel.ticks[0]), max(right, panel.ticks[-1]))
        axes.xaxis.set_major_locator(FixedLocator(spread(panel.ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value) if value % 1 == 0 else f"{value:g}"))
    bottom, top = axes.get_ylim()
    for line in panel.lines:
        if line.drop is not None:
            end = line.y[line.x.index(line.drop)]
            axes.plot([line.drop] * 2, [bottom, end], color=style_of(line.look)["color"], linewidth=1, linestyle="--")
    axes.set_ylim(bottom, top)
    if any(line.label for line in panel.lines):
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.22), ncols=2)


def lies_on(line: Line, other: Line) -> bool:
    """Tell whether two lines of points can hardly be told apart: everywhere within a hundredth of their values."""
    same = line.kind == other.kind == "points" and len(line.x) > 1 and [*line.x] == [*other.x]
    return same and all(abs(a - b) <= 0.01 * abs(a) for a, b in zip(line.y, other.y, strict=True))


def _draw_line(axes: Any, line: Line, beneath: int) -> None:
    style = style_of(line.look)
    if beneath:
        # What later lines lie on is broad and pale, and seen on both sides of them.
        style |= {"linewidth": 1.5 + 3.5 * beneath, "markersize": 4.5 + 4 * beneath, "alpha": 0.4, "linestyle": "-"}
    if line.kind != "points":
        style = {"color": style["color"]} | ({"linewidth": 0.6, "alpha": 0.4} if line.kind == "faint" else {})
    axes.plot(line.x, line.y, label=line.label or "_", **style)
    if line.bars:
        pairs = zip(line.y, line.bars, strict=True)
        # By rounding alone, the mean of equal values may lie outside of its interval.
        below, above = zip(*((max(y - low, 0.0), max(high - y, 0.0)) for y, (low, high) in pairs), strict=True)
        axes.errorbar(line.x, line.y, yerr=(below, above), fmt="none", ecolor=style["color"], elinewidth=0.8)


def style_of(look: int) -> dict[str, Any]:
    """Return colour, marker and dashes of a look: 0 is black and solid, others repeat only after 32."""
    if look == 0:
        return {"color": COLOURS[0], "marker": MARKERS[0], "linestyle": DASHES[0]}
    turn, colour = divmod(look - 1, len(COLOURS) - 1)
    # Each cycle through the colours shifts the dashes, so that combinations do not repeat soon.
    dashes = DASHES[(colour + turn) % len(DASHES)]
    return {"color": COLOURS[1 + colour], "marker": MARKERS[look % len(MARKERS)], "linestyle": dashes}


def spread(ticks: Sequence[float]) -> list[float]:
    """Pick the ticks of a logarithmic axis whose labels do not touch: drop one too close to its right neighbour."""
    kept = [ticks[-1]]
    for tick in reversed(ticks[:-1]):
        if kept[-1] / tick >= (ticks[-1] / ticks[0]) ** (1 / 13):
            kept.append(tick)
    return kept[::-1]


def round_numbers(values: Sequence[float]) -> list[float]:
    """Choose ticks of 1, 2 and 5 times a power of ten that enclose all values; none if one is not above 0."""
    if min(values) <= 0:
        return []
    powers = range(floor(log10(min(values))), floor(log10(max(values))) + 2)
    marks = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    first = max(place for place, mark in enumerate(marks) if mark <= min(values))
    last = min(place for place, mark in enumerate(marks) if mark >= max(values))
    return marks[first : max(last, first + 1) + 1]
