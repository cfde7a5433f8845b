"""Scores of different rankers on one scale. An entry in `NORMALIZATIONS` adds a way.

The workflow reads this module as well: it imports nothing that is slow to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Scores: TypeAlias = "npt.NDArray[np.float64]"
# The scores of one ranking on a scale, and what a document counts that the ranking has not.
Normalized: TypeAlias = "tuple[Scores, float]"


def min_max(scores: Scores) -> Normalized:
    """Move scores to 0 (the lowest) to 1 (the highest); where all are equal, all are the highest. Others count 0."""
    import numpy as np

    low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    return ((scores - low) / (high - low) if high > low else np.ones(len(scores))), 0.0


def z_score(scores: Scores) -> Normalized:
    """Move scores to mean 0 and standard deviation 1; equal ones are all 0. Others count as the lowest."""
    import numpy as np

    if not len(scores) or scores.max() == scores.min():
        return np.zeros(len(scores)), 0.0
    found = (scores - scores.mean()) / scores.std()
    return found, float(found.min())


NORMALIZATIONS: Mapping[str, Callable[[Scores], Normalized]] = {"min-max": min_max, "z-score": z_score}


def normalize(scores: npt.NDArray[np.floating], method: str) -> Normalized:
    """Put the scores of one ranking on the scale of a method of `NORMALIZATIONS`.

    They are taken in single precision, as run files have them, so that a search and a run agree.
    """
    import numpy as np

    return NORMALIZATIONS[method](np.asarray(scores, dtype=np.float32).astype(np.float64))


def weigh(parts: Sequence[Scores], weights: Sequence[float]) -> Scores:
    """Add up the normalised scores of the same documents by several rankers, each times its weight, in this order."""
    import numpy as np

    total = np.zeros(len(parts[0]))
    for weight, scores in zip(weights, parts, strict=True):
        total += weight * scores
    return total
