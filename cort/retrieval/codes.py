"""The first pass of exact search over codes of 8 bits: a quarter of the bytes, and multiplied several times as fast.

A vector d of a block is s c + r, where c has whole numbers from -127 to 127 and s is the block's scale; so is a query.
A product of codes is exact. How far it can be from the product of the vectors is bounded by the lengths of what the
rounding left (Cauchy-Schwarz), so that no passage is lost that may be among the best::

    |q.d - q'.d'| <= |q| |d - d'| + |q - q'| |d'|
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cort.formats.embeddings import Shard, from_batch
from cort.retrieval.products import QUERIES, rounding, vector_norms
from cort.retrieval.topk import GROUP, Scores, sample_step
from cort.retrieval.vectors import as_tensor

LARGEST = 127
# Passages of one scale.
BLOCK = 65_536
# Scores held at once: 4 MB, as caches hold.
IN_CACHE = 1 << 20
# Passages whose scores are computed together, at least: a multiple of a group's size, and enough to be worth the call.
LEAST = 1_024
# Codes of a vector come in multiples of this many, the last ones perhaps 0.
WORD = 16
# Smaller scales would be no numbers of single precision when two are multiplied.
SMALLEST = 1e-18
# What fills the last group up.
NOTHING = -(2**31)


class Coded(NamedTuple):
    """Vectors as whole numbers of the shape (rows, e); `scale`, what one counts, and lengths.

    The lengths are those of the longest vector and of the longest rest that rounding left; in columns where a query has
    its own.
    """

    codes: Tensor
    scale: Tensor
    longest: Tensor
    rest: Tensor


def encode(vectors: Tensor, source: str, *, together: bool) -> Coded:
    """Round vectors of shape (rows, e) to codes: with one scale for all, or one each."""
    norms = vector_norms(vectors, source)  # (rows, 1)
    largest = vectors.abs().amax(dim=1, keepdim=True)
    scale = (largest.amax() if together else largest).clamp(min=SMALLEST) / LARGEST
    codes = (vectors / scale).round_().clamp_(-LARGEST, LARGEST)
    rest = torch.addcmul(vectors, codes, scale.expand_as(codes), value=-1).norm(dim=1, keepdim=True)
    if together:
        norms, rest = norms.amax(), rest.amax()
    # `_int_mm` writes nothing where the dimension is 1; and whole words are faster.
    padded = functional.pad(codes, (0, -codes.shape[1] % WORD)).to(torch.int8)
    return Coded(padded, scale, norms, rest)


@functools.cache
def is_fast() -> bool:
    """Whether this processor multiplies codes faster than numbers of single precision, and rightly."""
    if not torch.cpu._is_vnni_supported():
        return False
    one, other = (torch.arange(rows * WORD).remainder(251).sub(125).view(rows, WORD) for rows in (3 * WORD, 3))
    product = torch._int_mm(one.to(torch.int8), other.T.to(torch.int8).clone(memory_format=torch.contiguous_format))
    return torch.equal(product, (one @ other.T).to(torch.int32))


class Codes:
    """Codes of all passages of some shards, in main memory."""

    def __init__(self, passages: Sequence[Shard]) -> None:
        self._source = ", ".join(str(shard.path) for shard in passages)
        self.count = sum(len(shard.table) for shard in passages)
        step, self._blocks, sample = sample_step(self.count), [], []
        for number, block in enumerate(_blocks(passages)):
            self._blocks.append(encode(block, self._source, together=True))
            sample.append(block[-number * BLOCK % step :: step].clone())
        self._sample = encode(torch.cat(sample), self._source, together=True)
        self._scores = torch.empty(0, dtype=torch.int32)

    def sampled(self, queries: Tensor) -> Tensor:
        """Multiply queries of shape (queries, e) with a sample of the passages; returns (queries, sample)."""
        asked = encode(queries, QUERIES, together=False)
        return torch._int_mm(asked.codes, self._sample.codes.T) * (asked.scale * self._sample.scale)

    def scores(self, queries: Tensor) -> Iterator[Scores]:
        """Multiply queries of shape (queries, e) with all passages; room for scores is used again."""
        asked = encode(queries, QUERIES, together=False)
        # In fresh memory: `contiguous` may leave the strides of one query as they are, which `_int_mm` takes amiss.
        transposed = torch.empty(asked.codes.T.shape, dtype=torch.int8).copy_(asked.codes.T)  # (e, queries)
        rows = max(IN_CACHE // len(queries) // LEAST, 1) * LEAST
        for number, block in enumerate(self._blocks):
            units = (block.scale * asked.scale).T  # (1, queries)
            errors = asked.longest * block.rest + asked.rest * (block.longest + block.rest)  # (queries, 1)
            exact = rounding(queries.shape[1]) * asked.longest * block.longest
            margins = 2 * (1.01 * errors + exact).T
            for start in range(0, len(block.codes), rows):
                codes = block.codes[start : start + rows]
                values = self._room(-(-len(codes) // GROUP) * GROUP, len(queries))
                values[len(codes) :] = NOTHING
                torch._int_mm(codes, transposed, out=values[: len(codes)])
                yield Scores(number * BLOCK + start, values.view(GROUP, -1, len(queries)), units, margins)

    def _room(self, rows: int, queries: int) -> Tensor:
        if len(self._scores) < rows * queries:
            self._scores = torch.empty(rows * queries, dtype=torch.int32)
        return self._scores[: rows * queries].view(rows, queries)


def _blocks(passages: Sequence[Shard]) -> Iterator[Tensor]:
    """Yield the vectors of all passages in single precision, in blocks of one size."""
    room, filled = np.empty((BLOCK, passages[0].dimension), dtype=np.float32), 0
    for shard in passages:
        for batch in shard.table.to_batches():
            _, vectors = from_batch(batch)
            while len(vectors):
                taken = min(len(vectors), BLOCK - filled)
                as_tensor(room[filled : filled + taken]).copy_(as_tensor(vectors[:taken]))
                filled, vectors = filled + taken, vectors[taken:]
                if filled == BLOCK:
                    yield torch.from_numpy(room)
                    filled = 0
    if filled:
        yield torch.from_numpy(room[:filled])
