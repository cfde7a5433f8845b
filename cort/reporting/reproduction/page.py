"""What the stage `reproduction` writes: the page, a table of numbers per table of a paper, the figures, all as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cort.formats.artifacts import to_json
from cort.reporting import figures, labels
from cort.reporting.page import render
from cort.reporting.panels import Line, Panel
from cort.reporting.reproduction.fidelity import (
    NOT_RUN,
    OFF,
    NumberResult,
    PaperResult,
    Reproduction,
    Results,
    compare,
    count,
)
from cort.reporting.reproduction.paper import Number, Paper, PaperTable, Part
from cort.reporting.tables import Table, columns, in_formats, to_csv

COLUMNS = (
    *columns(paper="", where="", row="", column="", system="our system", split="", measure="", depth="candidates"),
    *columns(4, published="", ours="", difference="", tolerance="", mark=""),
)


@dataclass(frozen=True)
class Judged:
    """A paper with what became of its numbers, by table and figure, and its panels by figure."""

    paper: Paper
    found: dict[str, list[NumberResult]]
    panels: dict[str, list[Panel]]

    @property
    def all(self) -> list[NumberResult]:
        """Every number of the paper."""
        return [one for found in self.found.values() for one in found]


def judge(paper: Paper, results: Results) -> Judged:
    """Compare all numbers of a paper and draw up its figures."""
    found = {one.name: [compare(number, results) for number in one.numbers] for one in paper.exhibits}
    panels = {
        figure.name: [panel for one in figure.panels if (panel := make_panel(one, results, found[figure.name]))]
        for figure in paper.figures
    }
    return Judged(paper, found, panels)


def build(title: str, dataset: str, judged: Sequence[Judged]) -> dict[str, str]:
    """Make every file: path in the output folder -> text, the page last."""
    papers = []
    files = {}
    for one in judged:
        paper = one.paper
        papers.append(PaperResult(paper.name, paper.title, paper.reference, count(one.all), one.all))
        for figure in paper.figures:
            salt, nothing = f"{paper.name}-{figure.name}", f"{figure.number} of {paper.name}: not run."
            files[f"figures/{paper.name}.{figure.name}.svg"] = figures.draw(one.panels[figure.name], salt, nothing)
        for table in paper.tables:
            files |= in_formats(f"tables/{paper.name}.{table.name}", numbers_table(paper, one.found[table.name]))
    files["reproduction.json"] = to_json(Reproduction(papers))
    files["numbers.csv"] = to_csv(
        Table(COLUMNS, [row for one in judged for row in numbers_table(one.paper, one.all).rows])
    )
    return files | {"index.html": _page(title, dataset, judged)}


def numbers_table(paper: Paper, found: Iterable[NumberResult]) -> Table:
    """Put numbers of a paper together, one row each, in units of the measures."""
    titles = paper.numbering
    rows = [
        [
            *(paper.name, titles[one.where], one.row, one.column, one.system or "", one.split, one.measure, one.depth),
            *(one.published, one.ours, one.difference, one.within, one.mark),
        ]
        for one in found
    ]
    return Table(COLUMNS, rows)


def make_panel(panel: Part, results: Results, found: Sequence[NumberResult]) -> Panel | None:
    """Draw up our lines and what the paper prints of its own; None where there is neither."""
    lines: list[Line] = []
    for look, series in enumerate(panel["series"]):
        label = series["label"]
        drop = next((one.ours for one in found if one.row == label and one.ours is not None), None)
        points = _points(panel, series, results)
        if points:
            saturated = "" if drop is None else f" (saturates at {labels.count(round(drop))})"
            x, y = zip(*points, strict=True)
            lines.append(Line(f"{label}{saturated}", list(x), list(y), look, drop=drop))
        if series.get("published"):
            x, y = zip(*series["published"], strict=True)
            scaled = [value / float(panel.get("scale", 1)) for value in y]
            lines.append(Line(f"{label}, published", list(x), scaled, look + len(panel["series"])))
    if not lines:
        return None
    ticks = sorted({x for line in lines for x in line.x})
    y_label = "consistency factor" if panel["kind"] == "consistency" else labels.measure_label(panel["measure"])
    kinds = {"depths": "re-ranked candidates per query", "consistency": "depth", "systems": ""}
    x_label = panel.get("x_label") or kinds[panel["kind"]]
    ends = "; ".join(f"{line.label}: {labels.fixed(line.y[-1])} at {line.x[-1]:g}" for line in lines)
    return Panel(panel["title"], x_label, y_label, lines, f"{y_label} against {x_label}. {ends}.", ticks)


def _points(panel: Part, series: Part, results: Results) -> list[tuple[float, float]]:
    pairs: Iterable[tuple[float, float | None]] = ()
    place = series.get("system", ""), panel["split"]
    if panel["kind"] == "systems":
        measured = [
            (point["x"], results.measures.get((point["system"], panel["split"]))) for point in series.get("points", ())
        ]
        pairs = [(x, one.mean.get(panel["measure"])) for x, one in measured if one is not None]
    elif panel["kind"] == "consistency" and (factors := results.consistency.get(place)):
        pairs = zip(factors.depths, factors.consistency, strict=True)
    elif panel["kind"] == "depths" and (curve := results.depths.get(place)) and panel["measure"] in curve.measures:
        pairs = zip(curve.depths, curve.measures[panel["measure"]], strict=True)
    depths = panel.get("depths") if panel["kind"] != "systems" else None
    return [(float(x), y) for x, y in pairs if y is not None and (not depths or x in depths)]


# The page.


Cell: TypeAlias = tuple[str, str, str]
"""A number as shown, in the paper's units: as published, ours, and the mark."""


def table_cells(table: PaperTable, found: Iterable[NumberResult]) -> list[tuple[str, list[Cell | None]]]:
    """Rows of a table as shown; a cell is None where the paper has no number, of which `found` has all others."""
    results = iter(found)

    def cell(number: Number | None, digits: int) -> Cell | None:
        if number is None:
            return None
        one = next(results)
        values = (None if value is None else value * number.scale for value in (one.published, one.ours))
        published, ours = (labels.fixed(value, digits) for value in values)
        return published, ours, one.mark

    return [(label, list(map(cell, numbers, table.digits))) for label, numbers in table.rows]


def _page(title: str, dataset: str, judged: Sequence[Judged]) -> str:
    every = [one for paper in judged for one in paper.all]
    reasons = Counter(one.not_run_because for one in every if one.mark == NOT_RUN)
    papers = [
        {
            "paper": one.paper,
            "counts": count(one.all),
            "off": numbers_off(one),
            "tables": [(table, table_cells(table, one.found[table.name])) for table in one.paper.tables],
            "figures": [
                (
                    figure,
                    figures.draw_inline(one.panels[figure.name], f"{one.paper.name}-{figure.name}"),
                    one.found[figure.name],
                )
                for figure in one.paper.figures
            ],
        }
        for one in judged
    ]
    return render(
        "reproduction.html.jinja",
        title=title,
        dataset=dataset,
        papers=papers,
        total=count(every),
        # The most frequent first.
        not_run=sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])),
    )


def numbers_off(judged: Judged) -> list[tuple[tuple[str, ...], list[NumberResult]]]:
    """Numbers beyond their tolerance, by the reasons they share."""
    groups: dict[tuple[str, ...], list[NumberResult]] = {}
    for one in judged.all:
        if one.mark == OFF:
            groups.setdefault(tuple(one.why), []).append(one)
    return list(groups.items())
