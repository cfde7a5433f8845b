"""The first pass of exact search over int8 codes: a quarter of the bytes, multiplied several times as fast.

A vector d is quantized as s c + r: a scale s, a code c of integers from -127 to 127, and the rounding residual r.
Queries are quantized likewise. Products of codes are exact. The lengths of the residuals bound how far these are from
the products of the vectors (`topk.bound_rounding`), so that no passage that may be among the top k is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cort.retrieval.topk import (
    QUERIES,
    SCORES_AT_ONCE,
    FirstPass,
    bound_errors,
    bound_rounding,
    norms_of,
    sample_step,
    vector_norms,
)
from cort.retrieval.vectors import PassageVectors

LARGEST = 127
# Passages per block.
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
        self.longest, self.residual = float(coded.norms.amax()), float(coded.residuals.amax())
        packed = torch.ops.onednn.qlinear_prepack(coded.codes, None)
        self._packed = packed, coded.scale[:, 0], torch.zeros(1, dtype=torch.int64)

    def products(self, queries: Coded) -> Tensor:
        """Multiply with queries, in units of their scales; returns (queries, passages)."""
        multiply = torch.ops.onednn.qlinear_pointwise
        zero = ZERO if queries.codes.dtype == torch.uint8 else 0
        products = multiply(queries.codes, 1.0, zero, *self._packed, None, 1.0, 0, torch.float32, "none", [], "")
        coarse, fine = products.chunk(2)  # (queries, passages)
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
    """The first pass over codes of all passages."""

    def __init__(self, vectors: PassageVectors) -> None:
        self.count = len(vectors)
        self._blocks = [Block(torch.from_numpy(block), vectors.source) for block in vectors.copies(BLOCK)]
        sample = vectors[np.arange(0, self.count, sample_step(self.count))].astype(np.float32)
        self._sample = Block(torch.from_numpy(sample), vectors.source)
        self._longest = max(block.longest for block in self._blocks)
        self._residual = max(block.residual for block in self._blocks)

    def first_pass(self, queries: Tensor) -> FirstPass:
        """Multiply queries, (queries, e), with a sample of the passages; the result can multiply them with all."""
        coded = encode_queries(queries, QUERIES)
        errors = bound_rounding(coded.norms, coded.residuals, self._longest, self._residual)  # (queries, 1)
        errors = errors + bound_errors(coded.norms * self._longest, queries.shape[1] + WORD)
        margins = 2 * (errors / coded.scale).T
        return FirstPass(self._sample.products(coded), margins, partial(self._scores, coded))

    def _scores(self, queries: Coded) -> Iterator[tuple[int, Tensor]]:
        """Multiply with queries; with few queries several blocks at once, as each selection has a fixed cost."""
        at_once = max(SCORES_AT_ONCE["cpu"] // (len(queries.scale) * BLOCK), 1)
        for start in range(0, len(self._blocks), at_once):
            products = [block.products(queries) for block in self._blocks[start : start + at_once]]
            yield start * BLOCK, (torch.cat(products, 1) if len(products) > 1 else products[0]).T
