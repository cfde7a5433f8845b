"""Training curves: reading them, smoothing them for a figure, and the few numbers that sum one up."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cort.formats.lines import iter_lines
from cort.system.errors import input_error, shorten

COLUMNS = ("step", "epoch", "loss", "validation_loss", "learning_rate", "examples_per_second")
MEASURE = "validation_measure"
"""A column of trainings whose best model is chosen by it; others need not have it."""
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
        expected = f"`{','.join(COLUMNS)}`"
        raise input_error(path, f"the header {shorten(first)}", expected, "name the curve that training wrote", 1)
    rows = []
    for row, line in lines:
        cells = line.split(",")
        if len(cells) != len(header):
            raise input_error(path, f"{len(cells)} cells", f"{len(header)} as in the header", "fix the line", row)
        values = dict(zip(header, cells, strict=True))
        rows.append([_number(path, row, column, values.get(column, "")) for column in (*COLUMNS, MEASURE)])
    if not rows:
        raise input_error(path, "no rows", "at least one step", "train again")
    return Curve(name, dict(zip((*COLUMNS, MEASURE), np.array(rows).T, strict=True)))


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
    known = {column: curve.known(column) for column in curve.columns}
    losses, epochs, speeds = (known[column][1] for column in ("loss", "epoch", "examples_per_second"))
    (steps, validation), (measured, measures) = known["validation_loss"], known[MEASURE]
    best = None
    if len(measures):
        best = int(measured[np.argmax(measures)])
    elif len(validation):
        best = int(steps[np.argmin(validation)])
    return Summary(
        curve.name,
        int(curve.columns["step"].max()),
        float(epochs.max()) if len(epochs) else None,
        # The mean of the last window, because the loss of a single batch says little.
        float(losses[-max(1, len(losses) // WINDOWS) :].mean()) if len(losses) else None,
        float(validation.min()) if len(validation) else None,
        float(measures.max()) if len(measures) else None,
        best,
        float(np.median(speeds)) if len(speeds) else None,
    )
