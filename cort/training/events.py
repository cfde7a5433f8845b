"""The curve of a training as TensorBoard's event files, beside the CSV file: to be watched while it runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from cort.training.state import CurvePoint

NAMES = {
    "loss": "loss/training",
    "validation_loss": "loss/validation",
    "validation_measure": "validation/measure",
    "learning_rate": "progress/learning_rate",
    "epoch": "progress/epoch",
    "examples_per_second": "progress/examples_per_second",
}


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
