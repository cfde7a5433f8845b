"""The first pass of exact search in single precision: products of all passages with a batch of queries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from cort.retrieval.topk import GROUP, FirstPass, Scores, sample_step
from cort.retrieval.vectors import Block, Vectors, as_tensor
from cort.runtime.errors import input_error

# Scores held at once on a CPU: 128 MB, or 8 MB, which fit in its caches, for scores that are read again soon.
SCORES_AT_ONCE, IN_CACHE = 1 << 25, 1 << 21
# The same on a GPU, 1 GB: selecting from them starts several kernels and waits for each.
SCORES_ON_GPU = 1 << 28
# Passages in a tensor on a GPU, so that it holds their scores for a run's queries.
ROWS_ON_GPU = 1 << 19
# Products of longer vectors could exceed single precision.
LONGEST = 1e18
UNIT_ROUNDOFF = 2.0**-24
# Smaller numbers, terms and sums alike, lose digits in single precision or underflow.
SMALLEST = 2.0**-125
# The source of queries, in messages.
QUERIES = "the queries' embeddings"


class Products:
    """Blocks of passages, in order and without gaps, on one device."""

    def __init__(self, blocks: Sequence[Block], device: str, single: Single, source: str) -> None:
        self._device, self._source = device, source
        self._arrays = [vectors for _, vectors in blocks]
        self._single = single
        self._memory: Tensor | None = None
        self._blocks = [(first, as_tensor(vectors)) for first, vectors in blocks]
        if device != "cpu":
            self._blocks = list(_on_device(self._blocks, device))
        self.count = sum(len(vectors) for vectors in self._arrays)

    @cached_property
    def _sample(self) -> Tensor:
        step = sample_step(self.count)
        return torch.cat([vectors[-first % step :: step].float() for first, vectors in self._blocks]).to(self._device)

    @cached_property
    def _longest(self) -> float:
        parts = (vectors.to(self._device, torch.float32) for _, vectors in self._blocks)
        return max(float(vector_norms(vectors, self._source).max()) for vectors in parts)

    def ask(self, queries: Tensor) -> FirstPass:
        """Multiply queries, (queries, e), with a sample of the passages; the result can multiply them with all."""
        queries = queries.to(self._device)
        products = vector_norms(queries, QUERIES) * self._longest  # (queries, 1)
        margins = 2 * bound_errors(products, queries.shape[1]).T
        return FirstPass(queries @ self._sample.T, margins, partial(self._scores, queries))

    def _scores(self, queries: Tensor) -> Iterator[Scores]:
        """Multiply with all passages; the memory of the scores is reused."""
        units = torch.ones(1, len(queries), device=self._device)
        single = self._device == "cpu" and len(queries) == 1
        on_cpu = SCORES_AT_ONCE if single else IN_CACHE
        at_once = on_cpu if self._device == "cpu" else SCORES_ON_GPU
        for batch in _batches(self._blocks, at_once // len(queries)):
            count = sum(len(self._blocks[number][1]) for number in batch)
            scores = self._buffer(-(-count // GROUP) * GROUP, len(queries))
            scores[count:] = -math.inf
            if single:
                arrays = self._arrays[batch.start : batch.stop]
                self._single.multiply(arrays, queries[0].numpy(), scores[:, 0].numpy())
            else:
                self._multiply(queries, batch, scores)
            yield Scores(self._blocks[batch.start][0], scores.view(GROUP, -1, len(queries)), units)

    def _multiply(self, queries: Tensor, batch: range, scores: Tensor) -> None:
        """Write the products of a batch of blocks with queries, (queries, e), to scores of shape (rows, queries)."""
        start = 0
        for number in batch:
            vectors = self._blocks[number][1]
            here = scores[start : start + len(vectors)]  # (rows, queries)
            torch.mm(vectors.to(self._device, torch.float32), queries.T, out=here)
            start += len(vectors)

    def _buffer(self, rows: int, queries: int) -> Tensor:
        """Return a tensor of shape (rows, queries), always in the same memory, as new memory is slow at first."""
        if self._memory is None or len(self._memory) < rows * queries:
            self._memory = torch.empty(rows * queries, device=self._device)
        return self._memory[: rows * queries].view(rows, queries)


class Single:
    """Products of vectors with a single query: a processor waits for memory, and multiplies each vector alone."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        # Kept open: starting threads for each query would take longer than searching a small collection.
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def multiply(self, blocks: Sequence[Vectors], query: Vectors, scores: Vectors) -> None:
        """Write to scores of shape (rows of all blocks,); each thread takes one block after another."""
        starts = [0, *itertools.accumulate(len(vectors) for vectors in blocks)]
        # The threads share one iterator, so that none waits long for another.
        places = iter(range(len(blocks)))

        def work() -> None:
            for place in places:
                np.vecdot(blocks[place], query, out=scores[starts[place] : starts[place + 1]])

        helpers = [self._pool.submit(work) for _ in range(self._threads - 1)] if self._pool else []
        work()
        for helper in helpers:
            helper.result()


def bound_errors(products: Tensor, dimension: int) -> Tensor:
    """Bound the errors of inner products in single precision by the products of the vectors' lengths.

    With e terms they are below e u / (1 - e u) of these, u = 2^-24, in any order of summation; 8 more terms and 1 %
    cover the rounding of exact scores and of the lengths. Underflow is added.
    """
    return 1.01 * (dimension + 8) * (products * UNIT_ROUNDOFF + SMALLEST)


def norms_of(vectors: Tensor) -> Tensor:
    """Return the lengths of vectors, (rows, 1), rounded up where their squares underflow in single precision."""
    norms: Tensor = vectors.norm(dim=1, keepdim=True) + math.sqrt(vectors.shape[1] * SMALLEST)
    return norms


def vector_norms(vectors: Tensor, source: str) -> Tensor:
    """Return the lengths of vectors, (rows, 1); refuse NaN, infinite and very large values."""
    norms = norms_of(vectors)
    if not bool((norms < LONGEST).all()):
        found = "a vector with NaN, infinite or very large values"
        raise input_error(source, found, f"a length below {LONGEST:g}", "train or encode again")
    return norms


def _on_device(blocks: Sequence[tuple[int, Tensor]], device: str) -> Iterator[tuple[int, Tensor]]:
    """Join blocks into larger ones, and move these to the device if they take at most half of its free memory."""
    numbers = sum(vectors.numel() for _, vectors in blocks)
    keep = 2 * 4 * numbers <= torch.cuda.mem_get_info(device)[0]
    for batch in _batches(blocks, ROWS_ON_GPU):
        joined = torch.cat([blocks[number][1] for number in batch])
        yield blocks[batch.start][0], joined.to(device, torch.float32) if keep else joined


def _batches(blocks: Sequence[tuple[int, Tensor]], rows: int) -> Iterator[range]:
    """Divide blocks into batches of at most `rows` rows, or of one block; yield the range of blocks of each."""
    start = count = 0
    for number, (_, vectors) in enumerate(blocks):
        if number > start and count + len(vectors) > rows:
            yield range(start, number)
            start, count = number, 0
        count += len(vectors)
    yield range(start, len(blocks))
