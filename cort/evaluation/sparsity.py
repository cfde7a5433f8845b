"""How sparse the vectors of a sparse encoder are, which decides how long searches take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import cort.formats.arrow  # noqa: F401 - first of all that uses pyarrow


@dataclass(frozen=True)
class Sparsity:
    """Mean number of terms of a query and of a passage, and FLOPS.

    FLOPS is the expected number of terms that a query and a passage, both drawn at random, share: the sum over all
    terms of the shares of queries and of passages that have it (Formal et al., 2021).
    """

    encoder: str
    split: str
    queries: int
    passages: int
    query_terms: float
    passage_terms: float
    flops: float


def shares(batches: Iterable[pa.RecordBatch]) -> tuple[int, npt.NDArray[np.float64]]:
    """Return the number of texts, and by token id the share of texts that have an impact for it."""
    texts, counts = 0, np.zeros(0)
    for batch in batches:
        new = np.bincount(batch["tokens"].flatten().to_numpy(), minlength=len(counts)).astype(np.float64)
        new[: len(counts)] += counts
        texts, counts = texts + len(batch), new
    return texts, counts / max(texts, 1)


def measure_sparsity(
    encoder: str, split: str, queries: Iterable[pa.RecordBatch], passages: Iterable[pa.RecordBatch]
) -> Sparsity:
    """Measure batches of impacts."""
    (number, in_queries), (count, in_passages) = shares(queries), shares(passages)
    common = min(len(in_queries), len(in_passages))
    flops = float(in_queries[:common] @ in_passages[:common])
    return Sparsity(encoder, split, number, count, float(in_queries.sum()), float(in_passages.sum()), flops)
