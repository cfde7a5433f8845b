"""The published numbers and claims of a paper, read from YAML and checked: what reproduces them, and how closely."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from cort.formats.yaml_files import read_yaml
from cort.reporting.reproduction import keys
from cort.runtime.errors import InputError, check_name
from cort.runtime.reading import lines_of, mistakes_in

# A mapping in a file of published numbers.
Part: TypeAlias = Mapping[str, Any]

# Key of the first value -> keys of the second value and of the difference.
RELATIONS = {"higher": ("than", "by"), "lower": ("than", "by"), "near": ("to", "within")}


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What is measured for a system on a split, at `depth` re-ranked candidates if given.

    `quantity` is "measure", or "saturation": the number of candidates at which the measure saturates, one of `depths`
    if given.
    """

    system: str | None
    split: str
    quantity: str = "measure"
    measure: str
    depth: int | None = None
    depths: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Operand(Quantity):
    """One side of a comparison; the value of the system `minus`, if named, is subtracted."""

    minus: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Two values: the first is `higher` or `lower` by at least `by`, or `near` the second, within `by`."""

    relation: str
    first: Operand
    second: Operand | float
    by: float


@dataclass(frozen=True)
class Claim:
    """A claim in a section of the paper; it holds if all its comparisons do."""

    section: str
    text: str
    note: str
    comparisons: list[Comparison]


@dataclass(frozen=True, kw_only=True)
class Number(Quantity):
    """A published number of the table or figure `where`, in the unit of our measure, and what reproduces it.

    `within` is the tolerance and `because` its reason. `why` are reasons why ours may differ, the number's own first.
    The paper prints the measure times `scale`. `not_computed` is the reason why we cannot compute it. `change` is the
    relative change that the paper prints, from the number in the column `change_from`.
    """

    where: str
    row: str
    column: str
    published: float
    within: float
    because: str
    why: list[str]
    scale: float = 1.0
    not_computed: str | None = None
    change: float | None = None
    change_from: int | None = None


@dataclass(frozen=True)
class Exhibit:
    """A table or figure: the name of its files, its number in the paper, its caption, and its published numbers."""

    name: str
    number: str
    title: str
    note: str
    numbers: list[Number]


@dataclass(frozen=True)
class PaperTable(Exhibit):
    """A table; a cell is None where the paper has no number. `digits` are the printed decimals of each column."""

    columns: list[str]
    rows: list[tuple[str, list[Number | None]]]
    digits: list[int]

    @property
    def has_changes(self) -> bool:
        """Whether the paper prints relative changes next to its numbers."""
        return any(number.change is not None for number in self.numbers)


@dataclass(frozen=True)
class PaperFigure(Exhibit):
    """A figure; `panels` are as in the file."""

    panels: list[Part]


@dataclass(frozen=True)
class Paper:
    """Everything in a paper that is compared."""

    name: str
    title: str
    reference: str
    tables: list[PaperTable]
    figures: list[PaperFigure]
    claims: list[Claim]

    @property
    def exhibits(self) -> list[Exhibit]:
        """Tables, then figures."""
        return [*self.tables, *self.figures]

    @property
    def numbering(self) -> dict[str, str]:
        """The numbers of tables and figures in the paper, by name."""
        return {exhibit.name: exhibit.number for exhibit in self.exhibits}


def read_paper(path: str | Path) -> Paper:
    """Read a file of published numbers; the `InputError` has a line per mistake."""
    mistakes = list(find_mistakes(path))
    if mistakes:
        raise InputError("\n".join(mistakes))
    content = read_yaml(path)
    tables = [_table(name, table, content) for name, table in content.get("tables", {}).items()]
    figures = [_figure(name, figure, content) for name, figure in content.get("figures", {}).items()]
    claims = [read_claim(claim) for claim in content.get("claims", [])]
    return Paper(Path(path).stem, content["title"], content["reference"], tables, figures, claims)


def _table(name: str, table: Part, content: Part) -> PaperTable:
    places = range(len(table["columns"]))
    rows = [(row["label"], [_number(name, table, row, place, content) for place in places]) for row in table["rows"]]
    digits = [max(_decimals(row["values"][place]) for row in table["rows"]) for place in places]
    numbers = [number for _, cells in rows for number in cells if number is not None]
    return PaperTable(
        name, table["number"], table["title"], table.get("note", ""), numbers, _labels(table), rows, digits
    )


def _number(where: str, table: Part, row: Part, place: int, content: Part) -> Number | None:
    value, column = row["values"][place], table["columns"][place]
    if value is None:
        return None
    own: Part = value if isinstance(value, dict) else {"value": value}
    settings: Part = ChainMap(row, column, table)  # type: ignore[arg-type]  # never written to
    scale = float(settings.get("scale", 1))
    reason = next((part["not_computed"] for part in (own, row, column) if "not_computed" in part), None)
    change = row["changes"][place] if "changes" in row else None
    return Number(
        where=where,
        row=row["label"],
        column=column["label"],
        system=row["systems"][place] if "systems" in row else settings.get("system"),
        split=settings["split"],
        measure=settings["measure"],
        depth=settings.get("depth"),
        published=float(own["value"]) / scale,
        **_reasons(content, settings["tolerance"], own, row, column, table),
        scale=scale,
        not_computed=None if reason is None else content["reasons"][reason],
        change=None if change is None else change / 100,
        change_from=None if change is None else _labels(table).index(row["change_from"]),
    )


def _labels(table: Part) -> list[str]:
    return [column["label"] for column in table["columns"]]


def _decimals(value: Part | float | None) -> int:
    text = repr(float(value["value"] if isinstance(value, Mapping) else value or 0))
    return len(text.partition(".")[2]) if not text.endswith(".0") and "e" not in text else 0


def _reasons(content: Part, tolerance: str, *parts: Part) -> dict[str, Any]:
    """Look up the tolerance of a number, and the reasons of its parts without repetitions."""
    why = dict.fromkeys(content["reasons"][name] for part in parts for name in part.get("why", ()))
    entry = content["tolerances"][tolerance]
    return {"within": float(entry["within"]), "because": entry["because"], "why": list(why)}


def _figure(name: str, figure: Part, content: Part) -> PaperFigure:
    numbers = [
        Number(
            where=name,
            row=series["label"],
            column=f"saturation of {panel['title']}",
            system=series.get("system") or None,
            split=panel["split"],
            quantity="saturation",
            measure=panel["measure"],
            published=series["saturation"],
            **_reasons(content, panel["tolerance"], panel, figure),
            depths=tuple(panel.get("depths", ())),
        )
        for panel in figure["panels"]
        for series in panel["series"]
        if "saturation" in series
    ]
    return PaperFigure(name, figure["number"], figure["title"], figure.get("note", ""), numbers, figure["panels"])


def find_mistakes(path: str | Path) -> Iterator[str]:
    """Yield a line for each mistake in a file of published numbers."""
    try:
        paper = read_yaml(path, "published numbers")
    except InputError as error:
        yield from str(error).splitlines()
        return
    shape = lines_of(mistakes_in(paper, keys.Paper, {}))
    yield from dict.fromkeys(f"{path}: {line}" for line in shape or _references(paper))


def _references(paper: Part) -> Iterator[str]:
    for name, table in paper.get("tables", {}).items():
        yield from _check_names(f"tables.{name}", table, paper)
        for number, column in enumerate(table["columns"]):
            yield from _check_names(f"tables.{name}.columns.{number}", column, paper)
        for number, row in enumerate(table["rows"]):
            yield from _check_row(f"tables.{name}.rows.{number}", row, table, paper)
    for name, figure in paper.get("figures", {}).items():
        yield from _check_names(f"figures.{name}", figure, paper)
        for number, panel in enumerate(figure["panels"]):
            yield from _check_panel(f"figures.{name}.panels.{number}", panel, paper)
    for number, claim in enumerate(paper.get("claims", [])):
        yield from mistakes_of_claim(f"claims.{number}", claim)


def _check_names(place: str, part: Part, paper: Part) -> Iterator[str]:
    """Check that the reasons and the tolerance of a part exist."""
    for why in part.get("why", []):
        yield from check_name(f"{place}.why", why, paper.get("reasons", {}))
    if "not_computed" in part:
        yield from check_name(f"{place}.not_computed", part["not_computed"], paper.get("reasons", {}))
    if "tolerance" in part:
        yield from check_name(f"{place}.tolerance", part["tolerance"], paper["tolerances"])


def _check_row(place: str, row: Part, table: Part, paper: Part) -> Iterator[str]:
    yield from _check_names(place, row, paper)
    columns = table["columns"]
    for key in sorted(row.keys() & {"values", "systems", "changes"}):
        if len(row[key]) != len(columns):
            yield f"{place}.{key}: found {len(row[key])} values, expected {len(columns)}, one per column; fix it"
            return
    if "changes" in row:
        yield from check_name(f"{place}.change_from", row.get("change_from", ""), _labels(table))
    if {"system", "systems"} <= row.keys():
        yield f"{place}: found both system and systems, expected one of them; remove one"
    for column, value in zip(columns, row["values"], strict=True):
        if isinstance(value, dict):
            yield from _check_names(f"{place}.values", value, paper)
        for key in ("split", "measure", "tolerance"):
            if value is not None and not any(key in part for part in (row, column, table)):
                expected = f"expected one of row, column or table to name it; add {key}"
                yield f"{place}: found no {key} for the column {column['label']!r}, {expected}"


def _check_panel(place: str, panel: Part, paper: Part) -> Iterator[str]:
    yield from _check_names(place, panel, paper)
    kind = panel["kind"]
    for key in {"depths": ["measure"], "consistency": [], "systems": ["measure", "x_label"]}[kind]:
        if key not in panel:
            yield f"{place}: found no {key}, expected it with the kind {kind}; add it"
    for number, series in enumerate(panel["series"]):
        inside = f"{place}.series.{number}"
        if "points" in series and kind != "systems":
            yield f"{inside}.points: found points with the kind {kind}, expected them with systems; name a system"
        if "saturation" in series and (kind != "depths" or "tolerance" not in panel):
            expected = "expected it with kind depths and a tolerance of the panel; add the tolerance or remove it"
            yield f"{inside}.saturation: found saturation, {expected}"


def read_claim(claim: Part) -> Claim:
    """Read a claim that has no mistakes."""
    comparisons = [comparison for test in claim["tests"] for comparison in _comparisons(test, claim)]
    return Claim(claim["section"], claim["text"], claim.get("note", ""), comparisons)


def mistakes_of_claim(place: str, claim: Part) -> Iterator[str]:
    """Yield a line for each key that a comparison lacks or does not take."""
    for number, test in enumerate(claim["tests"]):
        inside = f"{place}.tests.{number}"
        relations = sorted(test.keys() & RELATIONS)
        if len(relations) != 1:
            found = " and ".join(relations) or "none of them"
            yield f"{inside}: found {found}, expected one of {', '.join(RELATIONS)}; keep one"
            continue
        second, by = RELATIONS[relations[0]]
        if second not in test:
            yield f"{inside}: found no key {second}, expected it with {relations[0]}; add it"
        for key in sorted(test.keys() - {relations[0], second, by, "depths"}):
            yield f"{inside}.{key}: found {key} with {relations[0]}, expected {second} or {by}; remove it"
        for side in (test[relations[0]], *_listed(test.get(second, []))):
            for key in ("system", "split", "measure") if isinstance(side, Mapping) else ():
                if key not in side and key not in claim:
                    yield f"{inside}: found no {key}, expected the value or the claim to name it; add {key}"


def _listed(value: Part | float | Sequence[Part | float]) -> Sequence[Part | float]:
    return value if isinstance(value, list) else [value]  # type: ignore[list-item]  # a list is no mapping


def _comparisons(test: Part, claim: Part) -> Iterator[Comparison]:
    """Yield a comparison with each second value, at each depth."""
    relation = next(iter(test.keys() & RELATIONS))
    second, by = RELATIONS[relation]
    for depth in test.get("depths", [None]):
        for other in _listed(test[second]):
            value = _operand(other, claim, depth) if isinstance(other, Mapping) else float(other)
            yield Comparison(relation, _operand(test[relation], claim, depth), value, float(test.get(by, 0)))


def _operand(side: Part, claim: Part, depth: int | None) -> Operand:
    keys: Part = ChainMap(side, claim)  # type: ignore[arg-type]  # never written to
    names = {key: keys[key] for key in ("system", "split", "measure")}
    return Operand(**names, depth=keys.get("depth", depth), minus=keys.get("minus"))
