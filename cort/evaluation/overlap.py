"""What the rankings of two systems have in common: all that can be said of queries without judgements."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Common:
    """Two systems: mean share of the first passages that are in both, and share of queries with the same first one.

    The share is of the longer list, and 0 where both are empty.
    """

    first: str
    second: str
    overlap: float
    same_first: float


@dataclass(frozen=True)
class Overlap:
    """All pairs of systems on the queries of a split, by their first `depth` passages."""

    split: str
    queries: int
    depth: int
    systems: list[str]
    pairs: list[Common]


def overlaps(systems: list[str], top: npt.NDArray[np.int32], unknown: int) -> list[Common]:
    """Compare all pairs.

    :param top: numbers of passages by query, system and rank, `unknown` behind the last of a list.
    """
    counts = (top != unknown).sum(axis=2)
    found = []
    for a, b in combinations(range(len(systems)), 2):
        one, other = top[:, a], top[:, b]
        both = ((one[:, :, None] == other[:, None, :]) & (one != unknown)[:, :, None]).sum(axis=(1, 2))
        shares = both / np.maximum(np.maximum(counts[:, a], counts[:, b]), 1)
        same = (one[:, :1] == other[:, :1]) & (one[:, :1] != unknown)
        found.append(Common(systems[a], systems[b], float(shares.mean()), float(same.any(axis=1).mean())))
    return found
