"""The published numbers of a paper, read from YAML: what is compared with which of our results, and how closely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml

from cort.formats.artifacts import Node
from cort.system.errors import InputError, input_error

EXPECTED = "the fields of published numbers"


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


class _PaperNode(Node):
    fix = "fix the file"

    def complain(self, found: str, expected: str = EXPECTED) -> InputError:
        return super().complain(found, expected)

    def word(self, key: str, default: str = "") -> str:
        one = self.get(key)
        return default if one is None else one.text()

    def positive(self, default: float) -> float:
        value = float(self.of(float)) if self.value is not None else default
        if value <= 0:
            raise self.complain(str(value), "a number above 0")
        return value


def read_paper(path: str | Path) -> Paper:
    """Read and check one file of published numbers."""
    try:
        value = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise input_error(path, f"no YAML ({reason})", "published numbers", "fix the file") from error
    node = _PaperNode(path, value)
    words = _Words(node)
    tables = [_table(name, one, words) for name, one in _members(node, "tables")]
    figures = [_figure(name, one, words) for name, one in _members(node, "figures")]
    return Paper(Path(path).stem, node["title"].text(), node["reference"].text(), tables, figures)


Found = TypeVar("Found", str, Tolerance)


class _Words:
    """Reasons and tolerances by the names that the rest of the file uses."""

    def __init__(self, node: _PaperNode) -> None:
        self._reasons = {name: one.text() for name, one in _members(node, "reasons")}
        self._tolerances = {
            name: Tolerance(float(one["within"].of(float)), one["because"].text())
            for name, one in node["tolerances"].members()
        }

    def why(self, parts: Sequence[_PaperNode]) -> tuple[str, ...]:
        """Reasons of a number: its own, its row's, its column's, its table's; each once."""
        named = [one for part in parts for one in _items(part, "why")]
        return tuple(dict.fromkeys(self._find(one, self._reasons) for one in named))

    def tolerance(self, node: _PaperNode) -> Tolerance:
        return self._find(node, self._tolerances)

    def _find(self, node: _PaperNode, known: dict[str, Found]) -> Found:
        name = node.text()
        if name not in known:
            raise node.complain(f"the name {name!r}", f"one of {', '.join(known)}")
        return known[name]


def _members(node: _PaperNode, key: str) -> list[tuple[str, _PaperNode]]:
    found = node.get(key)
    return [] if found is None else found.members()


def _items(node: _PaperNode, key: str) -> list[_PaperNode]:
    if not isinstance(node.value, dict):
        return []
    found = node.get(key)
    return [] if found is None else found.items()


def _table(name: str, node: _PaperNode, words: _Words) -> PaperTable:
    columns = node["columns"].items()
    rows = []
    digits = [0] * len(columns)
    for row in node["rows"].items():
        values = row["values"].items()
        if len(values) != len(columns):
            raise row["values"].complain(f"{len(values)} values", f"{len(columns)}, one per column")
        cells = [
            None if value.value is None else _number(value, (row, column, node), place, words)
            for place, (value, column) in enumerate(zip(values, columns, strict=True))
        ]
        for place, value in enumerate(values):
            if value.value is not None:
                digits[place] = max(digits[place], _decimals(_printed(value)))
        rows.append((row["label"].text(), cells))
    labels = [column["label"].text() for column in columns]
    return PaperTable(name, node["number"].text(), node["title"].text(), node.word("note"), labels, rows, digits)


def _number(value: _PaperNode, parts: tuple[_PaperNode, ...], place: int, words: _Words) -> Number:
    row, column, _ = parts
    systems = _items(row, "systems")
    if systems and place < len(systems):
        system = None if systems[place].value is None else systems[place].text()
    else:
        named = _first(parts, "system")
        system = None if named is None else named.text()
    depth, scale = _first(parts, "depth"), _scale(parts)
    return Number(
        row["label"].text(),
        column["label"].text(),
        _printed(value) / scale,
        system,
        _needed(parts, "split").text(),
        _needed(parts, "measure").text(),
        None if depth is None else depth.count(),
        words.tolerance(_needed(parts, "tolerance")),
        words.why((value, *parts)),
        scale=scale,
    )


def _first(parts: Sequence[_PaperNode], key: str) -> _PaperNode | None:
    return next((found for part in parts if (found := part.get(key)) is not None), None)


def _needed(parts: Sequence[_PaperNode], key: str) -> _PaperNode:
    found = _first(parts, key)
    if found is None:
        raise parts[0].complain(f"no {key}", f"{key} in row, column or table")
    return found


def _scale(parts: Sequence[_PaperNode]) -> float:
    found = _first(parts, "scale")
    return 1.0 if found is None else found.positive(1.0)


def _printed(value: _PaperNode) -> float:
    """Return the number as printed: alone, or with reasons of its own."""
    number = value["value"] if isinstance(value.value, dict) else value
    return float(number.of(float))


def _decimals(number: float) -> int:
    text = repr(number)
    return len(text.partition(".")[2]) if not text.endswith(".0") and "e" not in text else 0


def _figure(name: str, node: _PaperNode, words: _Words) -> PaperFigure:
    panels, numbers = [], []
    for panel in node["panels"].items():
        panels.append(_panel(panel))
        numbers += list(_saturations(panel, node, words))
    why = words.why([node, *node["panels"].items()])
    return PaperFigure(name, node["number"].text(), node["title"].text(), node.word("note"), why, panels, numbers)


def _panel(node: _PaperNode) -> PaperPanel:
    depths = tuple(one.count() for one in _items(node, "depths"))
    scale = _scale((node,))
    series = [
        Series(
            one["label"].text(),
            one.word("system") or None,
            tuple((float(point["x"].of(float)), point["system"].text()) for point in _items(one, "points")),
            tuple(_point(point, scale) for point in _items(one, "published")),
        )
        for one in node["series"].items()
    ]
    title, kind = node["title"].text(), node["kind"].text()
    return PaperPanel(kind, title, node.word("x_label"), node["split"].text(), node.word("measure"), depths, series)


def _point(node: _PaperNode, scale: float) -> tuple[float, float]:
    pair = [float(one.of(float)) for one in node.items()]
    if len(pair) != 2:
        raise node.complain(f"{len(pair)} numbers", "a pair of x and y")
    return pair[0], pair[1] / scale


def _saturations(panel: _PaperNode, figure: _PaperNode, words: _Words) -> Iterator[Number]:
    for series in panel["series"].items():
        saturation = series.get("saturation")
        if saturation is not None:
            yield Number(
                series["label"].text(),
                f"saturation of {panel['title'].text()}",
                saturation.count(),
                series.word("system") or None,
                panel["split"].text(),
                panel["measure"].text(),
                None,
                words.tolerance(panel["tolerance"]),
                words.why((panel, figure)),
                "saturation",
                tuple(one.count() for one in _items(panel, "depths")),
            )
