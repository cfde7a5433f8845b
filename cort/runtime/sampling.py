"""Random draws that depend on nothing but a seed and what is drawn from."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from _typeshed import SupportsRichComparisonT


def sample(items: Iterable[SupportsRichComparisonT], count: int, seed: int) -> list[SupportsRichComparisonT]:
    """Draw items, in random order; the order in which they are given does not matter."""
    return random.Random(seed).sample(sorted(items), count)  # noqa: S311 - a draw, not a secret


def sample_rows(total: int, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Draw distinct numbers below `total`, in ascending order; all if there are no more than `count`."""
    import numpy as np

    if count >= total:
        return np.arange(total)
    return np.sort(np.random.default_rng([seed]).choice(total, count, replace=False, shuffle=False))
