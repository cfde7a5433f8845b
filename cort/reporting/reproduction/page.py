"""What the stage `reproduction` writes: the page, a table of numbers per table of a paper, the figures, all as JSON."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cort.formats.artifacts import to_json
from cort.reporting import figures, labels
from cort.reporting.page import render
from cort.reporting.panels import Line, Panel
from cort.reporting.reproduction.claims import Part
from cort.reporting.reproduction.fidelity import (
    CANNOT,
    FAILS,
    HOLDS,
    NOT_RUN,
    OFF,
    UNKNOWN,
    NumberResult,
    PaperResult,
    Reproduction,
    Results,
    compare,
    count,
    judge,
)
from cort.reporting.reproduction.paper import Number, Paper, PaperTable
from cort.reporting.tables import Cell, Table, columns, grouped, in_formats, to_csv

log = logging.getLogger(__name__)

Found: TypeAlias = Mapping[str, Sequence[NumberResult]]
"""What became of the numbers, by table and figure."""
COLUMNS = (
    *columns(paper="", where="", row="", column="", system="our system", split="", measure="", depth="candidates"),
    *columns(4, published="", ours="", difference="", tolerance="", mark=""),
)


def build(title: str, dataset: str, papers: Sequence[Paper], results: Results) -> dict[str, str]:
    """Compare all numbers and make every file: path in the output folder -> text, the page last."""
    files: dict[str, str] = {}
    rows, judged, shown = [], [], []
    for paper in papers:
        found = {one.name: [compare(number, results) for number in one.numbers] for one in paper.exhibits}
        numbers = [one for some in found.values() for one in some]
        counts, claims = count(numbers), [judge(one, results) for one in paper.claims]
        said = f"{counts.within} within, {counts.off} off, {counts.not_run} not run, {counts.impossible} cannot be"
        log.info("%s: %s", paper.name, said)
        judged.append(PaperResult(paper.name, paper.title, paper.reference, counts, numbers, claims))
        rows += number_rows(paper, numbers)
        made, exhibits = _exhibits(paper, found, results)
        files |= made
        # Numbers beyond their tolerance, by the reasons they share.
        off = grouped((one for one in numbers if one.mark == OFF), lambda one: tuple(one.why))
        impossible = grouped((one for one in numbers if one.mark == CANNOT), lambda one: one.not_run_because)
        outcomes = Counter(one.outcome for one in claims)
        lists = {"off": off, "impossible": impossible, "claims": claims, "outcomes": outcomes}
        shown.append({"paper": paper, "counts": counts, **lists, **exhibits})
    every = [number for paper in judged for number in paper.numbers]
    reasons = Counter(one.not_run_because for one in every if one.mark == NOT_RUN)
    page = render(
        "reproduction.html.jinja",
        title=title,
        dataset=dataset,
        papers=shown,
        total=count(every),
        outcomes=(HOLDS, FAILS, UNKNOWN),
        # The most frequent first.
        not_run=sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])),
    )
    files["reproduction.json"] = to_json(Reproduction(judged))
    files["numbers.csv"] = to_csv(Table(COLUMNS, rows))
    return files | {"index.html": page}


def _exhibits(paper: Paper, found: Found, results: Results) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """Files of tables and figures, and what the page shows of them."""
    files: dict[str, str] = {}
    tables, drawn = [], []
    for table in paper.tables:
        rows = number_rows(paper, found[table.name])
        files |= in_formats(f"tables/{paper.name}.{table.name}", Table(COLUMNS, rows))
        tables.append((table, table_cells(table, found[table.name])))
    for figure in paper.figures:
        made = [make_panel(panel, results, found[figure.name]) for panel in figure.panels]
        panels, salt = [panel for panel in made if panel is not None], f"{paper.name}-{figure.name}"
        nothing = f"{figure.number} of {paper.name}: not run."
        files[f"figures/{paper.name}.{figure.name}.svg"] = figures.draw(panels, salt, nothing)
        drawn.append((figure, figures.draw_inline(panels, salt), found[figure.name]))
    return files, {"tables": tables, "figures": drawn}


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


@dataclass(frozen=True)
class Shown:
    """A number in the paper's units: as published, ours, the mark, and the relative changes that the paper prints."""

    published: str
    ours: str
    mark: str
    change: str
    our_change: str


def table_cells(table: PaperTable, found: Iterable[NumberResult]) -> list[tuple[str, list[Shown | None]]]:
    """Rows of a table as shown; a cell is None where the paper has no number, of which `found` has all others."""
    results = iter(found)
    rows = []
    for label, numbers in table.rows:
        row = [None if number is None else next(results) for number in numbers]
        cells = zip(numbers, row, table.digits, strict=True)
        rows.append((label, [_shown(number, one, row, digits) for number, one, digits in cells]))
    return rows


def _shown(
    number: Number | None, one: NumberResult | None, row: Sequence[NumberResult | None], digits: int
) -> Shown | None:
    if number is None or one is None:
        return None
    values = (None if value is None else value * number.scale for value in (one.published, one.ours))
    published, ours = (labels.fixed(value, digits) for value in values)
    change = our_change = ""
    if number.change is not None and number.change_from is not None:
        change, base = _percent(number.change), row[number.change_from]
        if one.ours is not None and base is not None and base.ours:
            our_change = _percent(one.ours / base.ours - 1)
    return Shown(published, ours, one.mark, change, our_change)


def _percent(change: float) -> str:
    return f"{labels.signed(100 * change, 0)} %"
