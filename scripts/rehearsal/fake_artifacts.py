"""What neural stages and long searches would make, drawn at random: vectors, runs and scores of the right shape."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.formats import tables
from cort.formats.embeddings import write_shard
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run

BLOCK = 65_536
MODEL = "drawn at random"


def write_vectors(path: Path, ids: pa.ChunkedArray, dimension: int, seed: int) -> None:
    """Write unit vectors in random directions, one per id."""

    def blocks() -> Iterator[tuple[pa.Array, np.ndarray]]:
        for start in range(0, len(ids), BLOCK):
            part = ids.slice(start, BLOCK).combine_chunks()
            generator = np.random.default_rng([seed, start])
            vectors = generator.standard_normal((len(part), dimension), dtype=np.float32)
            yield part, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    write_shard(path, blocks(), model=MODEL, dimension=dimension, count=len(ids))


def write_random_run(path: Path, query_ids: list[str], passages: int, depth: int, seed: int) -> None:
    """Write a run of `depth` passages per query, spread evenly over a collection whose ids are row numbers."""
    generator = np.random.default_rng(seed)
    scores = 1.0 / np.arange(1, depth + 1)
    # One passage of each of `depth` equal parts of the collection, so that none comes twice.
    part = passages // depth

    def rankings() -> Iterator[Ranking]:
        for query_id in query_ids:
            numbers = np.arange(depth) * part + generator.integers(part, size=depth)
            yield Ranking(query_id, generator.permutation(numbers).astype(str).tolist(), scores)

    write_run(path, rankings(), path.stem)


def write_random_scores(path: Path, run: Path, seed: int) -> None:
    """Score every pair of a run at random."""
    from cort.score import distinct_pairs

    pairs = distinct_pairs([read_run(run)], 1_000)
    scores = np.random.default_rng(seed).standard_normal(pairs.num_rows, dtype=np.float32)
    tables.write_table(path, pairs.append_column("score", pa.array(scores)).cast(tables.SCORES))
