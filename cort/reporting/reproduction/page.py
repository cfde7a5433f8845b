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
from cort.reporting.reproduction.fidelity import OFF, NumberResult, PaperResult, Reproduction, Results, compare, count
from cort.reporting.reproduction.paper import Number, Paper, PaperTable, Part
from cort.reporting.tables import Cell, Table, columns, in_formats, to_csv

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
    files, papers, shown = {}, [], []
    for one in judged:
        paper, counts, tables, drawn = one.paper, count(one.all), [], []
        for table in paper.tables:
            found = one.found[table.name]
            files |= in_formats(f"tables/{paper.name}.{table.name}", Table(COLUMNS, number_rows(paper, found)))
            tables.append((table, table_cells(table, found)))
        for figure in paper.figures:
            panels, salt = one.panels[figure.name], f"{paper.name}-{figure.name}"
            nothing = f"{figure.number} of {paper.name}: not run."
            files[f"figures/{paper.name}.{figure.name}.svg"] = figures.draw(panels, salt, nothing)
            drawn.append((figure, figures.draw_inline(panels, salt), one.found[figure.name]))
        papers.append(PaperResult(paper.name, paper.title, paper.reference, counts, one.all))
        off = numbers_off(one.all)
        shown.append({"paper": paper, "counts": counts, "off": off, "tables": tables, "figures": drawn})
    files["reproduction.json"] = to_json(Reproduction(papers))
    files["numbers.csv"] = to_csv(Table(COLUMNS, [row for one in judged for row in number_rows(one.paper, one.all)]))
    every = [one for paper in judged for one in paper.all]
    reasons = Counter(one.not_run_because for one in every if one.not_run_because)
    page = render(
        "reproduction.html.jinja",
        title=title,
        dataset=dataset,
        papers=shown,
        total=count(every),
        # The most frequent first.
        not_run=sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])),
    )
    return files | {"index.html": page}


def number_rows(paper: Paper, found: Iterable[NumberResult]) -> list[list[Cell]]:
    """Put numbers of a paper together, one row each, in units of the measures."""
    rows: list[list[Cell]] = []
    for one in found:
        where = paper.numbering[one.where]
        row = [paper.name, where, one.row, one.column, one.system or "", one.split, one.measure, one.depth]
        rows.append([*row, one.published, one.ours, one.difference, one.within, one.mark])
    return rows


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
    kind, split, measure, depths = panel["kind"], panel["split"], panel.get("measure", ""), panel.get("depths")
    place = series.get("system", ""), split
    pairs: Iterable[tuple[float, float | None]] = ()
    if kind == "systems":
        systems = [(point["x"], results.measures.get((point["system"], split))) for point in series.get("points", ())]
        return [(float(x), y) for x, one in systems if one and (y := one.mean.get(measure)) is not None]
    if kind == "consistency" and (factors := results.consistency.get(place)):
        pairs = zip(factors.depths, factors.consistency, strict=True)
    elif kind == "depths" and (curve := results.depths.get(place)) and measure in curve.measures:
        pairs = zip(curve.depths, curve.measures[measure], strict=True)
    return [(float(x), y) for x, y in pairs if y is not None and (not depths or x in depths)]


Shown: TypeAlias = tuple[str, str, str]
"""A number in the paper's units: as published, ours, and the mark."""


def table_cells(table: PaperTable, found: Iterable[NumberResult]) -> list[tuple[str, list[Shown | None]]]:
    """Rows of a table as shown; a cell is None where the paper has no number, of which `found` has all others."""
    results = iter(found)
    rows = [(label, zip(numbers, table.digits, strict=True)) for label, numbers in table.rows]
    return [
        (label, [number and _shown(number, next(results), digits) for number, digits in row]) for label, row in rows
    ]


def _shown(number: Number, one: NumberResult, digits: int) -> Shown:
    values = (None if value is None else value * number.scale for value in (one.published, one.ours))
    published, ours = (labels.fixed(value, digits) for value in values)
    return published, ours, one.mark


def numbers_off(found: Iterable[NumberResult]) -> list[tuple[tuple[str, ...], list[NumberResult]]]:
    """Numbers beyond their tolerance, by the reasons they share."""
    groups: dict[tuple[str, ...], list[NumberResult]] = {}
    for one in found:
        if one.mark == OFF:
            groups.setdefault(tuple(one.why), []).append(one)
    return list(groups.items())
