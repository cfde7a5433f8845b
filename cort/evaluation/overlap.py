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
    """All pairs of systems on the queries of a split, by their top `depth` passages.

    `alone` is the mean number of them that only one system has, by system.
    """

    split: str
    queries: int
    depth: int
    systems: list[str]
    pairs: list[Common]
    alone: list[float]


def overlaps(systems: list[str], top: npt.NDArray[np.int32], unknown: int) -> tuple[list[Common], list[float]]:
    """Compare all pairs, and count what each system has alone, per query.

    :param top: numbers of passages by query, system and rank; short lists are padded with `unknown`.
    """
    known = top != unknown
    counts, shared = known.sum(axis=2), np.zeros_like(known)
    pairs = []
    for a, b in combinations(range(len(systems)), 2):
        same = (top[:, a, :, None] == top[:, b, None, :]) & known[:, a, :, None]
        shared[:, a] |= same.any(axis=2)
        shared[:, b] |= same.any(axis=1)
        longest = np.maximum(counts[:, [a, b]].max(axis=1), 1)
        overlap, same_first = same.sum(axis=(1, 2)) / longest, same[:, :1, :1].any(axis=(1, 2))
        pairs.append(Common(systems[a], systems[b], float(overlap.mean()), float(same_first.mean())))
    return pairs, ((known & ~shared).sum(axis=(0, 2)) / len(top)).tolist()
