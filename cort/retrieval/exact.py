"""Exact search by inner product: a fast first pass in single precision, then the few that matter in double precision.

The first pass multiplies and keeps every passage that can be among the best, with a margin for its rounding errors.
Selecting the best of many scores takes longer than computing them, so scores are looked at in groups: the best `depth`
lie in groups whose largest score is among the `depth` largest of all groups. What is left is scored again in double
precision, each pair by itself and on the CPU, and rounded to single precision. The result therefore depends neither on
how the passages are divided into shards, nor on block sizes, threads or devices; ties go by document id.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from cort.formats.embeddings import Shard, from_batch
from cort.formats.records import Ranking
from cort.formats.vector_files import all_ids
from cort.retrieval.topk import FEW, Alphabet, Sieve
from cort.retrieval.vectors import Block, HeldVectors, MappedVectors, Rows, Vectors, as_tensor
from cort.system.errors import input_error

# Scores held at once, on each device: 128 MB.
SCORES_AT_ONCE = 1 << 25
# Numbers in a tensor on a GPU: small ones would take longer to start than to multiply.
NUMBERS_PER_TENSOR = 1 << 28
# All passages are read once per this many queries of a run.
QUERIES_AT_ONCE = 512
# Products of longer vectors could exceed single precision.
LONGEST = 1e18


class ExactIndex:
    """All passages: in main memory as far as it goes, else memory-mapped; on GPUs as well, if there are some.

    :param devices: torch devices; each ranks an equal part of the blocks.
    :param memory_mb: how much memory vectors may take; from there they are read faster than from a mapped file.
    :param one_by_one: hold them as is best for single queries on a CPU, twice as fast; batches take a third longer.
    """

    def __init__(
        self,
        passages: Sequence[Shard],
        devices: Sequence[str] = ("cpu",),
        threads: int = 1,
        memory_mb: int = 0,
        *,
        one_by_one: bool = False,
    ) -> None:
        # Other settings multiply with fewer bits than the margin allows for.
        torch.set_float32_matmul_precision("highest")
        self._order = Alphabet(all_ids(passages))
        fits = 4 * len(self._order) * passages[0].dimension <= memory_mb << 20
        by_dimension = fits and one_by_one and set(devices) == {"cpu"}
        self._stored: Sequence[MappedVectors | HeldVectors]
        if fits:
            self._stored = [HeldVectors(passages, by_dimension=by_dimension)]
        else:
            self._stored = [MappedVectors(shard) for shard in passages if len(shard.table)]
        self._first = np.cumsum([0, *(len(shard) for shard in self._stored)])
        self._threads, self._source = threads, ", ".join(str(shard.path) for shard in passages)
        self._parts = self._divide(devices, _Few(threads, by_dimension=by_dimension))

    def __len__(self) -> int:
        return len(self._order)

    def ids(self, places: Rows) -> list[str]:
        """Document ids by their alphabetical places."""
        return self._order.ids(places)

    def search(self, queries: Vectors, depth: int) -> list[tuple[Vectors, Rows]]:
        """Rank all passages for queries of shape (queries, dimension).

        :returns: for each query its first `depth` results by (-score, doc_id): scores, and places for `ids`.
        :raises InputError: vectors with numbers that are not finite.
        """
        if not len(self) or not len(queries):
            return [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in queries]
        asked = torch.from_numpy(np.ascontiguousarray(queries))
        if len(self._parts) == 1:
            parts = [self._parts[0].candidates(asked, depth)]
        else:
            with ThreadPoolExecutor(len(self._parts)) as pool:
                parts = list(pool.map(lambda part: part.candidates(asked, depth), self._parts))
        # Rows of passages per query; -1 fills rows up where there are fewer.
        found = np.concatenate([part.cpu().numpy() for part in parts], axis=1)  # (queries, candidates)
        rows = [some[some >= 0] for some in found]
        if self._threads == 1 or len(queries) == 1:
            return [self._rank(query, some, depth) for query, some in zip(queries, rows, strict=True)]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda query, some: self._rank(query, some, depth), queries, rows))

    def _rank(self, query: Vectors, rows: Rows, depth: int) -> tuple[Vectors, Rows]:
        """Score some rows in double precision, rounded to single precision, and order them.

        `vecdot` computes each pair alone, so that the order of its additions depends on nothing but the dimension.
        """
        rows = np.sort(rows)
        scores = np.empty(len(rows), dtype=np.float32)
        ends = np.searchsorted(rows, self._first)
        for shard, first, start, end in zip(self._stored, self._first[:-1], ends[:-1], ends[1:], strict=True):
            vectors = shard.vectors(rows[start:end] - first).astype(np.float64)
            scores[start:end] = np.vecdot(vectors, query.astype(np.float64))
        return self._order.best(scores, rows, depth)

    def _divide(self, devices: Sequence[str], few: _Few) -> list[_Part]:
        stored = zip(self._stored, self._first[:-1].tolist(), strict=True)
        blocks = [(first + at, vectors) for shard, first in stored for at, vectors in shard.blocks()]
        bounds = [len(blocks) * number // len(devices) for number in range(len(devices) + 1)]
        parts = [blocks[start:end] for start, end in itertools.pairwise(bounds)]
        return [_Part(part, device, few, self._source) for part, device in zip(parts, devices, strict=True) if part]


class _Part:
    """Blocks of passages, in order and without gaps, that one device ranks."""

    def __init__(self, blocks: Sequence[Block], device: str, few: _Few, source: str) -> None:
        self._device, self._source = device, source
        self._arrays = [vectors for _, vectors in blocks]
        self._few = few
        self._scores: Tensor | None = None
        self._blocks = [(first, as_tensor(vectors)) for first, vectors in blocks]
        if device != "cpu":
            self._blocks = list(_on_device(self._blocks, device))
        self._longest: dict[int, float] = {}

    def candidates(self, queries: Tensor, depth: int) -> Tensor:
        """Find all passages that may be among the first `depth` results of queries of shape (queries, e).

        :returns: their rows, and -1 where there are fewer; shape (queries, candidates).
        """
        queries = queries.to(self._device)
        norms = vector_norms(queries, "the queries' embeddings").T  # (1, queries)
        sieve = Sieve(len(queries), depth, self._device)
        for batch in _batches(self._blocks, SCORES_AT_ONCE // len(queries)):
            first = self._blocks[batch.start][0]
            count = sum(len(self._blocks[number][1]) for number in batch)
            size = sieve.group_size(count)
            scores = self._room(-(-count // size) * size, len(queries))
            scores[count:] = -math.inf
            self._multiply(queries, batch, scores)
            longest = max(self._longest[number] for number in batch)
            sieve.add(scores.view(size, -1, len(queries)), first, _margins(norms, longest, queries.shape[1]))
        return sieve.left()

    def _multiply(self, queries: Tensor, batch: range, scores: Tensor) -> None:
        """Write the products of some blocks with queries of shape (queries, e) to scores of shape (rows, queries)."""
        start = 0
        few = self._device == "cpu" and len(queries) <= FEW
        for number in batch:
            vectors = self._blocks[number][1]
            if number not in self._longest:
                self._longest[number] = float(vector_norms(vectors.to(self._device, torch.float32), self._source).max())
            if not few:
                part = scores[start : start + len(vectors)]  # (rows, queries)
                torch.mm(vectors.to(self._device, torch.float32), queries.T, out=part)
            start += len(vectors)
        if few:
            self._few.multiply(self._arrays[batch.start : batch.stop], queries.numpy(), scores.numpy())

    def _room(self, rows: int, queries: int) -> Tensor:
        """Return room for scores of shape (rows, queries), always the same: new memory is slow at first."""
        if self._scores is None or len(self._scores) < rows * queries:
            self._scores = torch.empty(rows * queries, device=self._device)
        return self._scores[: rows * queries].view(rows, queries)


class _Few:
    """Products of vectors with few queries, one query at a time."""

    def __init__(self, threads: int, *, by_dimension: bool) -> None:
        self._threads = threads
        self._product = np.matmul if by_dimension else np.vecdot
        self._libraries = ThreadpoolController()
        # Kept: to start threads for each query would take longer than to search a small collection.
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def multiply(self, blocks: Sequence[Vectors], queries: Vectors, scores: Vectors) -> None:
        """Write to scores of shape (rows of all blocks, queries), in threads that take block after block."""
        starts = [0, *itertools.accumulate(len(vectors) for vectors in blocks)]
        # One for all threads, so that none waits long for another.
        places = iter(range(len(blocks)))

        def work() -> None:
            for place in places:
                for column, query in enumerate(queries):
                    self._product(blocks[place], query, out=scores[starts[place] : starts[place + 1], column])

        # Threads of NumPy's library would spin for a while after each product, on the processors the next step needs.
        with self._libraries.limit(limits=1, user_api="blas"):
            helpers = [self._pool.submit(work) for _ in range(self._threads - 1)] if self._pool else []
            work()
            for done in helpers:
                done.result()


def _margins(norms: Tensor, longest: float, dimension: int) -> Tensor:
    """Twice the largest error of a score, so that both sides of a comparison may err; shape (1, queries).

    In single precision an inner product of e terms errs by less than e u |q| |p| / (1 - e u) with u = 2^-24, in
    whatever order it is summed; 8 more and 1 % cover the rounding of exact scores and of the norms.
    """
    unit: float = 2.0**-24
    margins: Tensor = 2 * 1.01 * (dimension + 8) * unit * longest * norms
    return margins


def vector_norms(vectors: Tensor, source: str) -> Tensor:
    """Return the lengths of vectors, (rows, 1); refuse such as are not finite, or too long."""
    norms: Tensor = vectors.norm(dim=1, keepdim=True)
    if not bool((norms < LONGEST).all()):
        found = "a vector with numbers that are not finite"
        raise input_error(source, found, f"finite numbers, length below {LONGEST:g}", "train or encode again")
    return norms


def _on_device(blocks: Sequence[tuple[int, Tensor]], device: str) -> Iterator[tuple[int, Tensor]]:
    """Join blocks to large ones, and keep these on the device if they take half of its free memory at most."""
    numbers = sum(vectors.numel() for _, vectors in blocks)
    keep = 2 * 4 * numbers <= torch.cuda.mem_get_info(device)[0]
    for batch in _batches(blocks, NUMBERS_PER_TENSOR // blocks[0][1].shape[1]):
        joined = torch.cat([blocks[number][1] for number in batch])
        yield blocks[batch.start][0], joined.to(device, torch.float32) if keep else joined


def _batches(blocks: Sequence[tuple[int, Tensor]], rows: int) -> Iterator[range]:
    """Divide blocks into batches of at most so many rows, or of one block; numbers of the blocks of each."""
    start = count = 0
    for number, (_, vectors) in enumerate(blocks):
        if number > start and count + len(vectors) > rows:
            yield range(start, number)
            start, count = number, 0
        count += len(vectors)
    yield range(start, len(blocks))


def retrieve(index: ExactIndex, queries: Sequence[Shard], depth: int) -> Iterator[Ranking]:
    """Rank all passages for each query by inner product; yield the first `depth`, in the order of the queries.

    :raises InputError: for vectors with numbers that are not finite.
    """
    for shard in queries:
        for batch in shard.table.to_batches(QUERIES_AT_ONCE):
            query_ids, vectors = from_batch(batch)
            if not np.isfinite(vectors).all():
                raise input_error(shard.path, "a vector with numbers that are not finite", "numbers", "encode again")
            found = index.search(np.asarray(vectors, dtype=np.float32), depth)
            for query_id, (scores, places) in zip(query_ids.to_pylist(), found, strict=True):
                yield Ranking(query_id, index.ids(places), scores)
