"""The first pass of exact search over codes of 8 bits: a quarter of the bytes, and multiplied several times as fast.

A vector d is s c + r, where c has whole numbers from -127 to 127 and s is a scale; so is a query. A product of codes is
exact. How far it can be from the product of the vectors is bounded by the lengths of what the rounding left
(Cauchy-Schwarz), so that no passage is lost that may be among the best::

    |q.d - q'.d'| <= |q| |d - d'| + |q - q'| |d'|
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cort.formats.embeddings import Shard, from_batch
from cort.retrieval.products import IN_CACHE, QUERIES, SCORES_ON_GPU, bound_errors, norms_of, vector_norms
from cort.retrieval.topk import GROUP, FirstPass, Scores, sample_step
from cort.retrieval.vectors import as_tensor

LARGEST = 127
# Passages of a block, in whole groups; on a GPU numbers of these, since each block has some kernels to start.
BLOCK, NUMBERS_ON_GPU = 131_072, 1 << 28
# Queries of one pass on a CPU: their products with a block, of two codes each, take 16 MB; more is slow, as new memory.
QUERIES_ON_CPU = 16
# Codes of a vector come in multiples of this many, the last ones perhaps 0.
WORD = 16
# On a GPU `_int_mm` wants more than 16 rows, and columns in multiples of 8.
ROWS, COLUMNS = 32, 8
# The largest number that a scale is made for at least: the product of two scales, and a step of fine codes in it, then
# have all digits of single precision. Rounding leaves shorter vectors as they are.
SMALLEST = 1e-15
# Fine codes count the halves that coarse ones leave, in as many steps.
FINER = 2 * LARGEST
# Without AMX oneDNN multiplies codes of queries that have a sign 400 times as slowly as such from 0, where this is 0.
ZERO = 128
# What fills the last group up.
NOTHING = -(2**31)


class Coded(NamedTuple):
    """Vectors as whole numbers of the shape (rows, e); what one counts, and lengths: (rows, 1), or one scale for all.

    `norms` are the lengths of the vectors, `rests` those of what rounding left.
    """

    codes: Tensor
    scale: Tensor
    norms: Tensor
    rests: Tensor


def encode(vectors: Tensor, source: str, *, together: bool = False) -> Coded:
    """Round vectors of shape (rows, e) to codes: with a scale each, or one for all."""
    norms = vector_norms(vectors, source)  # (rows, 1)
    largest = vectors.abs().amax(dim=1, keepdim=True)
    scale = (largest.amax() if together else largest).clamp(min=SMALLEST) / LARGEST
    codes = (vectors / scale).round_().clamp_(-LARGEST, LARGEST)
    rests = norms_of(torch.addcmul(vectors, codes, scale.expand_as(codes), value=-1))
    # `_int_mm` writes nothing where the dimension is 1; and whole words are faster.
    padded = functional.pad(codes, (0, -codes.shape[1] % WORD)).to(torch.int8)
    return Coded(padded, scale, norms, rests)


def encode_finely(vectors: Tensor, source: str) -> Coded:
    """Round vectors of shape (rows, e) to codes of 16 bits, (2 rows, e): the coarse ones, and then the fine."""
    coarse = encode(vectors, source)
    left = vectors - coarse.scale * coarse.codes[:, : vectors.shape[1]]
    codes = (left / (coarse.scale / FINER)).round_().clamp_(-LARGEST, LARGEST)
    rests = norms_of(left.sub_(codes * (coarse.scale / FINER)))
    fine = functional.pad(codes, (0, -codes.shape[1] % WORD)).to(torch.int8)
    return coarse._replace(codes=torch.cat([coarse.codes, fine]), rests=rests)


class _Block:
    """Codes of consecutive passages, laid out to be multiplied; `count` passages.

    `longest` and `rest` bound the lengths of the vectors, and of what rounding left of them.
    """

    def __init__(self, coded: Coded) -> None:
        self.count = len(coded.codes)
        self.longest, self.rest = float(coded.norms.amax()), float(coded.rests.amax())


class BlockOnCpu(_Block):
    """Laid out for oneDNN, with a scale for each passage; queries have 16 bits, which costs a single one nothing."""

    @staticmethod
    def encode_queries(vectors: Tensor, source: str) -> Coded:
        """Round vectors of shape (queries, e) to codes of 16 bits, as `encode_finely` does."""
        asked = encode_finely(vectors, source)
        if torch.cpu._is_amx_tile_supported():
            return asked
        return asked._replace(codes=asked.codes.view(torch.uint8) ^ ZERO)

    def __init__(self, vectors: Tensor, source: str) -> None:
        coded = encode(vectors, source)
        super().__init__(coded)
        filling = -self.count % GROUP
        codes = functional.pad(coded.codes, (0, 0, 0, filling))
        scales = functional.pad(coded.scale[:, 0], (0, filling))
        self._packed = torch.ops.onednn.qlinear_prepack(codes, None), scales, torch.zeros(1, dtype=torch.int64)

    def products(self, asked: Coded) -> Tensor:
        """Multiply with some queries; returns (queries, passages)."""
        return self._multiply(asked)[:, : self.count] * asked.scale

    @staticmethod
    def scores(blocks: Sequence[tuple[int, BlockOnCpu]], asked: Coded) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield a first passage, values in groups, (group size, groups, queries), and their units, (1, queries).

        Few queries have the values of several blocks at once, as selecting has many steps to start.
        """
        queries = len(asked.scale)
        at_once = max(IN_CACHE // (queries * BLOCK), 1)
        for start in range(0, len(blocks), at_once):
            some = [block for _, block in blocks[start : start + at_once]]
            parts = [block._multiply(asked) for block in some]
            values = torch.cat(parts, 1) if len(parts) > 1 else parts[0]
            values[:, sum(block.count for block in some) :] = -torch.inf
            yield blocks[start][0], values.view(queries, GROUP, -1).permute(1, 2, 0), asked.scale.T

    def _multiply(self, asked: Coded) -> Tensor:
        """Multiply with some queries; returns (queries, passages in whole groups)."""
        multiply = torch.ops.onednn.qlinear_pointwise
        zero = ZERO if asked.codes.dtype == torch.uint8 else 0
        products = multiply(asked.codes, 1.0, zero, *self._packed, None, 1.0, 0, torch.float32, "none", [], "")
        coarse, fine = products.chunk(2)  # (queries, passages in whole groups)
        found: Tensor = coarse.add_(fine, alpha=1 / FINER)
        return found


class BlockOnGpu(_Block):
    """Laid out for `_int_mm`, with one scale, as its products are whole numbers."""

    encode_queries = staticmethod(encode)

    def __init__(self, vectors: Tensor, source: str) -> None:
        coded = encode(vectors, source, together=True)
        super().__init__(coded)
        self._step = math.lcm(ROWS, GROUP)
        self._scale = coded.scale
        self._codes = functional.pad(coded.codes, (0, 0, 0, -self.count % self._step))

    def products(self, asked: Coded) -> Tensor:
        """Multiply with some queries; returns (queries, passages)."""
        products = torch._int_mm(self._codes, _columns(asked.codes))
        found = products[: self.count, : len(asked.codes)].T.contiguous()  # for what comes next, in order
        return found * (asked.scale * self._scale)

    @staticmethod
    def scores(blocks: Sequence[tuple[int, BlockOnGpu]], asked: Coded) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield a first passage, values in groups, (group size, groups, queries), and their units, (1, queries)."""
        columns = _columns(asked.codes)  # (e, queries or more)
        for first, block in blocks:
            rows = max(SCORES_ON_GPU // columns.shape[1] // block._step, 1) * block._step
            for start, codes in zip(range(0, block.count, rows), torch.split(block._codes, rows), strict=True):
                products = torch._int_mm(codes, columns)
                products[block.count - start :] = NOTHING
                values = products.view(GROUP, -1, columns.shape[1])[..., : len(asked.codes)]
                yield first + start, values, (asked.scale * block._scale).T


def _columns(codes: Tensor) -> Tensor:
    """Lay codes of shape (queries, e) out to be multiplied with: (e, queries or more).

    A view, filled up with zeros, as columns in memory are multiplied several times as fast.
    """
    return functional.pad(codes, (0, 0, 0, -len(codes) % COLUMNS)).T


def block_of(device: str) -> type[BlockOnCpu | BlockOnGpu]:
    """Tell how codes are laid out on a device."""
    return BlockOnCpu if device == "cpu" else BlockOnGpu


@cache
def is_right(device: str) -> bool:
    """Whether this device multiplies codes, and rightly."""
    one, other = (torch.arange(rows * WORD).remainder(251).sub(125).view(rows, WORD).float() for rows in (2 * ROWS, 3))
    one[:, 0] = other[:, 0] = LARGEST  # so that they are their own codes
    kind = block_of(device)
    try:
        products = kind(one.to(device), "a test").products(kind.encode_queries(other.to(device), "a test"))
    except (AttributeError, RuntimeError):  # a GPU that is too old, a processor or device of another make
        return False
    return torch.equal(products.cpu(), other @ one.T)


def is_fast() -> bool:
    """Whether this processor multiplies codes faster than numbers of single precision, and rightly."""
    return torch.cpu._is_vnni_supported() and is_right("cpu")


def needed(devices: Sequence[str], numbers: int) -> bool:
    """Whether GPUs have room for codes of vectors with so many numbers, but not for the vectors themselves."""
    free = min(torch.cuda.mem_get_info(device)[0] for device in devices)
    share = -(-numbers // len(devices))
    return 2 * share <= free < 2 * 4 * share and is_right(devices[0])


class Codes:
    """Codes of consecutive blocks of passages, in the memory of one device.

    :param blocks: of single precision on the CPU, with the rows they begin at; `count` passages in all.
    """

    def __init__(self, blocks: Iterable[tuple[int, Tensor]], count: int, device: str, source: str) -> None:
        self.count, self._kind = count, block_of(device)
        step, sample = sample_step(count), []
        self._blocks: list[tuple[int, Any]] = []  # all of this kind
        for first, vectors in blocks:
            self._blocks.append((first, self._kind(vectors.to(device), source)))
            sample.append(vectors[-first % step :: step].clone())
        self._sample = self._kind(torch.cat(sample).to(device), source)
        self._longest = max(block.longest for _, block in self._blocks)
        self._rest = max(block.rest for _, block in self._blocks)

    def ask(self, queries: Tensor) -> FirstPass:
        """Multiply queries, (queries, e), with a sample of the passages, and then with all."""
        asked = self._kind.encode_queries(queries, QUERIES)
        margins = self._margins(asked, queries.shape[1])
        return FirstPass(self._sample.products(asked), margins, partial(self._scores, asked))

    def _scores(self, asked: Coded) -> Iterator[Scores]:
        for first, values, units in self._kind.scores(self._blocks, asked):
            yield Scores(first, values, units)

    def _margins(self, asked: Coded, dimension: int) -> Tensor:
        """Bound the error of scores, twice; (1, queries)."""
        longest, rest = self._longest, self._rest
        errors = asked.norms * rest + asked.rests * (longest + rest)  # (queries, 1)
        margins: Tensor = 2 * (1.01 * errors + bound_errors(asked.norms * longest, dimension + WORD)).T
        return margins


def rows_of_block(dimension: int, device: str) -> int:
    """Tell how many passages are a block."""
    return BLOCK if device == "cpu" else NUMBERS_ON_GPU // dimension


def blocks_of(passages: Sequence[Shard], rows: int) -> Iterator[tuple[int, Tensor]]:
    """Yield the vectors of all passages in single precision, in blocks of one size, with their first rows."""
    room, filled, first = np.empty((rows, passages[0].dimension), dtype=np.float32), 0, 0
    for shard in passages:
        for batch in shard.table.to_batches():
            _, vectors = from_batch(batch)
            while len(vectors):
                taken = min(len(vectors), rows - filled)
                as_tensor(room[filled : filled + taken]).copy_(as_tensor(vectors[:taken]))
                filled, vectors = filled + taken, vectors[taken:]
                if filled == rows:
                    yield first, torch.from_numpy(room)
                    filled, first = 0, first + rows
    if filled:
        yield first, torch.from_numpy(room[:filled])
