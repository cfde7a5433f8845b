"""Exact search by late interaction: the passages whose tokens match the tokens of a query best (ColBERT's MaxSim).

There are two passes, as in `cort/retrieval/exact.py`. The first multiplies the tokens of a batch of queries with those
of a block of passages in single precision, and keeps every passage that may be among the top k, with a margin for
rounding errors. These candidates are rescored exactly on the CPU (`ExactScores`). The result therefore depends neither
on how the passages are divided into shards and blocks, nor on threads or devices. Ties are broken by doc_id.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cort.formats.shards import Matrix
from cort.models.late_interaction import LOWEST
from cort.retrieval.rankings import Results, Rows, Vectors
from cort.retrieval.topk import SMALLEST, UNIT_ROUNDOFF, CandidateFilter, vector_norms
from cort.retrieval.vectors import MEASURED_AT_ONCE, PassageIndex, PassageVectors

Double = npt.NDArray[np.float64]

# Products held at once, by device; on a CPU they stay in its cache.
PRODUCTS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 27}
# Query tokens multiplied at once.
TOKENS_AT_ONCE = {"cpu": 512, "cuda": 1 << 14}
# Candidates whose tokens are copied and multiplied at once, exactly.
CANDIDATES_AT_ONCE = 256
# Bits kept of passages, below their largest number, and of queries, below their largest sum: 52 in all.
PASSAGE_BITS, QUERY_BITS = 24, 28
# Passages whose scores are compared at once: on a GPU more, so that many have equal numbers of tokens.
PASSAGES_AT_ONCE = {"cpu": 1_024, "cuda": 16_384}


@dataclass(frozen=True)
class QueryVectors:
    """Vectors of the unmasked tokens of a query, (tokens, dimension), and their weights."""

    vectors: Vectors
    weights: Vectors


class ExactScores:
    """Scores of one query in double precision.

    Sums of products are exact, because queries and passages are rounded to so few bits that no sum needs more than 53.
    A score is therefore the same in any order and block of passages, and its error is far below the half precision of
    the stored vectors.

    :param greatest: the largest absolute number in any passage vector.
    """

    def __init__(self, query: QueryVectors, greatest: float, similarity: str) -> None:
        vectors = query.vectors.astype(np.float64)
        sums = float(np.abs(vectors).sum(1).max(initial=0))
        # Half-precision numbers are multiples of 2^-24, so those up to 1 need no rounding.
        self._exponent = math.frexp(greatest)[1]
        self._vectors = _round(vectors, math.frexp(sums)[1] - QUERY_BITS)
        self._weights = query.weights.astype(np.float64)
        self._lowest = LOWEST[similarity] * self._weights.sum()

    def scores(self, vectors: Matrix, counts: Rows) -> Double:
        """Score passages by the vectors of their tokens, (tokens, dimension), of which each has so many."""
        scores = np.full(len(counts), self._lowest)
        if not len(vectors) or not len(self._weights):
            return scores
        exact = vectors.astype(np.float64)
        if self._exponent > 0:
            exact = _round(exact, self._exponent - PASSAGE_BITS)
        products = exact @ self._vectors.T  # (tokens, tokens of the query), exact
        filled = np.flatnonzero(counts)
        starts = np.cumsum(counts[filled]) - counts[filled]
        best = np.maximum.reduceat(products, starts, axis=0)  # (passages, tokens of the query)
        scores[filled] = np.vecdot(best, self._weights)
        return scores


def _round(numbers: Double, exponent: int) -> Double:
    """Round to multiples of a power of 2."""
    step = math.ldexp(1.0, exponent)
    rounded: Double = np.rint(numbers / step) * step
    return rounded


class TokenIndex(PassageIndex):
    """All passages.

    :ivar device: of the first pass.
    """

    def __init__(self, vectors: PassageVectors) -> None:
        # Lower precisions exceed the margin for rounding errors.
        torch.set_float32_matmul_precision("highest")
        super().__init__(vectors)
        self._similarity, self.device = vectors.origin.similarity, "cpu"

    @cached_property
    def _empty(self) -> Rows:
        """Rows of passages without tokens, which no index of token vectors can find."""
        return np.flatnonzero(np.diff(self.vectors.offsets) == 0)

    @cached_property
    def extent(self) -> Extent:
        """The extent of all vectors, so that rounding is the same for all passages; reads all vectors once.

        :raises InputError: for NaN or infinite values.
        """
        return extent_of(self.vectors, self.device)

    def search(self, queries: Sequence[QueryVectors], depth: int) -> list[Results]:
        """Rank all passages for queries.

        :returns: for each query its top `depth` by (-score, doc_id): scores and rows.
        :raises InputError: for passages with NaN or infinite values.
        """
        if not len(self) or not queries:
            return [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in queries]
        longest = max(1, *(len(query.weights) for query in queries))
        size = max(TOKENS_AT_ONCE[torch.device(self.device).type] // longest, 1)
        return [
            best
            for start in range(0, len(queries), size)
            for best in self._search(queries[start : start + size], depth)
        ]

    def _search(self, queries: Sequence[QueryVectors], depth: int) -> list[Results]:
        batch = _Batch(queries, self.device, self._similarity)
        margins = batch.margins(self.extent.longest)
        passed = CandidateFilter(torch.full_like(margins, -math.inf), margins, min(depth, len(self)))
        at_once = PASSAGES_AT_ONCE[margins.device.type]
        for first in range(0, len(self), at_once):
            passed.add(first, self._scores(batch, np.arange(first, min(first + at_once, len(self)))))
        # Rows of candidates per query, padded with -1.
        candidates = passed.rows()[0].cpu().numpy()
        return [self._rank(query, rows[rows >= 0], depth) for query, rows in zip(queries, candidates, strict=True)]

    def best_of(self, query: QueryVectors, rows: Rows, depth: int) -> Results:
        """Rank the passages in these rows, and those without tokens, with the scores that `search` gives them."""
        rows = np.union1d(rows, self._empty)
        if len(rows) > depth:
            batch = _Batch([query], "cpu", self._similarity)
            scores = self._scores(batch, rows)[:, 0]
            reached = scores.topk(depth, sorted=False).values.amin()
            rows = rows[(scores >= reached - batch.margins(self.extent.longest)[0, 0]).numpy()]
        return self._rank(query, rows, depth)

    def _scores(self, batch: _Batch, rows: Rows) -> Tensor:
        """Score the passages in these rows in single precision; shape (rows, queries)."""
        scores = torch.empty(len(rows), batch.count, device=batch.lowest.device)
        counts = self.vectors.counts(rows)
        order = np.argsort(counts, kind="stable")
        # Passages with equal numbers of tokens, whose products are held at once.
        groups = np.cumsum(counts[order]) // max(PRODUCTS_AT_ONCE[scores.device.type] // batch.tokens, 1)
        for some in np.split(order, np.flatnonzero(np.diff(counts[order]) | np.diff(groups)) + 1):
            vectors, _ = self.vectors.ragged(rows[some])
            scores[torch.from_numpy(some).to(scores.device)] = batch.scores(vectors, len(some))
        return scores

    def _rank(self, query: QueryVectors, rows: Rows, depth: int) -> Results:
        """Score these rows exactly, round to single precision, and order them."""
        rows = np.sort(rows)
        exact = ExactScores(query, self.extent.greatest, self._similarity)
        scores = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), CANDIDATES_AT_ONCE):
            some = slice(start, start + CANDIDATES_AT_ONCE)
            scores[some] = exact.scores(*self.vectors.ragged(rows[some]))
        return self._doc_ids.best(scores, rows, depth)


class _Batch:
    """Queries, padded with tokens of weight 0 to equal numbers of them."""

    def __init__(self, queries: Sequence[QueryVectors], device: str, similarity: str) -> None:
        self.count, self._device = len(queries), device
        self._longest, self._dimension = max(1, *(len(one.weights) for one in queries)), queries[0].vectors.shape[1]
        #: tokens of all queries
        self.tokens = self.count * self._longest
        vectors = np.zeros((self.count, self._longest, self._dimension), np.float32)
        weights = np.zeros((self.count, self._longest))
        for row, query in enumerate(queries):
            vectors[row, : len(query.weights)], weights[row, : len(query.weights)] = query.vectors, query.weights
        norms = np.linalg.norm(vectors.astype(np.float64), axis=2)
        # Sums, per query, of the weights and of the weighted lengths; shape (2, queries).
        self._sums = np.stack([np.abs(weights).sum(1), (np.abs(weights) * norms).sum(1)])
        #: scores of passages without tokens; shape (queries,)
        self.lowest = self._tensor(LOWEST[similarity] * weights.sum(1))
        self._weights = self._tensor(weights)
        self._vectors = torch.from_numpy(vectors).to(device).view(self.tokens, -1).T.contiguous()  # (e, tokens)

    def scores(self, vectors: Matrix, count: int) -> Tensor:
        """Score `count` passages with equal numbers of tokens, whose vectors are (tokens, e): (count, queries)."""
        if not len(vectors):
            return self.lowest.expand(count, -1)
        products = torch.from_numpy(vectors).to(self._device).float() @ self._vectors
        best = products.view(count, -1, self.tokens).amax(1)  # (passages, tokens of queries)
        return (best.view(count, *self._weights.shape) * self._weights).sum(2)

    def margins(self, longest: float) -> Tensor:
        """Twice the largest error of a score, as both sides of a comparison may err; shape (1, queries).

        Errors of products are bounded as in `products.bound_errors`; m weighted ones are summed, and the exact pass
        rounds query and passage by less than e + 8 of the same units in all.

        :param longest: the length of the longest passage vector.
        """
        weights, lengths = self._sums
        errors = UNIT_ROUNDOFF * longest * lengths + SMALLEST * (weights + 1)
        return self._tensor(2 * 1.01 * (2 * self._dimension + self._longest + 16) * errors)[None]

    def _tensor(self, numbers: Double) -> Tensor:
        return torch.from_numpy(numbers.astype(np.float32)).to(self._device)


class Extent(NamedTuple):
    """The length of the longest vector, and the largest absolute number in any vector."""

    longest: float
    greatest: float


def extent_of(vectors: PassageVectors, device: str = "cpu") -> Extent:
    """Measure all vectors.

    :raises InputError: for NaN or infinite values.
    """
    longest = greatest = 0.0
    for block in vectors.copies(MEASURED_AT_ONCE):
        tensor = torch.from_numpy(block).to(device)
        longest = max(longest, float(vector_norms(tensor, vectors.source).max()))
        greatest = max(greatest, float(tensor.abs().max()))
    return Extent(longest, greatest)
