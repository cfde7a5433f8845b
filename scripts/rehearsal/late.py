"""The steps of late interaction: a small model, which encodes a part, and searches of random token vectors."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from cort.formats import tables
from scripts.bench.common import run_stage
from scripts.rehearsal import common
from scripts.rehearsal.common import DIMENSION, LATE, Step, first_shard, training_outputs
from scripts.rehearsal.drawn import write_first, write_queries, write_token_vectors

SHAPE = {"kind": "late_interaction", "dimension": DIMENSION, "max_length": 128, "query_length": 32}


def late_steps(folder: Path, passages: int, model: Path, threads: int) -> Iterator[Step]:
    """Train on a few pairs, encode a part, search the token vectors of a part."""
    few, trained, tokens = folder / "few.pairs.parquet", folder / "late", folder / "passages.tokens.arrow"
    queries = dict.fromkeys(("queries", "validation_queries"), folder / "queries.train.tokens.arrow")
    files = {"base_model": model, "pairs": few, "validation_pairs": few, "passages": tokens, **queries}
    note = f"a small late-interaction model, {common.EXAMPLES} pairs at every size"
    write = partial(write_first, few, folder / "pairs.train.parquet", tables.PAIRS)
    options = {**SHAPE, "gradient_accumulation": 10, "threads": threads, **training_outputs(trained)}
    yield Step("train_reranker", common.EXAMPLES, "pairs", note, write, **files, **options)
    options = {"model": trained / "last", "tokens": tokens, "threads": threads}
    yield first_shard("encode_tokens", passages, common.ENCODED, **options, output=folder / "token_vectors.arrow")
    yield _search(folder, passages // LATE, model, trained / "last", threads)


def _search(folder: Path, count: int, model: Path, trained: Path, threads: int) -> Step:
    vectors, asked = folder / "token_vectors.drawn.arrow", folder / "few.queries.parquet"
    tokens = folder / "few.queries.tokens.arrow"

    def write() -> None:
        ids = tables.read_table(folder / "passages.parquet", pa.schema([tables.PASSAGES.field("doc_id")]))["doc_id"]
        write_token_vectors(vectors, ids.slice(0, count), trained)
        write_queries(asked, folder / "queries.dev.small.parquet", common.LATE_QUERIES)
        run_stage("tokenize", tokenizer=model, texts=asked, output=tokens)

    note = f"{common.LATE_QUERIES} queries at every size; random token vectors of 1 in {LATE} passages"
    files = {"model": trained, "queries": tokens, "passages": vectors, "output": folder / "late.trec"}
    return Step(
        "retrieve_tokens", count, "passages", note, write, **files, depth=common.DEPTH, threads=threads, tag="late"
    )
