"""The published numbers of a paper, read from YAML: what is compared with which of our results, and how closely."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from cort.reporting.reproduction.checks import Part, find_mistakes
from cort.system.errors import InputError


@dataclass(frozen=True)
class Tolerance:
    """How far from the paper counts as reproduced, in the unit of the measure, and the reason for it."""

    within: float
    because: str


@dataclass(frozen=True)
class Number:
    """One published number, in the unit of our measure, with what of ours is to be compared with it.

    :ivar quantity: "measure", or "saturation" of a measure, which is a number of candidates.
    :ivar why: reasons why ours may differ, the number's own first.
    :ivar scale: what the paper multiplied the measure by in print.
    """

    row: str
    column: str
    paper: float
    system: str | None
    split: str
    measure: str
    depth: int | None
    tolerance: Tolerance
    why: tuple[str, ...] = ()
    quantity: str = "measure"
    depths: tuple[int, ...] = ()
    scale: float = 1.0


@dataclass(frozen=True)
class PaperTable:
    """A table; a cell is None where the paper has no number. `digits` are the decimals of each column in print."""

    name: str
    number: str
    title: str
    note: str
    columns: list[str]
    rows: list[tuple[str, list[Number | None]]]
    digits: list[int]


@dataclass(frozen=True)
class Series:
    """A line of a panel: of one system, or of the systems at `points`; `published` are the paper's own points."""

    label: str
    system: str | None
    points: tuple[tuple[float, str], ...] = ()
    published: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class PaperPanel:
    """A pair of axes; `depths` are empty for all of our curve."""

    kind: str
    title: str
    x_label: str
    split: str
    measure: str
    depths: tuple[int, ...]
    series: list[Series]


@dataclass(frozen=True)
class PaperFigure:
    """A figure, with the numbers that the paper gives for it."""

    name: str
    number: str
    title: str
    note: str
    why: tuple[str, ...]
    panels: list[PaperPanel]
    numbers: list[Number] = field(default_factory=list)


@dataclass(frozen=True)
class Paper:
    """All of a paper that is compared."""

    name: str
    title: str
    reference: str
    tables: list[PaperTable]
    figures: list[PaperFigure]

    def numbering(self) -> dict[str, str]:
        """Map the name of each table and figure to what the paper calls it."""
        tables = {one.name: one.number for one in self.tables}
        return tables | {one.name: one.number for one in self.figures}


def read_paper(path: str | Path) -> Paper:
    """Read and check one file of published numbers.

    :raises InputError: with a line per mistake.
    """
    mistakes = list(find_mistakes(path))
    if mistakes:
        raise InputError("\n".join(mistakes))
    content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    words = _Words(content)
    tables = [_table(name, one, words) for name, one in content.get("tables", {}).items()]
    figures = [_figure(name, one, words) for name, one in content.get("figures", {}).items()]
    return Paper(Path(path).stem, content["title"], content["reference"], tables, figures)


class _Words:
    """Reasons and tolerances by the names that the rest of the file uses."""

    def __init__(self, content: Part) -> None:
        self._reasons = content.get("reasons", {})
        self._tolerances = content["tolerances"]

    def why(self, *parts: Part) -> tuple[str, ...]:
        """Reasons of a number: its own, its row's, its column's, its table's; each once."""
        return tuple(dict.fromkeys(self._reasons[name] for part in parts for name in part.get("why", ())))

    def tolerance(self, name: str) -> Tolerance:
        """Look up a tolerance."""
        return Tolerance(float(self._tolerances[name]["within"]), self._tolerances[name]["because"])


def _table(name: str, table: Part, words: _Words) -> PaperTable:
    columns = table["columns"]
    digits = [0] * len(columns)
    rows = []
    for row in table["rows"]:
        cells: list[Number | None] = []
        for place, (value, column) in enumerate(zip(row["values"], columns, strict=True)):
            own = value if isinstance(value, dict) else {"value": value}
            if value is not None:
                digits[place] = max(digits[place], _decimals(float(own["value"])))
            cells.append(None if value is None else _number(own, row, column, table, place, words))
        rows.append((row["label"], cells))
    labels = [column["label"] for column in columns]
    return PaperTable(name, table["number"], table["title"], table.get("note", ""), labels, rows, digits)


def _number(value: Part, row: Part, column: Part, table: Part, place: int, words: _Words) -> Number:
    said: Part = ChainMap(row, column, table)  # type: ignore[arg-type]  # nothing is written to it
    scale = float(said.get("scale", 1))
    return Number(
        row["label"],
        column["label"],
        float(value["value"]) / scale,
        row["systems"][place] if "systems" in row else said.get("system"),
        said["split"],
        said["measure"],
        said.get("depth"),
        words.tolerance(said["tolerance"]),
        words.why(value, row, column, table),
        scale=scale,
    )


def _decimals(number: float) -> int:
    text = repr(number)
    return len(text.partition(".")[2]) if not text.endswith(".0") and "e" not in text else 0


def _figure(name: str, figure: Part, words: _Words) -> PaperFigure:
    panels = figure["panels"]
    return PaperFigure(
        name,
        figure["number"],
        figure["title"],
        figure.get("note", ""),
        words.why(figure, *panels),
        [_panel(panel) for panel in panels],
        [number for panel in panels for number in _saturations(panel, figure, words)],
    )


def _panel(panel: Part) -> PaperPanel:
    scale = float(panel.get("scale", 1))
    series = [
        Series(
            one["label"],
            one.get("system") or None,
            tuple((float(point["x"]), point["system"]) for point in one.get("points", ())),
            tuple((float(x), float(y) / scale) for x, y in one.get("published", ())),
        )
        for one in panel["series"]
    ]
    about = panel["kind"], panel["title"], panel.get("x_label", ""), panel["split"], panel.get("measure", "")
    return PaperPanel(*about, tuple(panel.get("depths", ())), series)


def _saturations(panel: Part, figure: Part, words: _Words) -> Iterator[Number]:
    for series in panel["series"]:
        if "saturation" in series:
            yield Number(
                series["label"],
                f"saturation of {panel['title']}",
                series["saturation"],
                series.get("system") or None,
                panel["split"],
                panel["measure"],
                None,
                words.tolerance(panel["tolerance"]),
                words.why(panel, figure),
                "saturation",
                tuple(panel.get("depths", ())),
            )
