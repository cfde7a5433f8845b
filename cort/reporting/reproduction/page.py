"""What the stage `reproduction` writes: the page, a table of numbers per table of a paper, the figures, all as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

from cort.reporting import figures, labels
from cort.reporting import page as writing
from cort.reporting.panels import Line, Panel
from cort.reporting.reproduction.artifact import NumberResult, PaperResult
from cort.reporting.reproduction.fidelity import NOT_RUN, OFF, Results, Verdict, count, verdicts_on
from cort.reporting.reproduction.paper import Number, Paper, PaperFigure, PaperPanel, PaperTable, Series
from cort.reporting.tables import Column, Table

COLUMNS = (
    *map(Column, ("paper", "where", "row", "column")),
    Column("system", "our system"),
    *map(Column, ("split", "measure")),
    Column("depth", "candidates"),
    *(Column(key, digits=4) for key in ("published", "ours", "difference", "tolerance")),
    Column("mark"),
)


@dataclass(frozen=True)
class Judged:
    """A paper with its verdicts by table and figure, and its panels by figure."""

    paper: Paper
    verdicts: dict[str, list[Verdict]]
    panels: dict[str, list[Panel]]

    @property
    def all(self) -> list[Verdict]:
        """Every verdict of the paper."""
        return [one for found in self.verdicts.values() for one in found]


def judge(paper: Paper, results: Results) -> Judged:
    """Compare all numbers of a paper and draw up its figures."""
    found = verdicts_on(paper, results)
    panels = {
        figure.name: [panel for one in figure.panels if (panel := make_panel(one, results, found[figure.name]))]
        for figure in paper.figures
    }
    return Judged(paper, found, panels)


def numbers_table(judged: Judged, names: Sequence[str]) -> Table:
    """Put the numbers of some tables and figures of a paper together, one row each, in units of the measures."""
    titles = judged.paper.numbering()
    rows = [_cells(judged.paper.name, titles[name], one) for name in names for one in judged.verdicts[name]]
    return Table(COLUMNS, rows)


def _cells(paper: str, where: str, one: Verdict) -> list[str | int | float | None]:
    number = one.number
    found = (paper, where, number.row, number.column, number.system or "", number.split, number.measure, number.depth)
    return [*found, number.paper, one.ours, one.difference, number.tolerance.within, one.mark]


def result_of(judged: Judged) -> PaperResult:
    """All verdicts on a paper, with reasons, for other programs."""
    paper = judged.paper
    numbers = [_number_result(name, one) for name, found in judged.verdicts.items() for one in found]
    return PaperResult(paper.name, paper.title, paper.reference, count(judged.all), numbers)


def _number_result(where: str, one: Verdict) -> NumberResult:
    number = one.number
    same = ("row", "column", "system", "split", "quantity", "measure", "depth")
    return NumberResult(
        where=where,
        **{name: getattr(number, name) for name in same},
        published=number.paper,
        ours=one.ours,
        difference=one.difference,
        within=number.tolerance.within,
        because=number.tolerance.because,
        mark=one.mark,
        not_run_because=one.reason or None,
        why=list(number.why),
    )


# Figures.


def make_panel(panel: PaperPanel, results: Results, found: Sequence[Verdict]) -> Panel | None:
    """Draw up our lines and what the paper prints of its own; None where there is neither."""
    lines: list[Line] = []
    for look, series in enumerate(panel.series):
        drop = next((one.ours for one in found if one.number.row == series.label and one.ours is not None), None)
        points = list(_points(panel, series, results))
        if points:
            label = series.label if drop is None else f"{series.label} (saturates at {labels.count(round(drop))})"
            x, y = zip(*points, strict=True)
            lines.append(Line(label, list(x), list(y), look, drop=drop))
        if series.published:
            x, y = zip(*series.published, strict=True)
            lines.append(Line(f"{series.label}, published", list(x), list(y), look + len(panel.series)))
    if not lines:
        return None
    ticks = sorted({x for line in lines for x in line.x})
    y_label = "consistency factor" if panel.kind == "consistency" else labels.measure_label(panel.measure)
    kinds = {"depths": "re-ranked candidates per query", "consistency": "depth"}
    x_label = panel.x_label or kinds.get(panel.kind, "")
    ends = "; ".join(f"{line.label}: {labels.fixed(line.y[-1])} at {line.x[-1]:g}" for line in lines)
    return Panel(panel.title, x_label, y_label, lines, f"{y_label} against {x_label}. {ends}.", ticks)


def _points(panel: PaperPanel, series: Series, results: Results) -> Iterator[tuple[float, float | None]]:
    if panel.kind == "systems":
        for x, system in series.points:
            found = results.measures.get((system, panel.split))
            if found is not None and found.mean.get(panel.measure) is not None:
                yield x, found.mean[panel.measure]
        return
    key = (series.system or "", panel.split)
    points: Iterable[tuple[int, float | None]] = ()
    if panel.kind == "consistency" and (factors := results.consistency.get(key)):
        points = zip(factors.depths, factors.consistency, strict=True)
    elif panel.kind == "depths" and (curve := results.depths.get(key)) and panel.measure in curve.measures:
        points = zip(curve.depths, curve.measures[panel.measure], strict=True)
    for depth, value in points:
        if value is not None and (not panel.depths or depth in panel.depths):
            yield float(depth), value


def draw(figure: PaperFigure, judged: Judged) -> str:
    """Draw a figure as a file; one of which nothing was run says so."""
    panels = judged.panels[figure.name]
    if not panels:
        return figures.missing(f"{figure.number} of {judged.paper.name}: not run.")
    return figures.draw(panels, f"{judged.paper.name}-{figure.name}")


# The page.


@dataclass(frozen=True)
class Cell:
    """One number as shown, in the paper's units."""

    published: str
    ours: str
    mark: str


def table_cells(table: PaperTable, found: Sequence[Verdict]) -> list[tuple[str, list[Cell | None]]]:
    """Rows of a table as shown; a cell is None where the paper has no number.

    :param found: a verdict per number, in their order.
    """
    verdicts = iter(found)

    def shown(cells: Sequence[Number | None]) -> list[Cell | None]:
        pairs = zip(cells, table.digits, strict=True)
        return [None if number is None else _cell(next(verdicts), digits) for number, digits in pairs]

    return [(label, shown(cells)) for label, cells in table.rows]


def _cell(one: Verdict, digits: int) -> Cell:
    def shown(value: float) -> str:
        return labels.fixed(value * one.number.scale, digits)

    return Cell(shown(one.number.paper), "" if one.ours is None else shown(one.ours), one.mark)


def reasons_not_run(judged: Sequence[Judged]) -> list[tuple[str, int]]:
    """Reasons why numbers were not run, the most frequent first."""
    found = Counter(one.reason for paper in judged for one in paper.all if one.mark == NOT_RUN)
    return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))


Off: TypeAlias = list[tuple[tuple[str, ...], list[tuple[str, Verdict]]]]


def numbers_off(judged: Judged) -> Off:
    """Numbers beyond their tolerance, each with the name of its table or figure, by the reasons they share."""
    titles = judged.paper.numbering()
    groups: dict[tuple[str, ...], list[tuple[str, Verdict]]] = {}
    for name, found in judged.verdicts.items():
        for one in found:
            if one.mark == OFF:
                groups.setdefault(one.number.why, []).append((titles[name], one))
    return list(groups.items())


def render(title: str, dataset: str, judged: Sequence[Judged]) -> str:
    """Render the page."""
    papers = [
        {
            "paper": one.paper,
            "counts": count(one.all),
            "off": numbers_off(one),
            "tables": [(table, table_cells(table, one.verdicts[table.name])) for table in one.paper.tables],
            "figures": [(figure, _inline(one, figure), one.verdicts[figure.name]) for figure in one.paper.figures],
        }
        for one in judged
    ]
    total = count(verdict for one in judged for verdict in one.all)
    shown = {"papers": papers, "total": total, "not_run": reasons_not_run(judged)}
    return writing.render("reproduction.html.jinja", title=title, dataset=dataset, **shown)


def _inline(judged: Judged, figure: PaperFigure) -> list[Markup]:
    salt = f"{judged.paper.name}-{figure.name}"
    return [figures.draw_inline(one, f"{salt}-{number}") for number, one in enumerate(judged.panels[figure.name], 1)]
