"""What a training gained: the model that was chosen, and what it should be better than; no torch."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from cort.system.errors import input_error

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selection:
    """Which model of a training is the best: by `loss` or a measure, before training and at its best.

    `unranked` is the measure of a re-ranker's candidates as the first stage left them.
    """

    metric: str
    start: float
    best: float
    best_step: int
    unranked: float | None = None

    @property
    def better_than_unranked(self) -> bool:
        """Whether a re-ranker orders its candidates better than the first stage did; True where that is not known."""
        return self.unranked is None or self.best > self.unranked

    @property
    def complaint(self) -> str | None:
        """What the best model is no better than; None if it is better than its start and than not re-ranking."""
        if self.best_step == 0:
            return f"{self.start:.4f} before the first update"
        if not self.better_than_unranked:
            return f"{self.unranked:.4f} of the candidates as they came"
        return None


def report_gain(found: Selection, required: bool) -> None:
    """Log whether the training gained anything.

    :raises InputError: it did not, and a gain is `required`.
    """
    best = f"{found.metric} {found.best:.4f} after update {found.best_step}"
    if found.complaint is None:
        before = f"{found.start:.4f} before the first"
        log.info("best model: %s; %s", best, before)
    elif required:
        fix = "train it longer or otherwise, or set require_gain to false"
        raise input_error("require_gain", f"{best} as the best", f"better than {found.complaint}", fix)
    else:
        log.warning("best model: %s, no better than %s", best, found.complaint)
