"""What a rehearsal draws at random where neural stages and long searches would have worked: vectors, runs, scores."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.formats import tables
from cort.formats.embeddings import write_shard
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from cort.formats.token_embeddings import to_batch, write_token_shard
from scripts.rehearsal import common
from scripts.rehearsal.common import TRAINING_DEPTH

# Vectors drawn at once.
BLOCK = 65_536
# Passages whose token vectors are drawn at once, as `encode_tokens` writes them; tokens of a passage of MS MARCO's.
PASSAGES_AT_ONCE, TOKENS = 1_024, 70


def write_queries(path: Path, split: Path, count: int) -> None:
    """Write `count` queries: those of a split, again and again if it has not as many."""
    table = tables.read_table(split, tables.QUERIES)
    texts = table["text"].take(pa.array(np.arange(count) % table.num_rows))
    columns = {"query_id": [str(row) for row in range(count)], "text": texts}
    tables.write_table(path, pa.table(columns, schema=tables.QUERIES))


def write_first(path: Path, table: Path, schema: pa.Schema) -> None:
    """Write the first rows of a table, as many as are trained on."""
    tables.write_table(path, tables.read_table(table, schema).slice(0, common.EXAMPLES))


def write_training_run(path: Path, qrels: Path, passages: int) -> None:
    """Write a random run of all judged queries."""
    query_ids = tables.read_table(qrels, tables.QRELS)["query_id"].unique().to_pylist()
    write_random_run(path, query_ids, passages, TRAINING_DEPTH, 1)


def write_vectors(path: Path, ids: pa.ChunkedArray, dimension: int, seed: int) -> None:
    """Write unit vectors in random directions, one per id."""

    def blocks() -> Iterator[tuple[pa.Array, np.ndarray]]:
        for start in range(0, len(ids), BLOCK):
            part = ids.slice(start, BLOCK).combine_chunks()
            generator = np.random.default_rng([seed, start])
            vectors = generator.standard_normal((len(part), dimension), dtype=np.float32)
            yield part, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    write_shard(path, blocks(), model="drawn at random", dimension=dimension, count=len(ids))


def write_token_vectors(path: Path, ids: pa.ChunkedArray, model: Path) -> None:
    """Write unit vectors in random directions for the tokens of passages, as a late-interaction model makes them."""
    # Not above, as torch takes seconds.
    from cort.models.late_interaction import load_token_encoder, origin_of

    origin = origin_of(model, load_token_encoder(model)[0].settings)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(ids), PASSAGES_AT_ONCE):
            generator = np.random.default_rng([3, start])
            part = ids.slice(start, PASSAGES_AT_ONCE).combine_chunks()
            counts = generator.normal(TOKENS, TOKENS / 3, len(part)).astype(np.int64).clip(5, origin.passage_length)
            vectors = generator.standard_normal((counts.sum(), origin.dimension), dtype=np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            yield to_batch(part, vectors.astype(np.float16), counts)

    write_token_shard(path, batches(), origin, len(ids))


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
