"""Panels of the report's figures, of each kind of result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cort.evaluation.curves import Depths
from cort.evaluation.measures import Measures
from cort.reporting.figures import Line, Panel, lines_of, round_numbers, thin
from cort.reporting.format import count, named, plural
from cort.reporting.results import by_split
from cort.reporting.tables import Table

if TYPE_CHECKING:
    import pandas as pd


def recall_panels(measures: Sequence[Measures], looks: dict[str, int]) -> list[Panel]:
    """Plot recall against the cutoff: one panel per split with at least two cutoffs, one line per system."""
    import pandas as pd

    panels = []
    for split, block in by_split(measures).items():
        means = {one.system: pd.Series(one.mean, dtype=float) for one in block}
        frame = pd.DataFrame(means).filter(regex=r"^R@", axis=0)
        frame.index = [int(name[2:]) for name in frame.index]
        if len(frame := frame.sort_index()) > 1:
            title = f"{split} ({plural(block[0].queries, 'query', 'queries')})"
            lines = lines_of(frame, looks)
            panels.append(Panel(title, "cutoff k (passages per query)", "recall@k", lines, [*frame.index]))
    return panels


def depth_panels(depths: Sequence[Depths], looks: dict[str, int]) -> list[Panel]:
    """Plot quality after re-ranking against the number of candidates: one panel per split and measure."""
    import pandas as pd

    panels = []
    for split, name in dict.fromkeys((one.split, name) for one in depths for name in one.measures):
        curves = {one.system: one for one in depths if one.split == split and name in one.measures}
        series = {system: pd.Series(one.measures[name], one.depths, dtype=float) for system, one in curves.items()}
        frame, label = pd.DataFrame(series).sort_index(), named(name)
        lines = [replace(line, drop=curves[line.label].saturation.get(name)) for line in lines_of(frame, looks)]
        panels.append(Panel(f"{label}, {split}", "re-ranked candidates per query", label, lines, [*frame.index]))
    return [panel for panel in panels if panel.lines]


def audit_panels(table: Table) -> list[Panel]:
    """Plot recall against time: a panel per split, encoder and depth, a line per index and one for exact search."""
    panels = []
    for (split, encoder, depth), rows in table.frame.groupby(["split", "encoder", "depth"], sort=False):
        exact, searches = rows[rows["index"] == "exact"], rows[rows["index"] != "exact"]
        if searches.empty:
            continue
        lines = [Line("exact search", [*exact["mean (ms)"]] * 2, [min(0.99, *searches["recall of exact"]), 1.0], 0)]
        for look, (name, own) in enumerate(searches.groupby("index", sort=False), start=1):
            own = own.sort_values("mean (ms)", kind="stable")
            lines.append(Line(str(name).upper(), [*own["mean (ms)"]], [*own["recall of exact"]], look))
        ticks = round_numbers([x for line in lines for x in line.x])
        title = f"{encoder}, {split}, top {count(depth)}"
        panels.append(Panel(title, "ms per query, one thread", "recall of exact search", lines, ticks))
    return panels


def training_panels(curves: Mapping[str, pd.DataFrame]) -> list[Panel]:
    """Plot raw and smoothed training loss and validation loss: one panel per training."""
    panels = []
    for name, curve in curves.items():
        loss, validation = curve["loss"].dropna(), curve["validation_loss"].dropna()
        smooth = loss.rolling(len(loss) // 40 + 1, center=True, min_periods=1).mean()
        drawn = [("", loss, "faint", 1), ("training loss (moving mean)", smooth, "line", 1)]
        drawn += [("validation loss", validation, "points", 2)]
        thinned = [(label, thin(values), kind, look) for label, values, kind, look in drawn if len(values)]
        lines = [Line(label, [*values.index], [*values], look, kind) for label, values, kind, look in thinned]
        panels += [Panel(name, "update step", "loss", lines)] if lines else []
    return panels
