"""The first pass of exact search over int8 codes: a quarter of the bytes, multiplied several times as fast.

A vector d is quantized as s c + r: a scale s, a code c of integers from -127 to 127, and the rounding residual r.
Queries are quantized likewise. Products of codes are exact. The lengths of the residuals bound how far these are from
the products of the vectors (Cauchy-Schwarz), so that no passage that may be among the top k is lost::

    |q.d - q'.d'| <= |q| |d - d'| + |q - q'| |d'|
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional

from cort.formats.shards import Shard
from cort.retrieval.products import IN_CACHE, QUERIES, bound_errors, norms_of, vector_norms
from cort.retrieval.topk import GROUP, FirstPass, Scores, sample_step
from cort.retrieval.vectors import copy_vectors

LARGEST = 127
# Passages per block, a multiple of GROUP.
BLOCK = 131_072
# Queries per pass: their products with a block, two codes each, take 16 MB. More is slow: new memory.
CODED_AT_ONCE = 16
# The number of codes of a vector is padded with zeros to a multiple of this.
WORD = 16
# Scales are made for a largest number of at least this, so that the product of two scales, and a step of fine codes in
# it, have full single precision. Vectors of smaller numbers become their own residuals.
SMALLEST = 1e-15
# Fine codes divide the residual, at most half a step of a coarse code, into this many steps.
FINER = 2 * LARGEST
# Passages with which a processor has to show that it multiplies codes correctly.
PROBED = 64
# Without AMX, oneDNN multiplies signed codes of queries 400 times slower than unsigned ones with this zero point.
ZERO = 128


class Coded(NamedTuple):
    """Codes of vectors, (rows, e), and the scale of each, (rows, 1).

    `norms` are the lengths of the vectors, `residuals` those of the rounding residuals; (rows, 1).
    """

    codes: Tensor
    scale: Tensor
    norms: Tensor
    residuals: Tensor


def encode(vectors: Tensor, source: str) -> Coded:
    """Quantize vectors of shape (rows, e)."""
    norms = vector_norms(vectors, source)  # (rows, 1)
    scale = vectors.abs().amax(dim=1, keepdim=True).clamp(min=SMALLEST) / LARGEST
    codes = (vectors / scale).round_().clamp_(-LARGEST, LARGEST)
    residuals = norms_of(torch.addcmul(vectors, codes, scale.expand_as(codes), value=-1))
    # Full words are faster.
    padded = functional.pad(codes, (0, -codes.shape[1] % WORD)).to(torch.int8)
    return Coded(padded, scale, norms, residuals)


def encode_finely(vectors: Tensor, source: str) -> Coded:
    """Quantize vectors of shape (rows, e) to 16 bits: the coarse codes, then the fine ones; (2 rows, e)."""
    coarse = encode(vectors, source)
    left = vectors - coarse.scale * coarse.codes[:, : vectors.shape[1]]
    codes = (left / (coarse.scale / FINER)).round_().clamp_(-LARGEST, LARGEST)
    residuals = norms_of(left.sub_(codes * (coarse.scale / FINER)))
    fine = functional.pad(codes, (0, -codes.shape[1] % WORD)).to(torch.int8)
    return coarse._replace(codes=torch.cat([coarse.codes, fine]), residuals=residuals)


def encode_queries(vectors: Tensor, source: str) -> Coded:
    """Quantize vectors of shape (queries, e) to 16 bits, which costs nothing if there is one."""
    queries = encode_finely(vectors, source)
    if torch.cpu._is_amx_tile_supported():
        return queries
    return queries._replace(codes=queries.codes.view(torch.uint8) ^ ZERO)


class Block:
    """Codes of `count` consecutive passages in the layout of oneDNN.

    `longest` and `residual` bound the lengths of the vectors and of their residuals.
    """

    def __init__(self, vectors: Tensor, source: str) -> None:
        coded = encode(vectors, source)
        self.count = len(coded.codes)
        self.longest, self.residual = float(coded.norms.amax()), float(coded.residuals.amax())
        padding = -self.count % GROUP
        codes = functional.pad(coded.codes, (0, 0, 0, padding))
        scales = functional.pad(coded.scale[:, 0], (0, padding))
        self._packed = torch.ops.onednn.qlinear_prepack(codes, None), scales, torch.zeros(1, dtype=torch.int64)

    def products(self, queries: Coded) -> Tensor:
        """Multiply with queries; returns (queries, passages)."""
        return self._multiply(queries)[:, : self.count] * queries.scale

    @staticmethod
    def scores(blocks: Sequence[tuple[int, Block]], queries: Coded) -> Iterator[Scores]:
        """Multiply blocks with queries; with few queries several blocks at once, as each selection has a fixed cost."""
        count = len(queries.scale)
        at_once = max(IN_CACHE // (count * BLOCK), 1)
        for start in range(0, len(blocks), at_once):
            together = [block for _, block in blocks[start : start + at_once]]
            parts = [block._multiply(queries) for block in together]
            values = torch.cat(parts, 1) if len(parts) > 1 else parts[0]
            values[:, sum(block.count for block in together) :] = -torch.inf
            yield Scores(blocks[start][0], values.view(count, GROUP, -1).permute(1, 2, 0), queries.scale.T)

    def _multiply(self, queries: Coded) -> Tensor:
        """Multiply with queries; returns (queries, passages and padding)."""
        multiply = torch.ops.onednn.qlinear_pointwise
        zero = ZERO if queries.codes.dtype == torch.uint8 else 0
        products = multiply(queries.codes, 1.0, zero, *self._packed, None, 1.0, 0, torch.float32, "none", [], "")
        coarse, fine = products.chunk(2)  # (queries, passages and padding)
        total: Tensor = coarse.add_(fine, alpha=1 / FINER)
        return total


def is_right() -> bool:
    """Whether this processor, with this version of torch, can multiply codes, and does so correctly."""
    rows, queries = (torch.arange(n * WORD).remainder(251).sub(125).view(n, WORD).float() for n in (PROBED, 3))
    rows[:, 0] = queries[:, 0] = LARGEST  # so that they are their own codes
    try:
        products = Block(rows, "a test").products(encode_queries(queries, "a test"))
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(products, queries @ rows.T)


def is_fast() -> bool:
    """Whether this processor multiplies codes correctly, and faster than single precision."""
    return torch.cpu._is_vnni_supported() and is_right()


class Codes:
    """Codes of consecutive blocks of passages.

    :param blocks: (first row, vectors in single precision), `count` passages in all.
    """

    def __init__(self, blocks: Iterable[tuple[int, Tensor]], count: int, source: str) -> None:
        self.count = count
        step, sample = sample_step(count), []
        self._blocks: list[tuple[int, Block]] = []
        for first, vectors in blocks:
            self._blocks.append((first, Block(vectors, source)))
            sample.append(vectors[-first % step :: step].clone())
        self._sample = Block(torch.cat(sample), source)
        self._longest = max(block.longest for _, block in self._blocks)
        self._residual = max(block.residual for _, block in self._blocks)

    def ask(self, queries: Tensor) -> FirstPass:
        """Multiply queries, (queries, e), with a sample of the passages; the result can multiply them with all."""
        coded = encode_queries(queries, QUERIES)
        margins = self._margins(coded, queries.shape[1])
        return FirstPass(self._sample.products(coded), margins, partial(Block.scores, self._blocks, coded))

    def _margins(self, queries: Coded, dimension: int) -> Tensor:
        """Twice the bound of the error of a score; (1, queries)."""
        longest, residual = self._longest, self._residual
        errors = queries.norms * residual + queries.residuals * (longest + residual)  # (queries, 1)
        margins: Tensor = 2 * (1.01 * errors + bound_errors(queries.norms * longest, dimension + WORD)).T
        return margins


def blocks_to_encode(passages: Sequence[Shard]) -> Iterator[tuple[int, Tensor]]:
    """Yield (first row, vectors in single precision) of blocks of `BLOCK` passages, which share their memory."""
    table = pa.concat_tables([shard.table for shard in passages])
    buffer = np.empty((BLOCK, passages[0].dimension), dtype=np.float32)
    for first in range(0, len(table), BLOCK):
        block = buffer[: len(table) - first]
        copy_vectors(table.slice(first, BLOCK), block)
        yield first, torch.from_numpy(block)
