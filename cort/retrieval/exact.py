"""Exact search by inner product: a fast first pass finds candidates, which are rescored in double precision.

The first pass uses single precision (`products`) or int8 codes (`codes`), and keeps every passage that may be among the
top k, with a margin for its errors. The score threshold is estimated from a sample and verified afterwards; scores are
compared in groups, because selecting takes longer than computing them. Candidates are rescored in double precision from
the stored vectors, each pair alone and on the CPU, and rounded to single precision. The result therefore depends
neither on the first pass, nor on how the passages are divided into shards, nor on block sizes, threads or devices. Ties
are broken by doc_id.
"""

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cort.formats.records import Ranking
from cort.formats.shards import Shard, all_ids, from_batch
from cort.retrieval import codes
from cort.retrieval.codes import Codes, blocks_to_encode, is_fast, is_right
from cort.retrieval.products import Products, Single
from cort.retrieval.topk import DocIds, Sieve, guess
from cort.retrieval.vectors import HeldVectors, MappedVectors, Rows, Vectors
from cort.runtime.errors import input_error

# All passages are read once per this many queries of a run.
QUERIES_AT_ONCE = 512


class StoredVectors:
    """The vectors of all passages, memory-mapped, and the exact scores of some."""

    def __init__(self, passages: Sequence[Shard]) -> None:
        self._doc_ids = DocIds(all_ids(passages))
        self._stored: Sequence[MappedVectors | HeldVectors]
        self._stored = [MappedVectors(shard) for shard in passages if len(shard.table)]
        self._first = np.cumsum([0, *map(len, self._stored)])

    def __len__(self) -> int:
        return len(self._doc_ids)

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""
        return self._doc_ids.of(rows)

    def best_of(self, query: Vectors, rows: Rows, depth: int) -> tuple[Vectors, Rows]:
        """Score these rows in double precision, round to single precision, and return the top `depth` as `search` does.

        `vecdot` computes each pair alone, so the order of its additions depends only on the dimension.
        """
        rows = np.sort(rows)
        scores = np.empty(len(rows), dtype=np.float32)
        ends = np.searchsorted(rows, self._first)
        for shard, first, start, end in zip(self._stored, self._first[:-1], ends[:-1], ends[1:], strict=True):
            vectors = shard.vectors(rows[start:end] - first).astype(np.float64)
            scores[start:end] = np.vecdot(vectors, query.astype(np.float64))
        return self._doc_ids.best(scores, rows, depth)


class ExactIndex(StoredVectors):
    """All passages: in main memory if they fit, otherwise memory-mapped, and on any GPUs among the devices.

    :param devices: torch devices; each ranks an equal part of the blocks.
    :param memory_mb: limit for vectors in main memory, which is faster to read than a mapped file.
    :param one_by_one: whether queries come one by one, and not in large batches.
    :param coded: use int8 codes in the first pass on CPUs, a quarter of the memory. Default: on CPUs that are fast with
        them, for single queries or if the vectors do not fit in memory. Large batches are slower with codes.
    :raises InputError: for `coded` on a GPU, or on a CPU that multiplies codes wrongly.
    """

    def __init__(
        self,
        passages: Sequence[Shard],
        devices: Sequence[str] = ("cpu",),
        threads: int = 1,
        memory_mb: int = 0,
        *,
        one_by_one: bool = False,
        coded: bool | None = None,
    ) -> None:
        # Lower precisions exceed the margin for rounding errors.
        torch.set_float32_matmul_precision("highest")
        super().__init__(passages)
        numbers = len(self._doc_ids) * passages[0].dimension
        on_cpu = set(devices) == {"cpu"}
        fits = 4 * numbers <= memory_mb << 20
        if coded is None and on_cpu:
            coded = is_fast() and (one_by_one if fits else numbers <= memory_mb << 20)
        elif coded and not (on_cpu and is_right()):
            found = f"int8 codes on {', '.join(devices)}"
            raise input_error("coded", found, "a CPU that multiplies them exactly", "leave the option out")
        if fits and not coded:
            self._stored = [HeldVectors(passages)]
            self._first = np.array([0, len(self)])
        self._threads, self._source = threads, ", ".join(str(shard.path) for shard in passages)
        self._at_once = codes.CODED_AT_ONCE if coded else QUERIES_AT_ONCE
        passes = self._encode(passages, devices) if coded else self._divide(devices, Single(threads))
        # A share of the passages for each device.
        self._shares: list[Products | Codes] = list(passes)

    def search(self, queries: Vectors, depth: int) -> list[tuple[Vectors, Rows]]:
        """Rank all passages for queries of shape (queries, dimension).

        :returns: for each query its top `depth` by (-score, doc_id): scores and rows.
        :raises InputError: for NaN or infinite values.
        """
        if not len(self) or not len(queries):
            return [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in queries]
        batches = torch.split(torch.from_numpy(np.ascontiguousarray(queries)), self._at_once)
        candidates = [rows for batch in batches for rows in self._candidates(batch, depth)]
        if self._threads == 1 or len(queries) == 1:
            return [self.best_of(query, rows, depth) for query, rows in zip(queries, candidates, strict=True)]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda query, rows: self.best_of(query, rows, depth), queries, candidates))

    def _candidates(self, queries: Tensor, depth: int) -> list[Rows]:
        """Find the rows of all passages that may be among the top `depth` of each query."""
        find = partial(_candidates, queries, depth)
        if len(self._shares) == 1:
            found = [find(self._shares[0])]
        else:
            with ThreadPoolExecutor(len(self._shares)) as pool:
                found = list(pool.map(find, self._shares))
        # Rows of passages per query, padded with -1.
        table = np.concatenate([rows.cpu().numpy() for rows in found], axis=1)  # (queries, candidates)
        return [rows[rows >= 0] for rows in table]

    def _divide(self, devices: Sequence[str], single: Single) -> Iterator[Products]:
        stored = zip(self._stored, self._first[:-1].tolist(), strict=True)
        blocks = [(first + at, vectors) for shard, first in stored for at, vectors in shard.blocks()]
        for start, end, device in _shares(len(blocks), devices):
            yield Products(blocks[start:end], device, single, self._source)

    def _encode(self, passages: Sequence[Shard], devices: Sequence[str]) -> Iterator[Codes]:
        blocks = blocks_to_encode(passages)
        for start, end, _ in _shares(-(-len(self) // codes.BLOCK), devices):
            count = min(end * codes.BLOCK, len(self)) - start * codes.BLOCK
            yield Codes(itertools.islice(blocks, end - start), count, self._source)


def _shares(blocks: int, devices: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Divide blocks evenly among devices; yield (first block, block after the last, device) where there are any."""
    bounds = [blocks * number // len(devices) for number in range(len(devices) + 1)]
    for (start, end), device in zip(itertools.pairwise(bounds), devices, strict=True):
        if start < end:
            yield start, end, device


def _candidates(queries: Tensor, depth: int, share: Products | Codes) -> Tensor:
    """Find all passages of one device that may be among the top `depth` of queries, (queries, e).

    :returns: their rows, padded with -1; shape (queries, candidates).
    """
    slack, depth = 1, min(depth, share.count)
    first = share.ask(queries)
    while True:
        sieve = Sieve(guess(first.sampled, share.count, depth, slack), first.margins, depth)
        for scores in first.scores():
            sieve.add(scores)
        rows, complete = sieve.left()
        if complete:
            return rows
        slack *= 4


class Search(Protocol):
    """An `ExactIndex`, or an index that finds candidates."""

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""

    def search(self, queries: Vectors, depth: int) -> list[tuple[Vectors, Rows]]:
        """Rank passages; return the top `depth` scores and rows of each query."""


def retrieve(index: Search, queries: Sequence[Shard], depth: int) -> Iterator[Ranking]:
    """Rank passages for each query by inner product; yield the top `depth`, in the order of the queries.

    :raises InputError: for NaN or infinite values.
    """
    for shard in queries:
        for batch in shard.table.to_batches(QUERIES_AT_ONCE):
            query_ids, vectors = from_batch(batch)
            if not np.isfinite(vectors).all():
                raise input_error(shard.path, "a vector with NaN or infinite values", "finite values", "encode again")
            results = index.search(np.asarray(vectors, dtype=np.float32), depth)
            for query_id, (scores, rows) in zip(query_ids.to_pylist(), results, strict=True):
                yield Ranking(query_id, index.ids(rows), scores)
