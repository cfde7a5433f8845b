"""Exact search by late interaction: the passages whose tokens match the tokens of a query best (ColBERT's MaxSim).

There are two passes, as in `cort/retrieval/exact.py`. The first multiplies the tokens of a batch of queries with those
of a block of passages in single precision, and keeps every passage that may be among the top k, with a margin for
rounding errors. These candidates are rescored exactly on the CPU (`ExactScores`). The result therefore depends neither
on how the passages are divided into shards and blocks, nor on threads or devices. Ties are broken by doc_id.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cort.formats.records import Ranking
from cort.formats.shards import Half, TokenBlock, Tokens, TokenShard, all_ids
from cort.models.late_interaction import LOWEST, TokenVectors
from cort.retrieval.products import SMALLEST, UNIT_ROUNDOFF, vector_norms
from cort.retrieval.topk import GROUP, DocIds, Scores, Sieve
from cort.retrieval.vectors import Rows, Vectors, as_tensor
from cort.runtime.errors import input_error

Double = npt.NDArray[np.float64]

# Products held at once, by device; on a CPU they stay in its cache.
PRODUCTS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 27}
# Query tokens multiplied at once on a CPU.
TOKENS_AT_ONCE = 512
# Candidates whose tokens are copied and multiplied at once.
CANDIDATES_AT_ONCE = 256
# Bits kept of passages, below their largest number, and of queries, below their largest sum: 52 in all.
PASSAGE_BITS, QUERY_BITS = 24, 28
# All passages are read once per this many queries. It is part of the result, because padding changes the last bits.
QUERIES_AT_ONCE = 512


@dataclass(frozen=True)
class QueryVectors:
    """Vectors of the unmasked tokens of a query, (tokens, dimension), and their weights."""

    vectors: Vectors
    weights: Vectors


def by_query(tokens: TokenVectors) -> list[QueryVectors]:
    """Split token vectors by query."""
    ends = np.cumsum(tokens.counts)[:-1]
    parts = zip(np.split(tokens.vectors, ends), np.split(tokens.weights, ends), strict=True)
    return [QueryVectors(np.ascontiguousarray(vectors), np.ascontiguousarray(weights)) for vectors, weights in parts]


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

    def scores(self, passages: Sequence[Half]) -> Double:
        """Score passages by the vectors of their tokens."""
        counts = np.array([len(vectors) for vectors in passages])
        scores = np.full(len(passages), self._lowest)
        if not counts.any() or not len(self._weights):
            return scores
        vectors = np.concatenate(passages).astype(np.float64)
        if self._exponent > 0:
            vectors = _round(vectors, self._exponent - PASSAGE_BITS)
        products = vectors @ self._vectors.T  # (tokens, tokens of the query), exact
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


class TokenIndex:
    """All passages, memory-mapped.

    :param similarity: cosine or dot.
    :param device: of the first pass.
    """

    def __init__(self, passages: Sequence[TokenShard], similarity: str, device: str = "cpu") -> None:
        # Lower precisions exceed the margin for rounding errors.
        torch.set_float32_matmul_precision("highest")
        self._doc_ids = DocIds(all_ids(passages))
        self._similarity, self._device = similarity, device
        self._blocks: list[_Block] = []
        first = 0
        for shard in passages:
            for block in shard.blocks():
                self._blocks.append(_Block(first, block, str(shard.path)))
                first += len(block)
        self._first = np.array([block.first for block in self._blocks])

    def __len__(self) -> int:
        return len(self._doc_ids)

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""
        return self._doc_ids.of(rows)

    @cached_property
    def _empty(self) -> Rows:
        """Rows of passages without tokens, which no index of token vectors can find."""
        counts = [np.diff(block.tokens.offsets) for block in self._blocks]
        return np.flatnonzero(np.concatenate([np.zeros(0, np.int64), *counts]) == 0)

    def search(self, queries: Sequence[QueryVectors], depth: int) -> list[tuple[Vectors, Rows]]:
        """Rank all passages for queries.

        :returns: for each query its top `depth` by (-score, doc_id): scores and rows.
        :raises InputError: for passages with NaN or infinite values.
        """
        if not len(self) or not queries:
            return [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in queries]
        candidates = self._candidates(_Batch(queries, self._device, self._similarity), depth)
        results = zip(queries, candidates, strict=True)
        return [self._rank(query, rows[rows >= 0], depth) for query, rows in results]

    def best_of(self, query: QueryVectors, rows: Rows, depth: int) -> tuple[Vectors, Rows]:
        """Rank the passages in these rows, and those without tokens, with the scores that `search` gives them."""
        rows = np.union1d(rows, self._empty)
        if len(rows) > depth:
            rows = self._filtered(_Batch([query], "cpu", self._similarity), rows, depth)
        return self._rank(query, rows, depth)

    @cached_property
    def extent(self) -> Extent:
        """The extent of all vectors, so that rounding is the same for all passages; reads all vectors once.

        :raises InputError: for NaN or infinite values.
        """
        return widest(measure(block.tokens, block.source, self._device) for block in self._blocks)

    def _candidates(self, batch: _Batch, depth: int) -> Rows:
        """Find the rows of all passages that may be among the top `depth`, padded with -1; (queries, candidates)."""
        margins, units = batch.margins(self.extent.longest), torch.ones(1, batch.count, device=self._device)
        sieve = Sieve(-math.inf * units, margins, min(depth, len(self)))
        for block in self._blocks:
            scores = torch.full((-(-len(block.tokens) // GROUP) * GROUP, batch.count), -math.inf, device=self._device)
            block.score(batch, scores)
            sieve.add(Scores(block.first, scores.view(GROUP, -1, batch.count), units))
        rows: Rows = sieve.left()[0].cpu().numpy()
        return rows

    def _filtered(self, batch: _Batch, rows: Rows, depth: int) -> Rows:
        """Drop those of the ordered rows that cannot be among the top `depth`, as the first pass does."""
        scores = torch.empty(len(rows))
        for start in range(0, len(rows), CANDIDATES_AT_ONCE):
            part = slice(start, start + CANDIDATES_AT_ONCE)
            scores[part] = _scores_of_ragged(batch, self._vectors_of(rows[part]))
        reached = scores.topk(depth, sorted=False).values.amin()
        kept: Rows = rows[(scores >= reached - batch.margins(self.extent.longest)[0, 0]).numpy()]
        return kept

    def _vectors_of(self, rows: Rows) -> list[Half]:
        """Return the token vectors of each passage in these rows."""
        blocks = [self._blocks[number] for number in np.searchsorted(self._first, rows, side="right") - 1]
        return [block.tokens.of(row - block.first) for row, block in zip(rows.tolist(), blocks, strict=True)]

    def _rank(self, query: QueryVectors, rows: Rows, depth: int) -> tuple[Vectors, Rows]:
        """Score these rows exactly, round to single precision, and order them."""
        rows = np.sort(rows)
        exact = ExactScores(query, self.extent.greatest, self._similarity)
        scores = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), CANDIDATES_AT_ONCE):
            part = slice(start, start + CANDIDATES_AT_ONCE)
            scores[part] = exact.scores(self._vectors_of(rows[part]))
        return self._doc_ids.best(scores, rows, depth)


class _Batch:
    """Tokens of queries, one query after another, in parts that are multiplied at once."""

    def __init__(self, queries: Sequence[QueryVectors], device: str, similarity: str) -> None:
        self.count, self._device = len(queries), device
        self._most = max(len(query.weights) for query in queries)
        self._dimension = queries[0].vectors.shape[1]
        norms = [np.linalg.norm(query.vectors.astype(np.float64), axis=1) for query in queries]
        weighted = list(zip(norms, [query.weights for query in queries], strict=True))
        # Sums, per query, of the weights and of the weighted lengths; shape (2, queries).
        self._sums = np.array([[(abs(w) * n**power).sum() for n, w in weighted] for power in range(2)])
        #: scores of passages without tokens; shape (queries,)
        self.lowest = self._tensor(LOWEST[similarity] * np.array([query.weights.sum() for query in queries]))
        self.parts = list(self._parts(queries))

    def _parts(self, queries: Sequence[QueryVectors]) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield a slice of the queries, vectors of their tokens, (e, tokens), and their weights, (tokens, queries)."""
        ends = np.cumsum([len(query.weights) for query in queries])
        cuts = np.flatnonzero(np.diff(ends // TOKENS_AT_ONCE)) + 1
        for start, end in itertools.pairwise([0, *(cuts.tolist() if self._device == "cpu" else ()), self.count]):
            part = queries[start:end]
            vectors = torch.from_numpy(np.concatenate([query.vectors for query in part])).to(self._device)
            weights = torch.block_diag(*(torch.from_numpy(query.weights)[:, None] for query in part))  # type: ignore[no-untyped-call]
            yield slice(start, end), vectors.T.contiguous(), weights.to(self._device)

    def products(self, vectors: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Multiply passage vectors, (rows, e); yield queries, products, (rows, tokens), and weights of each part."""
        for queries, tokens, weights in self.parts:
            yield queries, vectors @ tokens, weights

    def margins(self, longest: float) -> Tensor:
        """Twice the largest error of a score, as both sides of a comparison may err; shape (1, queries).

        Errors of products are bounded as in `products.bound_errors`; m weighted ones are summed, and the exact pass
        rounds query and passage by less than e + 8 of the same units in all.

        :param longest: the length of the longest passage vector.
        """
        weights, lengths = self._sums
        errors = UNIT_ROUNDOFF * longest * lengths + SMALLEST * (weights + 1)
        return self._tensor(2 * 1.01 * (2 * self._dimension + self._most + 16) * errors)[None]

    def _tensor(self, numbers: Double) -> Tensor:
        return torch.from_numpy(numbers.astype(np.float32)).to(self._device)


class Extent(NamedTuple):
    """The length of the longest vector, and the largest absolute number in any vector."""

    longest: float
    greatest: float


def measure(tokens: TokenBlock, source: str, device: str) -> Extent:
    """Measure the vectors of a block; refuse NaN and infinite values."""
    vectors = as_tensor(tokens.vectors).to(device).float()
    if not len(vectors):
        return Extent(0.0, 0.0)
    return Extent(float(vector_norms(vectors, source).max()), float(vectors.abs().max()))


def widest(extents: Iterable[Extent]) -> Extent:
    """Combine the extents of all blocks."""
    return Extent(*map(max, zip(*extents, strict=True)))


class _Block(NamedTuple):
    """A block of passages: its first row, its token vectors and its file."""

    first: int
    tokens: TokenBlock
    source: str

    def score(self, batch: _Batch, scores: Tensor) -> None:
        """Write the scores of all passages for all queries to scores of shape (passages or more, queries)."""
        device, counts = scores.device, np.diff(self.tokens.offsets)
        stored = as_tensor(self.tokens.vectors).to(device)
        most = max(1, *(len(weights) for _, _, weights in batch.parts))
        for places in _by_count(counts, PRODUCTS_AT_ONCE[device.type] // most):
            count, where = int(counts[places[0]]), torch.from_numpy(places).to(device)
            if not count:
                scores[where] = batch.lowest
                continue
            tokens = self.tokens.offsets[places][:, None] + np.arange(count)  # (passages, count)
            vectors = stored[torch.from_numpy(tokens.reshape(-1)).to(device)].float()  # (passages * count, e)
            scores[where] = _sums_of_best(batch, vectors, count)


def _sums_of_best(batch: _Batch, vectors: Tensor, count: int) -> Tensor:
    """Score passages of `count` tokens each, whose vectors are (passages * count, e); shape (passages, queries)."""
    scores = torch.empty(len(vectors) // count, batch.count, device=vectors.device)
    for queries, products, weights in batch.products(vectors):
        best = products.view(-1, count, len(weights)).amax(1)  # (passages, tokens of queries)
        scores[:, queries] = best @ weights
    return scores


def _scores_of_ragged(batch: _Batch, passages: Sequence[Half]) -> Tensor:
    """Score passages with different numbers of tokens for one query; shape (passages,)."""
    counts = torch.tensor([len(vectors) for vectors in passages])
    ((_, products, weights),) = batch.products(as_tensor(np.concatenate(passages)).float())
    scores: Tensor = (torch.segment_reduce(products, "max", lengths=counts, axis=0) @ weights)[:, 0]
    return scores.where(counts > 0, batch.lowest)


def _by_count(counts: Rows, tokens: int) -> Iterator[Rows]:
    """Group passages with equal numbers of tokens into batches of at most `tokens` tokens, or of one passage."""
    order = np.argsort(counts, kind="stable")
    edges = np.flatnonzero(np.diff(counts[order])) + 1
    for equal in np.split(order, edges):
        size = max(tokens // max(int(counts[equal[0]]), 1), 1)
        yield from (equal[start : start + size] for start in range(0, len(equal), size))


Encode = Callable[[Rows], TokenVectors]


class Search(Protocol):
    """A `TokenIndex`, or an index that finds candidates for one."""

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""

    def search(self, queries: Sequence[QueryVectors], depth: int) -> list[tuple[Vectors, Rows]]:
        """Rank passages; return the top `depth` scores and rows of each query."""


def encoded(encode: Encode, queries: Tokens, rows: Rows) -> Iterator[tuple[Rows, list[QueryVectors]]]:
    """Encode the queries in these rows in batches; yield rows and vectors of each batch.

    :param encode: encodes the queries in some rows.
    :raises InputError: for NaN or infinite values.
    """
    for start in range(0, len(rows), QUERIES_AT_ONCE):
        batch = rows[start : start + QUERIES_AT_ONCE]
        tokens = encode(batch)
        if not (np.isfinite(tokens.vectors).all() and np.isfinite(tokens.weights).all()):
            raise input_error(queries.path, "a query with NaN or infinite values", "finite values", "train again")
        yield batch, by_query(tokens)


def retrieve(search: Search, encode: Encode, queries: Tokens, depth: int) -> Iterator[Ranking]:
    """Rank passages for each query; yield the top `depth`, in the order of the queries.

    :param encode: as in `encoded`.
    """
    ids = queries.ids.to_pylist()
    for rows, vectors in encoded(encode, queries, np.arange(len(ids))):
        for row, (scores, best) in zip(rows, search.search(vectors, depth), strict=True):
            yield Ranking(ids[row], search.ids(best), scores)
