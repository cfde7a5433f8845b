"""What the stage `reproduction` writes: the page, a table of numbers per table of a paper, the figures, all as JSON."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from cort.formats.artifacts import to_json
from cort.reporting import figures, labels
from cort.reporting.page import render
from cort.reporting.panels import Line, Panel, last_values
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
from cort.reporting.reproduction.paper import Number, Paper, PaperTable, Part
from cort.reporting.tables import Cell, Table, columns, grouped, in_formats, to_csv

log = logging.getLogger(__name__)

# The results of the numbers of a paper, by table and figure.
Compared: TypeAlias = Mapping[str, Sequence[NumberResult]]
COLUMNS = (
    *columns(paper="", where="", row="", column="", system="our system", split="", measure="", depth="candidates"),
    *columns(4, published="", ours="", difference="", tolerance="", mark=""),
)
X_LABELS = {"depths": "re-ranked candidates per query", "consistency": "depth"}


def build(title: str, dataset: str, papers: Sequence[Paper], results: Results) -> dict[str, str]:
    """Compare all numbers and build every file: path in the output folder -> text, the page last."""
    files: dict[str, str] = {}
    rows, judged, shown = [], [], []
    for paper in papers:
        compared = {
            exhibit.name: [compare(number, results) for number in exhibit.numbers] for exhibit in paper.exhibits
        }
        numbers = [number for exhibit in compared.values() for number in exhibit]
        counts, claims = count(numbers), [judge(claim, results) for claim in paper.claims]
        log.info(
            "%s: %d within tolerance, %d off, %d not run, %d cannot be computed",
            *(paper.name, counts.within, counts.off, counts.not_run, counts.impossible),
        )
        judged.append(PaperResult(paper.name, paper.title, paper.reference, counts, numbers, claims))
        rows += number_rows(paper, numbers)
        for table in paper.tables:
            own = Table(COLUMNS, number_rows(paper, compared[table.name]))
            files |= in_formats(f"tables/{paper.name}.{table.name}", own)
        drawn = []
        for figure in paper.figures:
            panels = make_panels(figure.panels, results, compared[figure.name])
            salt, nothing = f"{paper.name}-{figure.name}", f"{figure.number} of {paper.name}: not run."
            files[f"figures/{paper.name}.{figure.name}.svg"] = figures.draw(panels, salt, nothing)
            drawn.append((figure, figures.draw_inline(panels, salt), compared[figure.name]))
        shown.append(
            {
                "paper": paper,
                "counts": counts,
                # Numbers beyond their tolerance, by the reasons they share.
                "off": grouped((number for number in numbers if number.mark == OFF), lambda number: tuple(number.why)),
                "impossible": grouped(
                    (number for number in numbers if number.mark == CANNOT), lambda number: number.not_run_because
                ),
                "claims": claims,
                "outcomes": Counter(claim.outcome for claim in claims),
                "tables": [(table, table_cells(table, compared[table.name])) for table in paper.tables],
                "figures": drawn,
            }
        )
    numbers = [number for paper in judged for number in paper.numbers]
    reasons = Counter(number.not_run_because for number in numbers if number.mark == NOT_RUN)
    page = render(
        "reproduction.html.jinja",
        title=title,
        dataset=dataset,
        papers=shown,
        total=count(numbers),
        outcomes=(HOLDS, FAILS, UNKNOWN),
        # The most frequent first.
        not_run=sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])),
    )
    files["reproduction.json"] = to_json(Reproduction(judged))
    files["numbers.csv"] = to_csv(Table(COLUMNS, rows))
    return files | {"index.html": page}


def number_rows(paper: Paper, numbers: Iterable[NumberResult]) -> list[list[Cell]]:
    """Tabulate numbers of a paper, one per row, in the units of our measures."""
    return [
        [
            *(paper.name, paper.numbering[number.where], number.row, number.column, number.system or ""),
            *(number.split, number.measure, number.depth),
            *(number.published, number.ours, number.difference, number.within, number.mark),
        ]
        for number in numbers
    ]


def make_panels(panels: Sequence[Part], results: Results, numbers: Sequence[NumberResult]) -> list[Panel]:
    """Plot our curves and those that the paper prints; panels without either are left out."""
    return [drawn for panel in panels if (drawn := _panel(panel, results, numbers))]


def _panel(panel: Part, results: Results, numbers: Sequence[NumberResult]) -> Panel | None:
    lines: list[Line] = []
    for look, series in enumerate(panel["series"]):
        label = series["label"]
        drop = next((number.ours for number in numbers if number.row == label and number.ours is not None), None)
        if points := _points(panel, series, results):
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
    x_label = panel.get("x_label") or X_LABELS[panel["kind"]]
    return Panel(panel["title"], x_label, y_label, lines, f"{y_label} against {x_label}. {last_values(lines)}", ticks)


def _points(panel: Part, series: Part, results: Results) -> list[tuple[float, float]]:
    kind, split, measure, depths = panel["kind"], panel["split"], panel.get("measure", ""), panel.get("depths")
    place = series.get("system", ""), split
    pairs: Iterable[tuple[float, float | None]] = ()
    if kind == "systems":
        systems = [(point["x"], results.measures.get((point["system"], split))) for point in series.get("points", ())]
        pairs = [(x, measures.mean.get(measure)) for x, measures in systems if measures]
    elif kind == "consistency" and (factors := results.consistency.get(place)):
        pairs = zip(factors.depths, factors.consistency, strict=True)
    elif kind == "depths" and (curve := results.depths.get(place)) and measure in curve.measures:
        pairs = zip(curve.depths, curve.measures[measure], strict=True)
    return [(float(x), y) for x, y in pairs if y is not None and (kind == "systems" or not depths or x in depths)]


def table_cells(table: PaperTable, numbers: Iterable[NumberResult]) -> list[tuple[str, list[dict[str, Any] | None]]]:
    """Format the rows of a table in the paper's units; a cell is None where the paper has no number."""
    results = iter(numbers)
    rows = []
    for label, row in table.rows:
        ours = [None if number is None else (number, next(results)) for number in row]
        rows.append((label, [_cell(place, ours, digits) for place, digits in enumerate(table.digits)]))
    return rows


def _cell(place: int, row: Sequence[tuple[Number, NumberResult] | None], digits: int) -> dict[str, Any] | None:
    """Format a number as published and ours, with the relative changes if the paper prints them."""
    if (pair := row[place]) is None:
        return None
    number, result = pair
    published, ours = (
        labels.fixed(None if value is None else value * number.scale, digits)
        for value in (result.published, result.ours)
    )
    base = None if number.change_from is None else row[number.change_from]
    our_change = None
    if result.ours is not None and base is not None and base[1].ours:
        our_change = result.ours / base[1].ours - 1
    marks = {"mark": result.mark, "change": number.change, "our_change": our_change}
    return {"published": published, "ours": ours, **marks}
