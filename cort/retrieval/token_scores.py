"""Exact scores of late interaction: a query's tokens against those of some passages, in double precision.

Sums of products are exact: numbers of queries and passages are rounded to so many bits that no sum has more than 53. So
a score is the same in whatever company, order and block passages are scored, and it is off by far less than the half
precision of what is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cort.models.late_interaction import LOWEST, TokenVectors

Vectors = npt.NDArray[np.float32]
Double = npt.NDArray[np.float64]

# Bits below the greatest number of passages, and below the greatest sum of a query's: 52 in all.
PASSAGE_BITS, QUERY_BITS = 24, 28


@dataclass(frozen=True)
class QueryVectors:
    """Vectors of the tokens of one query that count, (tokens, dimension), and their weights."""

    vectors: Vectors
    weights: Vectors


def by_query(found: TokenVectors) -> list[QueryVectors]:
    """Take the vectors of queries apart."""
    ends = np.cumsum(found.counts)[:-1]
    parts = zip(np.split(found.vectors, ends), np.split(found.weights, ends), strict=True)
    return [QueryVectors(np.ascontiguousarray(vectors), np.ascontiguousarray(weights)) for vectors, weights in parts]


class ExactScores:
    """Scores of one query in double precision, the same in whatever company passages are scored.

    :param greatest: number in any vector of all passages.
    """

    def __init__(self, query: QueryVectors, greatest: float, similarity: str) -> None:
        vectors = query.vectors.astype(np.float64)
        sums = float(np.abs(vectors).sum(1).max(initial=0))
        # Half precision has no number between two that are 2^-24 apart: those up to 1 need no rounding.
        self._exponent = math.frexp(greatest)[1]
        self._vectors = _round(vectors, math.frexp(sums)[1] - QUERY_BITS)
        self._weights, self._distance = query.weights.astype(np.float64), similarity == "l2"
        self._lowest = LOWEST[similarity] * self._weights.sum()

    def scores(self, passages: Sequence[npt.NDArray[np.float16]]) -> Double:
        """Score passages by the vectors of their tokens."""
        counts = np.array([len(one) for one in passages])
        scores = np.full(len(passages), self._lowest)
        if not counts.any() or not len(self._weights):
            return scores
        vectors = np.concatenate(passages).astype(np.float64)
        if self._exponent > 0:
            vectors = _round(vectors, self._exponent - PASSAGE_BITS)
        found = vectors @ self._vectors.T  # (tokens, tokens of the query), exact
        if self._distance:
            # Each vector's by itself, in an order that depends on the dimension alone.
            own, other = (np.vecdot(one, one) for one in (vectors, self._vectors))
            found = 2 * found - other - own[:, None]
        some = np.flatnonzero(counts)
        starts = np.cumsum(counts[some]) - counts[some]
        best = np.maximum.reduceat(found, starts, axis=0)  # (passages, tokens of the query)
        scores[some] = np.vecdot(best, self._weights)
        return scores


def _round(numbers: Double, exponent: int) -> Double:
    """Round to multiples of a power of 2."""
    step = math.ldexp(1.0, exponent)
    rounded: Double = np.rint(numbers / step) * step
    return rounded
