"""Impacts: weights of a sparse encoder's tokens as integers, which Lucene indexes and multiplies exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# A weight of 1 as an impact: that of Anserini's runs with SPLADE.
SCALE = 100
#: tokens of a query at most, as in Anserini's runs, where it is Lucene's limit
MOST_TERMS = 1024

Numbers = npt.NDArray[np.int32]


def impacts_of(weights: npt.NDArray[np.floating], most: int | None = None) -> tuple[Numbers, Numbers]:
    """Turn weights, (vocabulary,), into the ascending ids of the tokens with an impact, and their impacts.

    :param most: keep this many tokens with the greatest impacts, and of equal ones those with the lowest ids.
    """
    impacts = np.rint(weights * SCALE).astype(np.int32)
    tokens = np.flatnonzero(impacts > 0).astype(np.int32)
    if most is not None and len(tokens) > most:
        tokens = np.sort(tokens[np.argsort(-impacts[tokens], kind="stable")[:most]])
    return tokens, impacts[tokens]


def as_text(tokens: Sequence[int], impacts: Sequence[int]) -> str:
    """Repeat each token as often as its impact says, because Lucene weights the terms of a query by their counts."""
    return " ".join(" ".join([str(token)] * impact) for token, impact in zip(tokens, impacts, strict=True))
