"""Readers of the files that reports show."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cort.evaluation.curves import Consistency, Depths
from cort.evaluation.measures import Measures
from cort.experiment.experiment import Experiment
from cort.formats.artifacts import read_artifact, read_json
from cort.formats.fields import NUMBER
from cort.formats.lines import iter_lines
from cort.runtime.errors import InputError, input_error, shorten

Measured = TypeVar("Measured", Measures, Depths, Consistency)
OfSplit = TypeVar("OfSplit", bound=Any)
log = logging.getLogger(__name__)

# Libraries whose version can change a number.
LIBRARIES = ("torch", "transformers", "tokenizers", "pyserini", "ngt", "pytrec-eval-terrier", "numpy", "snakemake")
# A diverged training writes nan as its loss; this is a gap in the figure, not a damaged file.
NO_NUMBER = frozenset({"", "nan", "inf", "-inf"})
LAST_STEP = 10**12
UNKNOWN = frozenset({"-", "NA", "nan", "NaN", ""})
COLUMNS = ("step", "epoch", "loss", "validation_loss", "learning_rate", "examples_per_second")
# A column of trainings whose best model is chosen by a measure.
MEASURE = "validation_measure"

Series = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One training as columns of equal length; NaN where a row has no value."""

    name: str
    columns: dict[str, Series]

    def known(self, column: str) -> tuple[Series, Series]:
        """Return the steps and values of the rows that have a value in `column`."""
        values = self.columns[column]
        finite = np.isfinite(values)
        return self.columns["step"][finite], values[finite]


@dataclass(frozen=True)
class Hardware:
    """The machine."""

    processor: str
    cores: int
    memory_mb: int
    gpus: list[str]


@dataclass(frozen=True)
class Input:
    """An input file; `bytes` is its size."""

    path: str
    bytes: int
    sha256: str


class Stage(NamedTuple):
    """All jobs of one rule; `peak_mb` is None if no job ran long enough to be measured."""

    rule: str
    jobs: int
    seconds: float
    longest: float
    peak_mb: float | None


def read_measures(paths: Sequence[str | Path]) -> list[Measures]:
    """Read what the stage `evaluate` wrote."""
    return read_each(paths, Measures)


def titled(experiment: Experiment, results: Iterable[OfSplit]) -> list[OfSplit]:
    """Name the splits of results as reports do; only addresses of pages have their plain names."""
    return [replace(result, split=experiment.title_of_split(result.split)) for result in results]


def read_each(paths: Sequence[str | Path], kind: type[Measured]) -> list[Measured]:
    """Read one file per system and split, in the order given; no pair may be repeated."""
    results: list[Measured] = []
    seen: dict[tuple[str, str], str | Path] = {}
    for path in paths:
        result = read_artifact(path, kind)
        if (first := seen.setdefault((result.system, result.split), path)) is not path:
            again = f"system {shorten(result.system)} on split {shorten(result.split)} as in {first}"
            raise input_error(path, again, "each system and split once", "drop one of the two files")
        results.append(result)
    return results


def _rows(path: str | Path, separator: str, required: Sequence[str], fix: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (row, cells by column) of a file whose header has the `required` columns, in any order."""
    lines = iter_lines(path)
    _, first = next(lines, (1, ""))
    header = first.split(separator)
    if not set(required) <= set(header) or len(set(header)) < len(header):
        raise input_error(path, f"the header {shorten(first)}", f"the columns {', '.join(required)}", fix, 1)
    for row, line in lines:
        cells = line.split(separator)
        if len(cells) != len(header):
            raise input_error(path, f"{len(cells)} cells", f"{len(header)} as in the header", fix, row)
        yield row, dict(zip(header, cells, strict=True))


def read_curve(name: str, path: str | Path) -> Curve:
    """Read a CSV file with `COLUMNS` and possibly `MEASURE`; all cells except steps may be empty."""
    columns = (*COLUMNS, MEASURE)
    rows: list[list[float]] = []
    for row, cells in _rows(path, ",", COLUMNS, "name a curve as training wrote it"):
        step, *values = (_number_of_curve(path, row, column, cells.get(column, "")) for column in columns)
        if not step.is_integer() or not (rows[-1][0] if rows else -1) < step <= LAST_STEP:
            expected = "whole, increasing numbers"
            raise input_error(path, f"{shorten(cells['step'])} in column step", expected, "fix the line", row)
        rows.append([step, *values])
    if not rows:
        raise input_error(path, "no rows", "at least one step", "train again")
    return Curve(name, dict(zip(columns, np.array(rows).T, strict=True)))


def _number_of_curve(path: str | Path, row: int, column: str, cell: str) -> float:
    if cell in NO_NUMBER:
        return math.nan
    if not NUMBER.fullmatch(cell) or not math.isfinite(number := float(cell)):
        raise input_error(path, f"{shorten(cell)} in column {column}", "a number or nothing", "fix the line", row)
    return number


def read_origin(path: str | Path) -> tuple[dict[str, str], list[Input]]:
    """Read facts by name, and the input files, as `cort.provenance` recorded them; unknown facts are left out."""
    record = read_json(path)
    code, software = record["code"], record["software"]
    hardware: Hardware = record["hardware"].read(Hardware)
    commit, changed = code["commit"].read(str | None), code["modified"].read(bool | None)
    packages = {name.lower(): version for name, version in software["packages"].read(dict[str, str]).items()}
    facts = {
        "Program": f"cort {code['version'].read(str)}",
        "Commit": commit and commit + (" with changes" if changed else ""),
        "Written": record["written"].read(str),
        "Machine": f"{hardware.processor}, {hardware.cores} cores, {hardware.memory_mb / 1024:.0f} GiB of memory",
        "Graphics cards": "; ".join(hardware.gpus),
        "System": software["system"].read(str),
        "Python": software["python"].read(str),
        "Java": software["java"].read(str | None),
        "Libraries": ", ".join(f"{name} {packages[name]}" for name in LIBRARIES if name in packages),
    }
    return {name: text for name, text in facts.items() if text}, record["inputs"].read(list[Input])


def read_stages(folder: str | Path) -> list[Stage]:
    """Sum time and memory of ``folder/<rule>/**/*.tsv`` per rule, longest total first; empty without a folder.

    A damaged file is left out with a warning: a job that outlived a killed workflow may have written it, too.
    """
    jobs: dict[str, list[tuple[float, float | None]]] = {}
    for path in sorted(Path(folder).rglob("*.tsv")):
        rule = path.relative_to(folder).parts[0].removesuffix(".tsv")
        try:
            jobs.setdefault(rule, []).extend(list(_jobs(path)))
        except InputError as error:
            log.warning("%s (left out)", error)
    stages = []
    for rule, measured in jobs.items():
        if measured:
            seconds, peaks = zip(*measured, strict=True)
            peak = max((peak for peak in peaks if peak is not None), default=None)
            stages.append(Stage(rule, len(measured), math.fsum(seconds), max(seconds), peak))
    return sorted(stages, key=lambda stage: (-stage.seconds, stage.rule))


def _jobs(path: Path) -> Iterator[tuple[float, float | None]]:
    """Yield the wall time in seconds and the peak resident memory in MB of each job with a known time."""
    for row, cells in _rows(path, "\t", ("s", "max_rss"), "delete the file"):
        if (seconds := _number(path, row, cells["s"])) is not None:
            yield seconds, _number(path, row, cells["max_rss"])


def _number(path: Path, row: int, cell: str) -> float | None:
    if cell in UNKNOWN:
        return None
    number = float(cell) if NUMBER.fullmatch(cell) else math.inf
    if not 0 <= number <= sys.maxsize:
        raise input_error(path, shorten(cell), "a number from 0, `-` or `NA`", "delete the file", row)
    return number
