"""What the rankings of two systems have in common: all that can be compared without judgements."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Common:
    """Two systems: mean share of top passages that both return, and share of queries with the same first passage.

    The former is relative to the longer list, and 0 if both are empty.
    """

    first: str
    second: str
    overlap: float
    same_first: float


@dataclass(frozen=True)
class Overlap:
    """All pairs of systems on the queries of a split, by their top `depth` passages."""

    split: str
    queries: int
    depth: int
    systems: list[str]
    pairs: list[Common]


def overlaps(systems: list[str], top: npt.NDArray[np.int32], unknown: int) -> list[Common]:
    """Compare all pairs.

    :param top: numbers of passages by query, system and rank; short lists are padded with `unknown`.
    """
    counts = (top != unknown).sum(axis=2)
    pairs = []
    for a, b in combinations(range(len(systems)), 2):
        first, second = top[:, a], top[:, b]
        both = ((first[:, :, None] == second[:, None, :]) & (first != unknown)[:, :, None]).sum(axis=(1, 2))
        shares = both / np.maximum(np.maximum(counts[:, a], counts[:, b]), 1)
        same = (first[:, :1] == second[:, :1]) & (first[:, :1] != unknown)
        pairs.append(Common(systems[a], systems[b], float(shares.mean()), float(same.any(axis=1).mean())))
    return pairs
