"""Exact search by inner product: a fast first pass finds candidates, which are rescored in double precision.

The first pass uses single precision (`Products`), int8 codes (`codes`), or half precision on GPUs (`halves`), and keeps
every passage that may be among the top k, with a margin for its errors. The score threshold is estimated from a sample
and verified afterwards. Candidates are rescored in double precision from the stored vectors, each pair alone, and
rounded to single precision. The result therefore depends neither on the first pass, nor on how the passages are divided
into shards, nor on block sizes, threads or devices. Ties are broken by doc_id.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cort.retrieval import codes, halves
from cort.retrieval.codes import Codes, is_fast
from cort.retrieval.halves import Halves
from cort.retrieval.rankings import QUERIES_AT_ONCE, Results, Rows, Vectors, exact_scores
from cort.retrieval.topk import (
    QUERIES,
    CandidateFilter,
    FirstPass,
    as_tensor,
    bound_errors,
    estimate_threshold,
    longest_of,
    moved,
    sample_step,
    score_blocks,
    scores_at_once,
    vector_norms,
)
from cort.retrieval.vectors import PassageIndex, PassageVectors

# Passages that a thread multiplies with a single query at once; their scores fit in a core's L1 cache.
ROWS_OF_A_THREAD = 8_192
# Scores of a single query held at once on a CPU, 128 MB: it waits for the vectors, not for them.
SINGLE_AT_ONCE = 1 << 25

#: what finds candidates
First: TypeAlias = Literal["single", "codes", "halves"]
#: `map`, or that of a pool of threads
Map: TypeAlias = Callable[..., Iterable[Any]]


class StoredVectors(PassageIndex):
    """All passages, and the exact scores of some."""

    def best_of(self, query: Vectors, rows: Rows, depth: int, known: Vectors | None = None) -> Results:
        """Score these rows exactly, and return the top `depth` as `search` does.

        :param known: scores of the rows, NaN where unknown.
        """
        unknown = np.isnan(known) if known is not None else np.ones(len(rows), bool)
        others = np.sort(rows[unknown])
        scores = exact_scores(self.vectors[others], query)
        if known is not None:
            others, scores = np.concatenate([rows[~unknown], others]), np.concatenate([known[~unknown], scores])
        return self._doc_ids.best(scores, others, depth)


class ExactIndex(StoredVectors):
    """All passages: on any GPUs among the devices, in main memory if they fit, otherwise memory-mapped.

    :param devices: torch devices; each ranks an equal share of the passages.
    :param memory_mb: limit for vectors in main memory, which is faster to read than a mapped file.
    :param one_by_one: whether queries come one by one, and not in large batches.
    :param first: the first pass. Default: halves on GPUs that they fit; int8 codes, a quarter of the memory, on CPUs
        that are fast with them, for single queries or if the vectors do not fit in memory, as large batches are slower
        with codes; otherwise single precision.
    """

    def __init__(
        self,
        vectors: PassageVectors,
        devices: Sequence[str] = ("cpu",),
        threads: int = 1,
        memory_mb: int = 0,
        *,
        one_by_one: bool = False,
        first: First | None = None,
    ) -> None:
        # Lower precisions exceed the margin for rounding errors.
        torch.set_float32_matmul_precision("highest")
        super().__init__(vectors)
        numbers = len(self) * vectors.dimension
        on_cpu = set(devices) == {"cpu"}
        fits_memory = 4 * numbers <= memory_mb << 20
        if first is None and on_cpu:
            coded = is_fast() and (one_by_one if fits_memory else numbers <= memory_mb << 20)
            first = "codes" if coded else "single"
        if fits_memory and on_cpu and first == "single":
            self.vectors = vectors.held()
        # Kept open: starting threads for each query would take longer than searching a small collection.
        self._map: Map = ThreadPoolExecutor(threads).map if threads > 1 else map
        self._at_once = codes.CODED_AT_ONCE if first == "codes" else QUERIES_AT_ONCE
        bounds = [len(self) * number // len(devices) for number in range(len(devices) + 1)]
        self._shares: list[Products | Codes | Halves]
        if first == "codes" and len(self):
            self._shares = [Codes(self.vectors)]
        else:
            self._shares = [
                self._share(rows, device, first)
                for rows, device in zip(itertools.starmap(range, itertools.pairwise(bounds)), devices, strict=True)
                if rows
            ]

    def _share(self, rows: range, device: str, first: First | None) -> Products | Halves:
        """Open the passages in some rows on a device."""
        if first == "halves" or (first is None and halves.fit(self.vectors, rows, device) and halves.is_right(device)):
            return Halves(self.vectors, rows, device)
        return Products(self.vectors, rows, device, self._map)

    def search(self, queries: Vectors, depth: int) -> list[Results]:
        """Rank all passages for queries of shape (queries, dimension).

        :returns: for each query its top `depth` by (-score, doc_id): scores and rows.
        :raises InputError: for NaN or infinite values.
        """
        if not len(self) or not len(queries):
            return [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in queries]
        batches = torch.split(as_tensor(np.ascontiguousarray(queries)), self._at_once)
        found = itertools.chain.from_iterable(self._candidates(batch, depth) for batch in batches)
        each = map if len(queries) == 1 else self._map
        return list(each(lambda query, found: self.best_of(query, found[0], depth, found[1]), queries, found))

    def _candidates(self, queries: Tensor, depth: int) -> Iterator[tuple[Rows, Vectors]]:
        """Find for each query the rows of all passages that may be among its top `depth`, and scores that are known."""
        find = partial(_candidates, queries, depth)
        if len(self._shares) == 1:
            found = [find(self._shares[0])]
        else:
            with ThreadPoolExecutor(len(self._shares)) as pool:
                found = list(pool.map(find, self._shares))
        rows, known = (torch.cat([table.cpu() for table in tables], 1).numpy() for tables in zip(*found, strict=True))
        for of_query, scores in zip(rows, known, strict=True):
            yield of_query[of_query >= 0], scores[of_query >= 0]


class Products:
    """The first pass in single precision: products of the passages in some rows with queries.

    A GPU gets the vectors piece by piece.

    :param each: runs a function in several threads.
    """

    def __init__(self, vectors: PassageVectors, rows: range, device: str, each: Map) -> None:
        self._vectors, self._rows, self._device, self._map = vectors, rows, device, each
        self.count = len(rows)

    @cached_property
    def _sample(self) -> Tensor:
        rows = np.array(self._rows[:: sample_step(self.count)])
        return torch.from_numpy(self._vectors[rows].astype(np.float32)).to(self._device)

    @cached_property
    def _longest(self) -> float:
        return longest_of(self._vectors, self._rows, self._device)

    def first_pass(self, queries: Tensor) -> FirstPass:
        """Multiply queries, (queries, e), with a sample of the passages; the result can multiply them with all."""
        queries = queries.to(self._device)
        products = vector_norms(queries, QUERIES) * self._longest  # (queries, 1)
        margins = 2 * bound_errors(products, queries.shape[1]).T
        return FirstPass(queries @ self._sample.T, margins, partial(self._scores, queries))

    def _scores(self, queries: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Multiply with all passages."""
        multiply, at_once = self._multiply, scores_at_once(self._device, len(queries))
        if self._device == "cpu" and len(queries) == 1:
            multiply, at_once = self._multiply_alone, SINGLE_AT_ONCE
        return score_blocks(self._rows, len(queries), at_once, self._device, partial(multiply, queries))

    def _multiply(self, queries: Tensor, rows: range, scores: Tensor) -> None:
        for place, piece in moved(self._vectors, rows, self._device):
            torch.mm(piece, queries.T, out=scores[place])

    def _multiply_alone(self, queries: Tensor, rows: range, scores: Tensor) -> None:
        """Multiply with a single query, several times as fast as `mm`: a processor waits for memory anyway."""
        query, products = queries[0].numpy(), scores[:, 0].numpy()

        def multiply(at: int) -> None:
            for row, piece in self._vectors.pieces(at, min(at + ROWS_OF_A_THREAD, rows.stop)):
                np.vecdot(piece, query, out=products[row - rows.start : row - rows.start + len(piece)])

        list(self._map(multiply, range(rows.start, rows.stop, ROWS_OF_A_THREAD)))


def _candidates(queries: Tensor, depth: int, share: Products | Codes | Halves) -> tuple[Tensor, Tensor]:
    """Find all passages of a share that may be among the top `depth` of queries, (queries, e).

    :returns: their rows, padded with -1, and their scores, NaN where unknown; shapes (queries, candidates).
    """
    caution, depth = 1, min(depth, share.count)
    first = share.first_pass(queries)
    while True:
        threshold = estimate_threshold(first.sampled, share.count, depth, caution)
        passed = CandidateFilter(threshold, first.margins, depth, first.group)
        for row, scores in first.scores():
            passed.add(row, scores)
        rows, complete = passed.rows()
        if complete:
            if isinstance(share, Halves):
                return rows, share.exact(queries, rows)
            return rows, torch.full(rows.shape, torch.nan)
        caution *= 4
