"""The curve of a training: its rows, the CSV file, and TensorBoard's event files, to be watched while it grows."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

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


class CurvePoint(NamedTuple):
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
        csv.writer(handle, lineterminator="\n").writerows([CurvePoint._fields, *curve])


def open_events(folder: str, step: int) -> Any:
    """Open an event file beside those of earlier calls, of which what came after update `step` is void."""
    from tensorboardX import SummaryWriter  # type: ignore[import-not-found, import-untyped, unused-ignore]

    return SummaryWriter(logdir=folder, purge_step=step + 1, write_to_disk=True)


def write_event(events: Any, point: CurvePoint) -> None:
    """Add a row of the curve, at once on the disk."""
    for name, shown in NAMES.items():
        if (value := getattr(point, name)) is not None:
            events.add_scalar(shown, value, point.step)
    events.flush()
