"""The steps of the dense ranker: examples, training and encoding on a part, and searches of random vectors."""

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import pyarrow as pa

from cort.formats import tables
from scripts.rehearsal import common
from scripts.rehearsal.common import DIMENSION, GRAPH, Step, first_shard, training_outputs
from scripts.rehearsal.drawn import write_first, write_training_run, write_vectors


def neural_steps(folder: Path, passages: int, size: Fraction, model: Path, threads: int) -> Iterator[Step]:
    """Sample examples of a random run; train on a few, and encode a part."""
    for split, count, epochs in (("train", round(502_939 * size), 10), ("validation", max(round(1_000 * size), 1), 1)):
        run, qrels = folder / f"random.{split}.trec", folder / f"qrels.{split}.parquet"
        files = {"run": run, "qrels": qrels, "output_counts": folder / "counts.json"}
        drawn = {"first_rank": 8, "last_rank": 100, "epochs": epochs}
        prepare = partial(write_training_run, run, qrels, passages)
        output = folder / f"triples.{split}.parquet"
        yield Step(f"triples {split}", count, "queries", "of a random run", prepare, **files, **drawn, output=output)
        if split == "train":
            output = folder / "pairs.train.parquet"
            yield Step("pairs train", count, "queries", "of the same run", **files, output=output)
    trained, few, tokens = folder / "encoder", folder / "few.parquet", folder / "passages.tokens.arrow"
    queries = dict.fromkeys(("queries", "validation_queries"), folder / "queries.train.tokens.arrow")
    files = {"base_model": model, "triples": few, "validation_triples": few, "passages": tokens, **queries}
    shape = {"dimension": DIMENSION, "passage_length": 128, "query_length": 32, "gradient_accumulation": 10}
    note = f"a small model, {common.EXAMPLES} triples at every size"
    write = partial(write_first, few, folder / "triples.train.parquet", tables.TRIPLES)
    files |= training_outputs(trained)
    yield Step("train", common.EXAMPLES, "triples", note, write, **files, **shape, threads=threads)
    options = {"model": trained / "last", "tokens": tokens, "kind": "passage", "threads": threads}
    yield first_shard("encode", passages, common.ENCODED, **options, output=folder / "encoded.arrow")


def vector_steps(folder: Path, passages: int, threads: int) -> Iterator[Step]:
    """Search random vectors, all of them exactly, and some in graphs."""
    queries, vectors, few = (folder / f"{name}.arrow" for name in ("queries", "vectors", "few"))
    count = passages // GRAPH

    def write() -> None:
        ids = tables.read_table(folder / "passages.parquet", pa.schema([tables.PASSAGES.field("doc_id")]))["doc_id"]
        asked = pa.chunked_array([[str(row) for row in range(common.DEV_QUERIES)]])
        for path, some, seed in ((vectors, ids, 1), (few, ids.slice(0, count), 1), (queries, asked, 2)):
            write_vectors(path, some, DIMENSION, seed)

    search = {"queries": queries, "depth": common.DEPTH, "threads": threads}
    exact = {**search, "passages": vectors, "device": "cpu", "tag": "cort", "output": folder / "cort.trec"}
    note = f"{common.DEV_QUERIES:,} random queries, random vectors of {DIMENSION} dimensions"
    yield Step("retrieve", passages, "passages", note, write, **exact)
    note, index = f"1 in {GRAPH} of the random vectors", folder / "onng"
    yield Step("onng", count, "passages", note, passages=few, threads=threads, output=index)
    graph = {**search, "kind": "onng", "index": index, "width": 0.1, "tag": "onng", "output": folder / "onng.trec"}
    yield Step("retrieve_graph", count, "passages", note, **graph)
    yield Step("hnsw", count, "passages", note, passages=few, output=folder / "hnsw")
