"""The trainings in numbers, and which model of each was kept, against what."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from cort.reporting.inputs import MEASURE, Curve
from cort.reporting.labels import count, fixed, measure_label
from cort.reporting.panels import WINDOWS
from cort.training.outcome import LOSS, Selection


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


def selection_rows(found: dict[str, Selection], last: Container[str]) -> list[tuple[str, ...]]:
    """List training, what its best model is chosen by, the values of candidates, start and best, and what was kept.

    :param last: trainings whose last model is used, whichever is the best.
    """
    return [
        (
            name,
            "loss" if one.metric == LOSS else measure_label(one.metric),
            *(fixed(value, 4) for value in (one.unranked, one.start, one.best)),
            "the last model, as asked for (checkpoint: last)" if name in last else _kept(one),
        )
        for name, one in found.items()
    ]


def _kept(one: Selection) -> str:
    text = f"after update {count(one.best_step)}" if one.best_step else "as it started: no update was better"
    return text if one.better_than_unranked else f"{text}; no better than not re-ranking"
