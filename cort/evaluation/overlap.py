"""What the rankings of two systems have in common: all that can be compared without judgements."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

#: how little lower ranks count in rank-biased overlap: with 0.9, the first 10 are 86 % of it
P = 0.9


@dataclass(frozen=True)
class Common:
    """Two systems: mean share of top passages that both return, and share of queries with the same first passage.

    The former is relative to the longer list, and 0 if both are empty. `rbo` is the mean rank-biased overlap.
    """

    first: str
    second: str
    overlap: float
    same_first: float
    rbo: float


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
        short, long = np.sort(counts[:, [a, b]], axis=1).T
        values = same.sum(axis=(1, 2)) / np.maximum(long, 1), same[:, :1, :1].any(axis=(1, 2))
        means = [float(value.mean()) for value in (*values, rank_biased_overlap(same, short, long))]
        pairs.append(Common(systems[a], systems[b], *means))
    return pairs, ((known & ~shared).sum(axis=(0, 2)) / len(top)).tolist()


def rank_biased_overlap(
    same: npt.NDArray[np.bool_], short: npt.NDArray[np.int64], long: npt.NDArray[np.int64], p: float = P
) -> npt.NDArray[np.float64]:
    """Compute RBO_EXT (Webber et al., 2010, equation 32) of two lists per query; 0 if one of them is empty.

    :param same: whether a rank of one list and a rank of the other have the same passage, (queries, ranks, ranks).
    :param short, long: lengths of the shorter and the longer list, (queries,).
    """
    depths, short, long = np.arange(1, same.shape[1] + 1), short[:, None], long[:, None]
    common = np.diagonal(same.cumsum(axis=1).cumsum(axis=2), axis1=1, axis2=2)
    # Below its end, the shorter list is taken to agree as much as above.
    ended = (common * (depths == short)).sum(axis=1, keepdims=True) / np.maximum(short, 1)
    agreement = (common + ended * np.maximum(depths - short, 0)) / depths
    weights = np.where(depths < long, (1 - p) * p ** (depths - 1), p ** (depths - 1) * (depths == long))
    values: npt.NDArray[np.float64] = (agreement * weights).sum(axis=1)
    return values
