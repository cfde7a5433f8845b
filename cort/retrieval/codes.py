"""The first pass of exact search over int8 codes: a quarter of the bytes, multiplied several times as fast.

A vector d is quantized as s c + r: a scale s, a code c of integers from -127 to 127, and the rounding residual r.
Queries are quantized likewise. Products of codes are exact. The lengths of the residuals bound how far these are from
the products of the vectors (Cauchy-Schwarz), so that no passage that may be among the top k is lost::

    |q.d - q'.d'| <= |q| |d - d'| + |q - q'| |d'|
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional

from cort.formats.shards import Shard
from cort.retrieval.products import IN_CACHE, QUERIES, SCORES_ON_GPU, bound_errors, norms_of, vector_norms
from cort.retrieval.topk import GROUP, FirstPass, Scores, sample_step
from cort.retrieval.vectors import copy_vectors

LARGEST = 127
# Passages per block, a multiple of GROUP; on a GPU, numbers per block, since each block starts several kernels.
BLOCK, NUMBERS_ON_GPU = 131_072, 1 << 28
# Queries per pass on a CPU: their products with a block, two codes each, take 16 MB. More is slow: new memory.
QUERIES_ON_CPU = 16
# The number of codes of a vector is padded with zeros to a multiple of this.
WORD = 16
# `_int_mm` on a GPU requires more than 16 rows, and at least 8 columns. Their number is a power of two: cuBLAS has no
# kernel for 40 columns (H200, CUDA 13.0).
ROWS, COLUMNS = 32, 8
# Scales are made for a largest number of at least this, so that the product of two scales, and a step of fine codes in
# it, have full single precision. Vectors of smaller numbers become their own residuals.
SMALLEST = 1e-15
# Fine codes divide the residual, at most half a step of a coarse code, into this many steps.
FINER = 2 * LARGEST
# Without AMX, oneDNN multiplies signed codes of queries 400 times slower than unsigned ones with this zero point.
ZERO = 128
# Padding of the last group.
NOTHING = -(2**31)


class Coded(NamedTuple):
    """Codes of vectors, (rows, e), and their scale: (rows, 1), or one for all.

    `norms` are the lengths of the vectors, `residuals` those of the rounding residuals; (rows, 1).
    """

    codes: Tensor
    scale: Tensor
    norms: Tensor
    residuals: Tensor


def encode(vectors: Tensor, source: str, *, together: bool = False) -> Coded:
    """Quantize vectors of shape (rows, e), with a scale for each or, if `together`, one for all."""
    norms = vector_norms(vectors, source)  # (rows, 1)
    largest = vectors.abs().amax(dim=1, keepdim=True)
    scale = (largest.amax() if together else largest).clamp(min=SMALLEST) / LARGEST
    codes = (vectors / scale).round_().clamp_(-LARGEST, LARGEST)
    residuals = norms_of(torch.addcmul(vectors, codes, scale.expand_as(codes), value=-1))
    # `_int_mm` writes nothing if the dimension is 1, and full words are faster.
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


class _Block:
    """Codes of `count` consecutive passages, laid out for multiplication.

    `longest` and `residual` bound the lengths of the vectors and of their residuals.
    """

    def __init__(self, coded: Coded) -> None:
        self.count = len(coded.codes)
        self.longest, self.residual = float(coded.norms.amax()), float(coded.residuals.amax())


class BlockOnCpu(_Block):
    """A block in the layout of oneDNN, with a scale per passage. Queries have 16 bits, at no cost if there is one."""

    @staticmethod
    def encode_queries(vectors: Tensor, source: str) -> Coded:
        """Quantize vectors of shape (queries, e) to 16 bits, as `encode_finely` does."""
        queries = encode_finely(vectors, source)
        if torch.cpu._is_amx_tile_supported():
            return queries
        return queries._replace(codes=queries.codes.view(torch.uint8) ^ ZERO)

    def __init__(self, vectors: Tensor, source: str) -> None:
        coded = encode(vectors, source)
        super().__init__(coded)
        padding = -self.count % GROUP
        codes = functional.pad(coded.codes, (0, 0, 0, padding))
        scales = functional.pad(coded.scale[:, 0], (0, padding))
        self._packed = torch.ops.onednn.qlinear_prepack(codes, None), scales, torch.zeros(1, dtype=torch.int64)

    def products(self, queries: Coded) -> Tensor:
        """Multiply with queries; returns (queries, passages)."""
        return self._multiply(queries)[:, : self.count] * queries.scale

    @staticmethod
    def scores(blocks: Sequence[tuple[int, BlockOnCpu]], queries: Coded) -> Iterator[Scores]:
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


class BlockOnGpu(_Block):
    """A block in the layout of `_int_mm`, with a single scale, because its products are integers."""

    encode_queries = staticmethod(encode)

    def __init__(self, vectors: Tensor, source: str) -> None:
        coded = encode(vectors, source, together=True)
        super().__init__(coded)
        self._step = math.lcm(ROWS, GROUP)
        self._scale = coded.scale
        self._codes = functional.pad(coded.codes, (0, 0, 0, -self.count % self._step))

    def products(self, queries: Coded) -> Tensor:
        """Multiply with queries; returns (queries, passages)."""
        products = torch._int_mm(self._codes, _columns(queries.codes))
        # Contiguous for the operations that follow.
        by_query = products[: self.count, : len(queries.codes)].T.contiguous()
        return by_query * (queries.scale * self._scale)

    @staticmethod
    def scores(blocks: Sequence[tuple[int, BlockOnGpu]], queries: Coded) -> Iterator[Scores]:
        """Multiply blocks with queries."""
        columns = _columns(queries.codes)  # (e, queries or more)
        for first, block in blocks:
            rows = max(SCORES_ON_GPU // columns.shape[1] // block._step, 1) * block._step
            for start, codes in zip(range(0, block.count, rows), torch.split(block._codes, rows), strict=True):
                products = torch._int_mm(codes, columns)
                products[block.count - start :] = NOTHING
                values = products.view(GROUP, -1, columns.shape[1])[..., : len(queries.codes)]
                yield Scores(first + start, values, (queries.scale * block._scale).T)


def _columns(codes: Tensor) -> Tensor:
    """Lay out codes of shape (queries, e) as a right factor: (e, queries or more), padded with zeros.

    It is a view, because columns in memory are multiplied several times as fast.
    """
    columns = max(1 << (len(codes) - 1).bit_length(), COLUMNS)
    return functional.pad(codes, (0, 0, 0, columns - len(codes))).T


def block_of(device: str) -> type[BlockOnCpu | BlockOnGpu]:
    """Return the layout of codes on a device."""
    return BlockOnCpu if device == "cpu" else BlockOnGpu


def is_right(device: str) -> bool:
    """Whether this device can multiply codes, and does so correctly."""
    rows, queries = (torch.arange(n * WORD).remainder(251).sub(125).view(n, WORD).float() for n in (2 * ROWS, 3))
    rows[:, 0] = queries[:, 0] = LARGEST  # so that they are their own codes
    kind = block_of(device)
    try:
        products = kind(rows.to(device), "a test").products(kind.encode_queries(queries.to(device), "a test"))
    except (AttributeError, RuntimeError):  # a GPU that is too old, or an unsupported processor or device
        return False
    return torch.equal(products.cpu(), queries @ rows.T)


def is_fast() -> bool:
    """Whether this processor multiplies codes correctly, and faster than single precision."""
    return torch.cpu._is_vnni_supported() and is_right("cpu")


def needed(devices: Sequence[str], numbers: int) -> bool:
    """Whether GPUs have enough memory for the codes of `numbers` numbers, but not for the numbers themselves."""
    free = min(torch.cuda.mem_get_info(device)[0] for device in devices)
    share = -(-numbers // len(devices))
    return 2 * share <= free < 2 * 4 * share and all(map(is_right, devices))


class Codes:
    """Codes of consecutive blocks of passages, in the memory of one device.

    :param blocks: (first row, vectors in single precision on the CPU), `count` passages in all.
    """

    def __init__(self, blocks: Iterable[tuple[int, Tensor]], count: int, device: str, source: str) -> None:
        self.count, self._device, self._kind = count, device, block_of(device)
        step, sample = sample_step(count), []
        self._blocks: list[tuple[int, Any]] = []  # all of this kind
        for first, vectors in blocks:
            self._blocks.append((first, self._kind(vectors.to(device), source)))
            sample.append(vectors[-first % step :: step].clone())
        self._sample = self._kind(torch.cat(sample).to(device), source)
        self._longest = max(block.longest for _, block in self._blocks)
        self._residual = max(block.residual for _, block in self._blocks)

    def ask(self, queries: Tensor) -> FirstPass:
        """Multiply queries, (queries, e), with a sample of the passages; the result can multiply them with all."""
        coded = self._kind.encode_queries(queries.to(self._device), QUERIES)
        margins = self._margins(coded, queries.shape[1])
        return FirstPass(self._sample.products(coded), margins, partial(self._kind.scores, self._blocks, coded))

    def _margins(self, queries: Coded, dimension: int) -> Tensor:
        """Twice the bound of the error of a score; (1, queries)."""
        longest, residual = self._longest, self._residual
        errors = queries.norms * residual + queries.residuals * (longest + residual)  # (queries, 1)
        margins: Tensor = 2 * (1.01 * errors + bound_errors(queries.norms * longest, dimension + WORD)).T
        return margins


def rows_of_block(dimension: int, device: str) -> int:
    """Return the number of passages in a block."""
    return BLOCK if device == "cpu" else NUMBERS_ON_GPU // dimension


def blocks_of(passages: Sequence[Shard], rows: int) -> Iterator[tuple[int, Tensor]]:
    """Yield (first row, vectors in single precision) of blocks of `rows` passages, which share their memory."""
    table = pa.concat_tables([shard.table for shard in passages])
    buffer = np.empty((rows, passages[0].dimension), dtype=np.float32)
    for first in range(0, len(table), rows):
        block = buffer[: len(table) - first]
        copy_vectors(table.slice(first, rows), block)
        yield first, torch.from_numpy(block)
