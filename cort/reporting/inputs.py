"""What a report shows, read from the files of the stages before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cort.evaluation.depths import Consistency, Depths
from cort.evaluation.measures import Measures
from cort.formats.artifacts import read_artifact
from cort.system.errors import input_error, shorten

Measured = TypeVar("Measured", Measures, Depths, Consistency)


@dataclass(frozen=True)
class Filter:
    """What a filter kept and dropped, in the order of its file."""

    name: str
    counts: list[tuple[str, int]]


def read_filter(name: str, path: str | Path) -> Filter:
    """Read a mapping of text to count."""
    return Filter(name, list(read_artifact(path, dict[str, int]).items()))


def read_measures(paths: Sequence[str | Path]) -> list[Measures]:
    """Read what the stage `evaluate` wrote."""
    return read_each(paths, Measures)


def read_each(paths: Sequence[str | Path], kind: type[Measured]) -> list[Measured]:
    """Read one file per system and split, in the order given; each pair once."""
    found: list[Measured] = []
    seen: dict[tuple[str, str], str | Path] = {}
    for path in paths:
        one = read_artifact(path, kind)
        if (place := seen.setdefault((one.system, one.split), path)) is not path:
            raise input_error(
                path,
                f"system {shorten(one.system)} on split {shorten(one.split)} as in {place}",
                "each system and split once",
                "drop one of the two files",
            )
        found.append(one)
    return found
