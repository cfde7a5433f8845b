"""The curve of a training: its rows, the CSV file, and TensorBoard's event files, to be watched while it grows."""

from __future__ import annotations

import csv
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

from cort.system.files import atomic_file

# TensorBoard's names of what it shows.
NAMES = {
    "loss": "loss/training",
    "validation_loss": "loss/validation",
    "validation_measure": "validation/measure",
    "learning_rate": "progress/learning_rate",
    "epoch": "progress/epoch",
    "examples_per_second": "progress/examples_per_second",
}


@dataclass(frozen=True)
class CurvePoint:
    """One row of the curve: `loss` is a mean since the row before, what is validated None between validations."""

    step: int
    epoch: float
    loss: float | None
    validation_loss: float | None
    validation_measure: float | None
    learning_rate: float
    examples_per_second: float | None


def write_curve(path: str | Path, curve: list[CurvePoint]) -> None:
    """Write the curve as CSV, absent values empty."""
    with atomic_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow([field.name for field in fields(CurvePoint)])
        writer.writerows(["" if value is None else value for value in astuple(point)] for point in curve)


class Events:
    """Event files in `folder`, which keeps those of earlier calls of the same training."""

    def __init__(self, folder: str | Path, step: int) -> None:
        """:param step: what earlier calls wrote after this update is void."""
        from tensorboardX import SummaryWriter  # type: ignore[import-not-found, import-untyped, unused-ignore]

        self._writer: Any = SummaryWriter(logdir=str(folder), purge_step=step + 1, write_to_disk=True)

    def add(self, point: CurvePoint) -> None:
        """Add a row of the curve, at once on the disk."""
        for name, value in asdict(point).items():
            if name in NAMES and value is not None:
                self._writer.add_scalar(NAMES[name], value, point.step)
        self._writer.flush()

    def close(self) -> None:
        """End the file."""
        self._writer.close()
