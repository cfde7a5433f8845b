"""What a training reports: its curve, its best model, and whether training gained anything; imports no torch."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cort.formats.artifacts import csv_text
from cort.runtime.errors import input_error
from cort.runtime.files import write_text

log = logging.getLogger(__name__)

#: the value of `best_model_metric` that is not a measure
LOSS = "loss"


class CurvePoint(NamedTuple):
    """One row of the curve: `loss` is the mean since the previous row; only some rows have validation values.

    The row of step 0, before the first update, has neither loss nor speed.
    """

    step: int
    epoch: float
    loss: float | None
    validation_loss: float | None
    validation_measure: float | None
    learning_rate: float
    examples_per_second: float | None


def write_curve(path: str | Path, curve: list[CurvePoint]) -> None:
    """Write the curve as CSV, absent values empty."""
    write_text(path, csv_text(CurvePoint._fields, curve))


@dataclass(frozen=True)
class Selection:
    """How the best model was chosen: its value of `metric` (the loss or a measure), and the value before training.

    `unranked` is the measure of a re-ranker's candidates in the order of the first stage.
    """

    metric: str
    start: float
    best: float
    best_step: int
    unranked: float | None = None

    @property
    def better_than_unranked(self) -> bool:
        """Whether a re-ranker orders its candidates better than the first stage; True if that is unknown."""
        return self.unranked is None or self.best > self.unranked

    @property
    def complaint(self) -> str | None:
        """What the best model does not exceed: its start, or the first stage's order; None if it exceeds both."""
        if self.best_step == 0:
            return f"{self.start:.4f} before the first update"
        if not self.better_than_unranked:
            return f"{self.unranked:.4f} of the candidates in the order of the first stage"
        return None


def report_gain(selection: Selection, required: bool) -> None:
    """Log whether training gained anything.

    :raises InputError: it gained nothing although a gain is `required`.
    """
    best = f"{selection.metric} {selection.best:.4f} after update {selection.best_step}"
    if selection.complaint is None:
        log.info("best model: %s; %.4f before the first", best, selection.start)
    elif required:
        fix = "train longer or with other settings, or set require_gain to false"
        raise input_error("require_gain", f"{best} as the best", f"better than {selection.complaint}", fix)
    else:
        log.warning("best model: %s, no better than %s", best, selection.complaint)
