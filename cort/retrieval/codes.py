"""The first pass of exact search over codes of 8 bits: a quarter of the bytes, and multiplied several times as fast.

A vector d of a block is s c + r, where c has whole numbers from -127 to 127 and s is the block's scale; so is a query.
A product of codes is exact. How far it can be from the product of the vectors is bounded by the lengths of what the
rounding left (Cauchy-Schwarz), so that no passage is lost that may be among the best::

    |q.d - q'.d'| <= |q| |d - d'| + |q - q'| |d'|
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cort.formats.embeddings import Shard, from_batch
from cort.retrieval.products import QUERIES, SCORES_ON_GPU, rounding, vector_norms
from cort.retrieval.topk import GROUP, Scores, sample_step
from cort.retrieval.vectors import as_tensor

LARGEST = 127
# Passages of one scale; on a GPU numbers of these, since each block has some kernels to start.
BLOCK, NUMBERS_ON_GPU = 65_536, 1 << 28
# Scores held at once: 4 MB, as caches hold.
IN_CACHE = 1 << 20
# Passages whose scores are computed together, at least: a multiple of a group's size, and enough to be worth the call.
LEAST = 1_024
# Codes of a vector come in multiples of this many, the last ones perhaps 0.
WORD = 16
# On a GPU `_int_mm` wants more than 16 rows, and columns in multiples of 8.
ROWS, COLUMNS = 32, 8
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
def is_right(device: str) -> bool:
    """Whether this device multiplies codes, and rightly."""
    one, other = (torch.arange(rows * WORD).remainder(251).sub(125).view(rows, WORD) for rows in (2 * ROWS, 3))
    codes = one.to(device, torch.int8)
    try:
        product = torch._int_mm(codes, _columns(other.to(device, torch.int8)))
    except RuntimeError:  # a GPU that is too old, or another maker's
        return False
    return torch.equal(product[:, : len(other)].cpu(), (one @ other.T).to(torch.int32))


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
        self.count, self._device = count, device
        step, sample = sample_step(count), []
        # The first row of each, how many there are, and the codes.
        self._blocks: list[tuple[int, int, Coded]] = []
        for first, vectors in blocks:
            self._blocks.append((first, len(vectors), _in_rows(encode(vectors.to(device), source, together=True))))
            sample.append(vectors[-first % step :: step].clone())
        self._sampled = sum(map(len, sample))
        self._sample = _in_rows(encode(torch.cat(sample).to(device), source, together=True))
        self._scores = torch.empty(0, dtype=torch.int32, device=device)

    def sampled(self, queries: Tensor) -> Tensor:
        """Multiply queries of shape (queries, e) with a sample of the passages; returns (queries, sample)."""
        asked = encode(queries, QUERIES, together=False)
        products = torch._int_mm(self._sample.codes, _columns(asked.codes))
        found = products[: self._sampled, : len(queries)].T.contiguous()  # for what comes next, in order
        return found * (asked.scale * self._sample.scale)

    def scores(self, queries: Tensor) -> Iterator[Scores]:
        """Multiply queries of shape (queries, e) with all passages; room for scores is used again."""
        asked = encode(queries, QUERIES, together=False)
        columns = _columns(asked.codes)  # (e, queries or more)
        at_once = IN_CACHE if self._device == "cpu" else SCORES_ON_GPU
        rows = max(at_once // columns.shape[1] // LEAST, 1) * LEAST
        for first, count, block in self._blocks:
            units = (block.scale * asked.scale).T  # (1, queries)
            errors = asked.longest * block.rest + asked.rest * (block.longest + block.rest)  # (queries, 1)
            exact = rounding(queries.shape[1]) * asked.longest * block.longest
            margins = 2 * (1.01 * errors + exact).T
            for start in range(0, count, rows):
                codes = block.codes[start : start + rows]
                values = self._room(-(-len(codes) // GROUP) * GROUP, columns.shape[1])
                torch._int_mm(codes, columns, out=values[: len(codes)])
                values[min(len(codes), count - start) :] = NOTHING
                grouped = values.view(GROUP, -1, columns.shape[1])[..., : len(queries)]
                yield Scores(first + start, grouped, units, margins)

    def _room(self, rows: int, queries: int) -> Tensor:
        if len(self._scores) < rows * queries:
            self._scores = torch.empty(rows * queries, dtype=torch.int32, device=self._device)
        return self._scores[: rows * queries].view(rows, queries)


def _in_rows(coded: Coded) -> Coded:
    """Fill codes up to whole rows."""
    return coded._replace(codes=functional.pad(coded.codes, (0, 0, 0, -len(coded.codes) % ROWS)))


def _columns(codes: Tensor) -> Tensor:
    """Lay codes of shape (queries, e) out to be multiplied with: (e, queries), on a GPU perhaps more columns."""
    if codes.device.type != "cpu":
        return columns_on_gpu(codes)
    # In fresh memory: `contiguous` may leave the strides of one query as they are, which `_int_mm` takes amiss.
    return torch.empty(codes.T.shape, dtype=torch.int8).copy_(codes.T)


def columns_on_gpu(codes: Tensor) -> Tensor:
    """Fill codes up with columns of zeros; a view, as columns in memory are multiplied several times as fast."""
    return functional.pad(codes, (0, 0, 0, -len(codes) % COLUMNS)).T


def rows_of_block(dimension: int, device: str) -> int:
    """Tell how many passages have one scale."""
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
