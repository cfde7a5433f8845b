"""Exact search by late interaction: of each query the passages whose tokens match its tokens best (ColBERT's MaxSim).

As in `cort/retrieval/exact.py` there are two passes. The first one multiplies all tokens of some queries with those of
a block of passages in single precision, and keeps every passage that can be among the best, with a margin for its
rounding errors. What is left is scored again on the CPU, exactly (`cort/retrieval/token_scores.py`). The result
therefore depends neither on how the passages are divided into shards and blocks, nor on threads or devices; ties go by
id.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cort.formats.token_embeddings import TokenBlock, TokenShard
from cort.formats.vector_files import all_ids
from cort.models.late_interaction import LOWEST
from cort.retrieval.products import SMALLEST, UNIT_ROUNDOFF, vector_norms
from cort.retrieval.token_scores import ExactScores, QueryVectors
from cort.retrieval.topk import GROUP, Alphabet, Scores, Sieve
from cort.retrieval.vectors import as_tensor

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Double = npt.NDArray[np.float64]

# Products held at once, by device: those of a CPU stay in its cache.
PRODUCTS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 27}
# Tokens of queries that are multiplied at once, on a CPU.
TOKENS_AT_ONCE = 512
# Candidates whose tokens are compared in double precision at once.
CANDIDATES_AT_ONCE = 256
# Passages of an index's candidates whose tokens are copied and multiplied at once.
SIFTED_AT_ONCE = 256


class TokenIndex:
    """All passages, memory-mapped.

    :param similarity: cosine or dot, or l2 for the negative squared distance.
    :param device: of the first pass.
    """

    def __init__(self, passages: Sequence[TokenShard], similarity: str, device: str = "cpu") -> None:
        # Other settings multiply with fewer bits than the margin allows for.
        torch.set_float32_matmul_precision("highest")
        self._order = Alphabet(all_ids(passages))
        self._similarity, self._device = similarity, device
        stored = [(block, shard) for shard in passages for block in shard.blocks()]
        first = [0, *itertools.accumulate(len(block) for block, _ in stored)]
        self._first = np.array(first)
        self._blocks = [
            _Block(block, number, str(shard.path)) for (block, shard), number in zip(stored, first, strict=False)
        ]

    def __len__(self) -> int:
        return len(self._order)

    def ids(self, places: Rows) -> list[str]:
        """Document ids by their alphabetical places."""
        return self._order.ids(places)

    @cached_property
    def empty(self) -> Rows:
        """Rows of the passages without tokens, which no index of tokens can find."""
        counts = [np.diff(block.offsets) for block in self._blocks]
        return np.flatnonzero(np.concatenate([np.zeros(0, np.int64), *counts]) == 0)

    def search(self, queries: Sequence[QueryVectors], depth: int) -> list[tuple[Vectors, Rows]]:
        """Rank all passages for some queries.

        :returns: for each query its first `depth` results by (-score, doc_id): scores, and places for `ids`.
        :raises InputError: passages with numbers that are not finite.
        """
        if not len(self) or not queries:
            return [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in queries]
        asked = _Asked(queries, self._device, self._similarity)
        found = self._candidates(asked, depth)
        return [
            self._rank(query, rows[rows >= 0], depth, self.extent) for query, rows in zip(queries, found, strict=True)
        ]

    def best_of(self, query: QueryVectors, rows: Rows, depth: int, extent: Extent) -> tuple[Vectors, Rows]:
        """Rank the passages of some rows for a query, as `search` ranks all: the same scores.

        :param extent: that of all vectors.
        """
        if len(rows) > depth:
            rows = self._sifted(_Asked([query], "cpu", self._similarity), np.sort(rows), depth, extent)
        return self._rank(query, rows, depth, extent)

    @cached_property
    def extent(self) -> Extent:
        """Read all vectors once: what rounding depends on must be the same for all passages.

        :raises InputError: one with numbers that are not finite.
        """
        found = [block.extent(self._device) for block in self._blocks]
        return Extent(max(one.longest for one in found), max(one.greatest for one in found))

    def _candidates(self, asked: _Asked, depth: int) -> Rows:
        """Find all passages that may be among the first `depth`: rows, and -1; shape (queries, candidates)."""
        margins, one = asked.margins(self.extent.longest), torch.ones(1, len(asked), device=self._device)
        sieve = Sieve(-math.inf * one, margins, min(depth, len(self)))
        for block in self._blocks:
            scores = torch.full((-(-len(block) // GROUP) * GROUP, len(asked)), -math.inf, device=self._device)
            block.score(asked, scores)
            sieve.add(Scores(block.first, scores.view(GROUP, -1, len(asked)), one))
        rows: Rows = sieve.left()[0].cpu().numpy()
        return rows

    def _sifted(self, asked: _Asked, rows: Rows, depth: int, extent: Extent) -> Rows:
        """Leave out of some rows, in order, those that cannot be among the first `depth`, as the first pass does."""
        scores = torch.empty(len(rows))
        for start in range(0, len(rows), SIFTED_AT_ONCE):
            part = slice(start, start + SIFTED_AT_ONCE)
            scores[part] = _scores_of_ragged(asked, self._vectors_of(rows[part]))
        reached = scores.topk(depth, sorted=False).values.amin()
        kept: Rows = rows[(scores >= reached - asked.margins(extent.longest)[0, 0]).numpy()]
        return kept

    def _vectors_of(self, rows: Rows) -> list[npt.NDArray[np.float16]]:
        """Vectors of the passages of some rows."""
        blocks = np.searchsorted(self._first, rows, side="right") - 1
        found = zip(rows.tolist(), blocks.tolist(), strict=True)
        return [self._blocks[number].of(row) for row, number in found]

    def _rank(self, query: QueryVectors, rows: Rows, depth: int, extent: Extent) -> tuple[Vectors, Rows]:
        """Score some rows exactly, rounded to single precision, and order them."""
        rows = np.sort(rows)
        exact = ExactScores(query, extent.greatest, self._similarity)
        scores = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), CANDIDATES_AT_ONCE):
            part = slice(start, start + CANDIDATES_AT_ONCE)
            scores[part] = exact.scores(self._vectors_of(rows[part]))
        return self._order.best(scores, rows, depth)


class _Asked:
    """Tokens of some queries, one after the other, in parts that are multiplied at once."""

    def __init__(self, queries: Sequence[QueryVectors], device: str, similarity: str) -> None:
        self.distance, self._count, self._device = similarity == "l2", len(queries), device
        self._most = max(len(query.weights) for query in queries)
        self._dimension = queries[0].vectors.shape[1]
        norms = [np.linalg.norm(query.vectors.astype(np.float64), axis=1) for query in queries]
        weighted = list(zip(norms, [query.weights for query in queries], strict=True))
        # Weighted sums, by query, of the 0th, 1st and 2nd power of the lengths; shape (3, queries).
        self._sums = np.array([[(abs(w) * n**power).sum() for n, w in weighted] for power in range(3)])
        #: scores of passages without tokens; shape (queries,)
        self.lowest = self._tensor(LOWEST[similarity] * np.array([query.weights.sum() for query in queries]))
        #: of each query what its distances have more than its inner products; shape (queries,)
        self.constants = self._tensor(np.array([(w * n**2).sum() for n, w in weighted]))
        self.parts = list(self._parts(queries, device))

    def __len__(self) -> int:
        return self._count

    def _parts(self, queries: Sequence[QueryVectors], device: str) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield queries, the vectors of their tokens (e, tokens), and the weights of these (tokens, queries)."""
        ends = np.cumsum([len(query.weights) for query in queries])
        cuts = np.flatnonzero(np.diff(ends // TOKENS_AT_ONCE)) + 1
        for start, end in itertools.pairwise([0, *(cuts.tolist() if device == "cpu" else ()), self._count]):
            some = queries[start:end]
            vectors = torch.from_numpy(np.concatenate([query.vectors for query in some])).to(device)
            counts = [len(query.weights) for query in some]
            weights = np.zeros((sum(counts), len(some)), dtype=np.float32)
            weights[np.arange(sum(counts)), np.repeat(np.arange(len(some)), counts)] = np.concatenate(
                [query.weights for query in some]
            )
            yield slice(start, end), vectors.T.contiguous(), torch.from_numpy(weights).to(device)

    def margins(self, longest: float) -> Tensor:
        """Twice the largest error of a score, so that both sides of a comparison may err; shape (1, queries).

        A product errs as in `products.bound_errors`; m weighted ones are summed, and the exact pass rounds the query's
        and the passage's numbers by less than e + 8 of the same units in all.

        :param longest: length of any vector of a passage.
        """
        zero, one, two = self._sums
        greatest = two + 2 * longest * one + longest**2 * zero if self.distance else longest * one
        errors = UNIT_ROUNDOFF * greatest + SMALLEST * (zero + 1)
        return self._tensor(2 * 1.01 * (2 * self._dimension + self._most + 16) * errors)[None]

    def _tensor(self, numbers: Double) -> Tensor:
        return torch.from_numpy(numbers.astype(np.float32)).to(self._device)


class Extent(NamedTuple):
    """The length of the longest of some vectors, and the greatest number in any."""

    longest: float
    greatest: float


class _Block:
    """Some passages."""

    def __init__(self, block: TokenBlock, first: int, source: str) -> None:
        self._block, self._source, self.first = block, source, first

    def __len__(self) -> int:
        return len(self._block)

    @property
    def offsets(self) -> Rows:
        """Where the tokens of each passage begin, and where the last ones end."""
        return self._block.offsets

    def of(self, row: int) -> npt.NDArray[np.float16]:
        """Vectors of the passage of a row of the collection."""
        return self._block.of(row - self.first)

    def score(self, asked: _Asked, scores: Tensor) -> None:
        """Write the scores of all passages for all queries to scores of shape (passages or more, queries)."""
        device, counts = scores.device, np.diff(self._block.offsets)
        stored = as_tensor(self._block.vectors).to(device)
        most = max(1, *(len(weights) for _, _, weights in asked.parts))
        for places in _by_count(counts, PRODUCTS_AT_ONCE[device.type] // most):
            count, where = int(counts[places[0]]), torch.from_numpy(places).to(device)
            if not count:
                scores[where] = asked.lowest
                continue
            tokens = self._block.offsets[places][:, None] + np.arange(count)  # (passages, count)
            vectors = stored[torch.from_numpy(tokens.reshape(-1)).to(device)].float()  # (passages * count, e)
            scores[where] = _sums_of_best(asked, vectors, count)

    def extent(self, device: str) -> Extent:
        """Measure the vectors.

        :raises InputError: one with numbers that are not finite.
        """
        vectors = as_tensor(self._block.vectors).to(device).float()
        if not len(vectors):
            return Extent(0.0, 0.0)
        return Extent(float(vector_norms(vectors, self._source).max()), float(vectors.abs().max()))


def _sums_of_best(asked: _Asked, vectors: Tensor, count: int) -> Tensor:
    """Score passages of `count` tokens each, whose vectors are (passages * count, e); shape (passages, queries)."""
    found = torch.empty(len(vectors) // count, len(asked), device=vectors.device)
    squares = -vectors.square().sum(1, keepdim=True) if asked.distance else None  # (passages * count, 1)
    for queries, tokens, weights in asked.parts:
        products = vectors @ tokens if squares is None else torch.addmm(squares, vectors, tokens, alpha=2)
        best = products.view(-1, count, len(weights)).amax(1)  # (passages, tokens of queries)
        found[:, queries] = best @ weights
    return found - asked.constants if asked.distance else found


def _scores_of_ragged(asked: _Asked, passages: Sequence[npt.NDArray[np.float16]]) -> Tensor:
    """Score passages of any numbers of tokens for one query; shape (passages,)."""
    counts = torch.tensor([len(one) for one in passages])
    vectors = as_tensor(np.concatenate(passages)).float()  # (tokens, e)
    ((_, tokens, weights),) = asked.parts
    squares = -vectors.square().sum(1, keepdim=True) if asked.distance else None  # (tokens, 1)
    products = vectors @ tokens if squares is None else torch.addmm(squares, vectors, tokens, alpha=2)
    scores = (torch.segment_reduce(products, "max", lengths=counts, axis=0) @ weights)[:, 0]
    scores = scores - asked.constants if asked.distance else scores
    return scores.where(counts > 0, asked.lowest)


def _by_count(counts: Rows, tokens: int) -> Iterator[Rows]:
    """Divide passages into batches with the same number of tokens each, of at most so many tokens or one passage."""
    order = np.argsort(counts, kind="stable")
    edges = np.flatnonzero(np.diff(counts[order])) + 1
    for some in np.split(order, edges):
        size = max(tokens // max(int(counts[some[0]]), 1), 1)
        yield from (some[start : start + size] for start in range(0, len(some), size))
