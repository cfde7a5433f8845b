"""Exact search on a GPU against the CPU: the same ids and scores, whatever the first pass."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.embeddings import Shard, to_batch
from cort.formats.token_embeddings import TokenShard
from cort.formats.token_embeddings import to_batch as to_token_batch
from cort.retrieval.exact import ExactIndex
from cort.retrieval.max_similarity import TokenIndex
from cort.retrieval.token_scores import QueryVectors
from scripts.gpu.results import Found, same
from scripts.gpu.world import World

Vectors = npt.NDArray[np.float32]
COUNT, DIMENSION, TOKENS = 40_000, 48, 8
#: how many queries at once, and results of each
ASKED = ((1, 1_000), (3, 1_000), (40, 100), (300, 10))


def in_memory(vectors: Vectors) -> Shard:
    """Hold vectors as a file of embeddings would; their ids are their rows."""
    ids = pa.array(np.arange(len(vectors))).cast(pa.string())
    table = pa.Table.from_batches([to_batch(ids, vectors, "fp32")])
    return Shard(Path("vectors"), table, "vectors", vectors.shape[1], "fp32")


def ties(count: int, dimension: int, seed: int) -> Vectors:
    """Draw unit vectors, of which a tenth occurs several times."""
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((count, dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[: count // 10] = vectors[generator.integers(0, max(count // 50, 1), count // 10)]
    return vectors


def equal(
    found: Sequence[tuple[Vectors, npt.NDArray[np.int64]]], other: ExactIndex | TokenIndex, asked: Any, depth: int
) -> bool:
    """Whether another index ranks the same passages with the same scores."""
    pairs = zip(found, other.search(asked, depth), strict=True)
    return all(np.array_equal(one[0], two[0]) and np.array_equal(one[1], two[1]) for one, two in pairs)


def search(world: World, coded: bool | None, devices: int = 1, streamed: bool = False) -> Found:
    """Search for one query to many.

    :param streamed: vectors stay in main memory, as if the GPU had none left.
    """
    rows = COUNT if world.size.passages > 100 else COUNT // 8
    shard = in_memory(ties(rows, DIMENSION, 5))
    full = patch("torch.cuda.mem_get_info", return_value=(0, 0)) if streamed else nullcontext()
    with full:
        index = ExactIndex([shard], [world.device] * devices, 2, coded=coded)
    reference = ExactIndex([shard], coded=False)
    for count, depth in ASKED:
        asked = ties(count, DIMENSION, count)
        if not equal(index.search(asked, depth), reference, asked, depth):
            return same(False)._replace(details={"queries": float(count)})
    return same(True)


def search_tokens(world: World, similarity: str) -> Found:
    """Search by late interaction."""
    rows = 4_000 if world.size.passages > 100 else 300
    generator = np.random.default_rng(6)
    counts = generator.integers(0, 30, rows)
    vectors = ties(int(counts.sum()), DIMENSION, 7).astype(np.float16)
    ids = pa.array(np.arange(rows)).cast(pa.string())
    table = pa.Table.from_batches([to_token_batch(ids, vectors, counts)])
    shard = TokenShard(Path("token vectors"), table, None)  # type: ignore[arg-type]
    asked = [QueryVectors(ties(TOKENS, DIMENSION, seed), np.ones(TOKENS, np.float32)) for seed in range(20)]
    index, reference = (TokenIndex([shard], similarity, device) for device in (world.device, "cpu"))
    return same(equal(index.search(asked, 100), reference, asked, 100))
