"""Check a file of published numbers: its shape by a schema, and what its parts say about each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from cort.formats.schemas import check_name, repeated_keys, shape_mistakes

SCHEMA = Path(__file__).with_name("paper.schema.yaml")
# What a row, a column or the table may say of a number; the first that does counts.
SOURCES = ("split", "measure", "tolerance")

Part: TypeAlias = Mapping[str, Any]
"""A mapping in the file."""


def find_mistakes(path: str | Path) -> Iterator[str]:
    """Yield a line for each mistake in a file of published numbers."""
    try:
        repeated = repeated_keys(path)
        paper = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        yield f"{path}: found no readable file ({error.strerror}), expected published numbers; fix the name"
        return
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        yield f"{path}: found no YAML ({' '.join(str(error).split())}), expected published numbers; fix the file"
        return
    if repeated:
        yield from repeated
        return
    shape = shape_mistakes(paper, yaml.safe_load(SCHEMA.read_text(encoding="utf-8")))
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


def _check_names(place: str, part: Part, paper: Part) -> Iterator[str]:
    """Check that a part refers to reasons and a tolerance that are there."""
    for why in part.get("why", []):
        yield from check_name(f"{place}.why", why, paper.get("reasons", {}))
    if "tolerance" in part:
        yield from check_name(f"{place}.tolerance", part["tolerance"], paper["tolerances"])


def _check_row(place: str, row: Part, table: Part, paper: Part) -> Iterator[str]:
    yield from _check_names(place, row, paper)
    columns = table["columns"]
    for key in row.keys() & {"values", "systems"}:
        if len(row[key]) != len(columns):
            yield f"{place}.{key}: found {len(row[key])} of them, expected {len(columns)}, one per column; fix it"
            return
    if {"system", "systems"} <= row.keys():
        yield f"{place}: found system beside systems, expected one of them; remove one"
    for column, value in zip(columns, row["values"], strict=True):
        if isinstance(value, dict):
            yield from _check_names(f"{place}.values", value, paper)
        for key in SOURCES if value is not None else ():
            if not any(key in part for part in (row, column, table)):
                yield (
                    f"{place}: found no {key} for the column {column['label']!r}, expected one of row, column or table "
                    f"to name it; add {key}"
                )


def _check_panel(place: str, panel: Part, paper: Part) -> Iterator[str]:
    yield from _check_names(place, panel, paper)
    kind = panel["kind"]
    needed = {"depths": ["measure"], "consistency": [], "systems": ["measure", "x_label"]}[kind]
    for key in needed:
        if key not in panel:
            yield f"{place}: found no {key}, expected it with the kind {kind}; add it"
    for number, series in enumerate(panel["series"]):
        inside = f"{place}.series.{number}"
        if "points" in series and kind != "systems":
            yield f"{inside}.points: found points with the kind {kind}, expected them with systems; name a system"
        if "saturation" in series and (kind != "depths" or "tolerance" not in panel):
            yield (
                f"{inside}.saturation: found saturation, expected it with kind depths and a tolerance of the panel; "
                "add the tolerance or remove it"
            )
