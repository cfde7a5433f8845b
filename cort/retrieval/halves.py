"""The first pass of exact search on a GPU: products of copies in half precision, half the bytes of single precision.

A vector d is (h + r) / s: a scale s, a power of two that all passages share, a half-precision h, and the rounding
residual r. So is a query. Their products are exact, and added in single precision. The lengths of the residuals bound
how far the sums are from the products of the vectors (`topk.bound_rounding`), so that no passage that may be among the
top k is lost.

What is found gets its exact score on the GPU too, except where the order of additions could show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from cort.retrieval.topk import (
    QUERIES,
    FirstPass,
    bound_errors,
    bound_rounding,
    longest_of,
    moved,
    norms_of,
    sample_step,
    score_blocks,
    scores_at_once,
    vector_norms,
)
from cort.retrieval.vectors import PassageVectors

# Scaled numbers are below 2 to the power of this, so that most are normal numbers in half precision, whose largest one
# is just below 2^16.
EXPONENT = 15
# Tensor cores cut sums off where others round them, and align them before: up to 2.5 times the error. With a margin.
CUT_OFF = 4
UNIT_ROUNDOFF = 2.0**-53
# Numbers in double precision held at once for exact scores: 1 GB.
NUMBERS_AT_ONCE = 1 << 27
# Vectors may take so much of the free memory of a GPU; scores and candidates need the rest.
SHARE = 0.75
# Passages, queries and dimension with which a GPU has to show that it adds in single precision.
PROBED = 64, 8, 768


def multiply(passages: Tensor, queries: Tensor, out: Tensor) -> None:
    """Multiply in half precision and add in single precision: (rows, e) and (queries, e) to (rows, queries)."""
    if out.is_cuda:
        torch.mm(passages, queries.T, torch.float32, out=out)
    else:
        torch.mm(passages.float(), queries.float().T, out=out)


def is_right(device: str) -> bool:
    """Whether this device, with this version of torch, adds products of halves in single precision."""
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    count, asked, dimension = PROBED
    numbers = torch.arange((count + asked) * dimension, dtype=torch.float64).mul(0.7).sin().view(-1, dimension)
    rows, queries = torch.split(numbers.half(), [count, asked])
    exact = rows.double() @ queries.double().T  # (rows, queries)
    products = torch.empty(count, asked, device=device)
    try:
        multiply(rows.to(device), queries.to(device), products)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    lengths = norms_of(rows.float()) * norms_of(queries.float()).T
    return bool(((products.cpu() - exact).abs() <= CUT_OFF * bound_errors(lengths, dimension)).all())


def fit(vectors: PassageVectors, rows: range, device: str, bytes_each: int = 2) -> bool:
    """Whether numbers of so many bytes, of the vectors in these rows, fit on a device."""
    free = torch.cuda.mem_get_info(device)[0] if device != "cpu" else math.inf
    return len(rows) * vectors.dimension * bytes_each <= SHARE * free


def scale_of(norms: Tensor) -> Tensor:
    """Return the power of two that scales vectors of these lengths."""
    return torch.ldexp(torch.ones_like(norms), EXPONENT - torch.frexp(norms).exponent)


class Halves:
    """The passages in some rows, held on one device: in half precision and, if they fit, as they are stored.

    :raises InputError: for NaN, infinite and very large values.
    """

    def __init__(self, vectors: PassageVectors, rows: range, device: str) -> None:
        self.count, self._rows, self._device = len(rows), rows, device
        self._longest = longest_of(vectors, rows, device)
        self._scale, self._residual = float(scale_of(torch.tensor(self._longest))), 0.0
        # Halves take 2 bytes, and stored numbers 4.
        both, shape = fit(vectors, rows, device, 6), (self.count, vectors.dimension)
        self._halves = torch.empty(shape, dtype=torch.float16, device=device)
        self._stored = torch.empty(shape, device=device) if both else None
        for place, piece in moved(vectors, rows, device):
            halves = self._halves[place]
            halves.copy_(scaled := piece * self._scale)
            self._residual = max(self._residual, float(norms_of(scaled - halves).max()))
            if self._stored is not None:
                self._stored[place] = piece

    def first_pass(self, queries: Tensor) -> FirstPass:
        """Multiply queries, (queries, e), with a sample of the passages; the result can multiply them with all."""
        lengths = vector_norms(queries, QUERIES)  # (queries, 1)
        scaled = queries * (scale := scale_of(lengths))
        halves, lengths, longest = scaled.half(), lengths * scale, self._longest * self._scale
        errors = bound_rounding(lengths, norms_of(scaled - halves), longest, self._residual)  # (queries, 1)
        errors = errors + CUT_OFF * bound_errors(lengths * longest, queries.shape[1])
        moved = halves.to(self._device)
        sample = self._halves[:: sample_step(self.count)]
        sampled = torch.empty(len(sample), len(queries), device=self._device)
        multiply(sample, moved, sampled)
        return FirstPass(sampled.T, 2 * errors.T.to(self._device), partial(self._scores, moved), group=1)

    def _scores(self, queries: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Multiply with all passages."""

        def multiply_some(rows: range, scores: Tensor) -> None:
            start = rows.start - self._rows.start
            multiply(self._halves[start : start + len(rows)], queries, scores)

        at_once = scores_at_once(self._device, len(queries))
        return score_blocks(self._rows, len(queries), at_once, self._device, multiply_some)

    def exact(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Score in double precision, and round to single precision.

        :param queries: (queries, e), on the CPU.
        :param rows: of passages, (queries, candidates).
        :returns: NaN where another order of additions could round otherwise, and for all if the vectors did not fit.
        """
        scores = torch.full(rows.shape, torch.nan, device=self._device)
        if self._stored is None:
            return scores
        # Both sides err by up to e u |q| |d|.
        bound = 2.02 * (queries.shape[1] + 8) * UNIT_ROUNDOFF * self._longest
        errors = (bound * norms_of(queries).double()).to(self._device)  # (queries, 1)
        asked = queries.to(self._device, torch.float64)[:, :, None]  # (queries, e, 1)
        at_once = max(NUMBERS_AT_ONCE // queries.numel(), 1)
        for some, found in zip(torch.split(rows, at_once, 1), torch.split(scores, at_once, 1), strict=True):
            passages = self._stored[(some - self._rows.start).clamp(min=0)].double()  # (queries, candidates, e)
            products = torch.bmm(passages, asked)[:, :, 0]  # (queries, candidates)
            low, high = (products - errors).float(), (products + errors).float()
            found.copy_(low.where(low == high, torch.nan))
        return scores
