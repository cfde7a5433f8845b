"""Training curves: reading them, smoothing them for a figure, and the few numbers that sum one up."""

from __future__ import annotations

import csv
import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cort.formats.lines import iter_lines
from cort.system.errors import input_error, shorten

COLUMNS = ("step", "epoch", "loss", "validation_loss", "learning_rate", "examples_per_second")
MEASURE = "validation_measure"
"""A column that curves of a training whose best model is chosen by its loss need not have."""
POINTS = 400
"""Points drawn of one curve: more than a printed panel can show."""
WINDOWS = 40
"""The smoothing window is the training divided by this."""

Series = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One training, in columns of equal length; NaN where a row has no value."""

    name: str
    columns: dict[str, Series]

    def known(self, column: str) -> tuple[Series, Series]:
        """Return the steps and values of the rows that have a value in `column`."""
        values = self.columns[column]
        finite = np.isfinite(values)
        return self.columns["step"][finite], values[finite]


@dataclass(frozen=True)
class Summary:
    """One training in numbers; None where the curve does not tell. The best step is by the measure, if there is one."""

    name: str
    steps: int
    epochs: float | None
    last_loss: float | None
    best_validation_loss: float | None
    best_measure: float | None
    best_step: int | None
    examples_per_second: float | None


def read_curve(name: str, path: str | Path) -> Curve:
    """Read a CSV file with `COLUMNS` and perhaps `MEASURE` (in any order; empty cells allowed but in `step`)."""
    lines = iter_lines(path)
    _, first = next(lines, (0, ""))
    header = next(csv.reader([first]), [])
    if set(COLUMNS) - set(header):
        raise input_error(
            path, f"the header {shorten(first)}", f"`{','.join(COLUMNS)}`", "name the curve that training wrote", 1
        )
    values: dict[str, list[float]] = {column: [] for column in (*COLUMNS, MEASURE) if column in header}
    for row, line in lines:
        cells = line.split(",")
        if len(cells) != len(header):
            raise input_error(path, f"{len(cells)} cells", f"{len(header)} as in the header", "fix the line", row)
        for column, cell in zip(header, cells, strict=True):
            if column in values:
                values[column].append(_number(path, row, column, cell))
    if not values["step"]:
        raise input_error(path, "no rows", "at least one step", "train again")
    return Curve(name, {column: np.array(numbers, dtype=np.float64) for column, numbers in values.items()})


def _number(path: str | Path, row: int, column: str, cell: str) -> float:
    if cell == "" and column != "step":
        return float("nan")
    try:
        number = float(cell)
        # A diverged training may have written nan as its loss: a gap in the figure, not a broken file.
        if column == "step" and not number.is_integer():
            raise ValueError
    except (ValueError, OverflowError):
        expected = "a whole number" if column == "step" else "a number or nothing"
        raise input_error(path, f"{shorten(cell)} in column {column}", expected, "fix the line", row) from None
    return number


def smooth(values: Series) -> Series:
    """Take the centred moving mean over one `WINDOWS`-th of the values, at the ends over what is there of it."""
    half = len(values) // WINDOWS // 2
    total = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    start, end = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return np.asarray((total[end] - total[start]) / (end - start), dtype=np.float64)


def thin(steps: Series, values: Series) -> tuple[Series, Series]:
    """Keep at most `POINTS` of the points, evenly spread, the first and the last among them."""
    if len(steps) <= POINTS:
        return steps, values
    kept = np.linspace(0, len(steps) - 1, POINTS).round().astype(np.int64)
    return steps[kept], values[kept]


def summarize(curve: Curve) -> Summary:
    """Sum a training up in a few numbers."""
    _, losses = curve.known("loss")
    steps, validation = curve.known("validation_loss")
    _, epochs = curve.known("epoch")
    _, speeds = curve.known("examples_per_second")
    best = int(np.argmin(validation)) if len(validation) else None
    best_step = None if best is None else int(steps[best])
    measured, measures = curve.known(MEASURE) if MEASURE in curve.columns else (steps[:0], steps[:0])
    if len(measures):
        best_step = int(measured[np.argmax(measures)])
    return Summary(
        curve.name,
        int(curve.columns["step"].max()),
        float(epochs.max()) if len(epochs) else None,
        # The mean of the last window, because the loss of a single batch says little.
        float(losses[-max(1, len(losses) // WINDOWS) :].mean()) if len(losses) else None,
        None if best is None else float(validation[best]),
        float(measures.max()) if len(measures) else None,
        best_step,
        statistics.median(speeds.tolist()) if len(speeds) else None,
    )
