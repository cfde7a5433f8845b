"""What the rankings of two systems have in common: all that can be compared without judgements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np


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


def overlaps(tops: Mapping[str, Sequence[Sequence[str]]]) -> tuple[list[Common], list[float]]:
    """Compare all pairs, and count what each system has alone, per query.

    :param tops: the top passages of each query, in the same order, by system.
    """
    pairs = []
    for first, second in combinations(tops, 2):
        both = [*zip(tops[first], tops[second], strict=True)]
        shares = [len({*one} & {*other}) / max(len(one), len(other), 1) for one, other in both]
        same_first = [one[:1] == other[:1] != [] for one, other in both]
        pairs.append(Common(first, second, float(np.mean(shares)), float(np.mean(same_first))))
    alone = []
    for system, lists in tops.items():
        others = [tops[other] for other in tops if other != system]
        own = ({*top}.difference(*(other[query] for other in others)) for query, top in enumerate(lists))
        alone.append(sum(map(len, own)) / len(lists))
    return pairs, alone
