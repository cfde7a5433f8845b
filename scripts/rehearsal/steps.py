"""The steps of a rehearsal: which stage works on what, at one size.

What neural stages and long searches would make is drawn at random: vectors, runs and scores of the right shape.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.formats import tables
from cort.formats.embeddings import write_shard
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from scripts.rehearsal.synthetic import PASSAGES

DEV_QUERIES, TRAIN_QUERIES = 6_980, 808_731
DIMENSION, DEPTH, TRAINING_DEPTH = 128, 1_000, 100
# Texts encoded, triples trained on and queries of train searched, at every size; the share of vectors in the graph.
ENCODED, TRIPLES, SEARCHED, GRAPH = 16_384, 240, 3_159, 256
MEASURES = ("RR@10", "nDCG@20", "R@50", "R@100", "R@200", "R@500", "R@1000")
# Vectors drawn at once.
BLOCK = 65_536
Prepare = Callable[[], None] | None


class Step:
    """One call of a stage, a module of cort/; its cost should be proportional to the number `n` of `unit`."""

    def __init__(
        self, name: str, n: float, unit: str, note: str = "", prepare: Prepare = None, /, **options: object
    ) -> None:
        self.name, self.n, self.unit, self.note, self.prepare, self.options = name, n, unit, note, prepare, options
        self.stage = name.split()[0]
        self.outputs = [Path(str(path)) for option, path in options.items() if option.startswith("output")]


def steps(folder: Path, size: Fraction, model: Path, threads: int) -> Iterator[Step]:
    """All steps of one size, in order; `model` is a base model made before."""
    passages = max(round(PASSAGES * size), 1_000)
    raw, table = folder / "raw", folder / "passages.parquet"
    yield Step("collection", passages, "passages", passages=raw / "collection.tsv", output=table)
    held_out = {"without": folder / "queries.dev.small.parquet", "sample": max(round(1_000 * size), 1), "seed": 42}
    for name, count in (("train", TRAIN_QUERIES), ("dev.small", DEV_QUERIES), ("validation", 101_093)):
        source, more = ("dev", held_out) if name == "validation" else (name, {})
        files = {kind: raw / f"{kind}.{source}.tsv" for kind in ("queries", "qrels")}
        outputs = {f"output_{kind}": folder / f"{kind}.{name}.parquet" for kind in files}
        yield Step(f"split {name}", round(count * size), "queries", **files, passages=table, **outputs, **more)
    for name, count in (("passages", passages), ("queries.train", round(TRAIN_QUERIES * size))):
        texts, output = folder / f"{name}.parquet", folder / f"{name}.tokens.arrow"
        yield Step(f"tokenize {name}", count, "texts", tokenizer=model, texts=texts, threads=threads, output=output)
    yield from _bm25_steps(folder, passages, threads)
    yield from _neural_steps(folder, passages, size, model, threads)
    yield from _vector_steps(folder, passages, threads)
    yield from _run_steps(folder, passages, size)


def _bm25_steps(folder: Path, passages: int, threads: int) -> Iterator[Step]:
    index, heap = folder / "index", {"threads": threads, "memory_mb": 2_000}
    yield Step("bm25_index", passages, "passages", passages=folder / "passages.parquet", **heap, output=index)
    for name, count, depth in (("dev.small", DEV_QUERIES, DEPTH), ("train", SEARCHED, TRAINING_DEPTH)):
        queries, output = folder / f"all.{name}.parquet", folder / f"bm25.{name}.trec"
        note = f"{count:,} queries at depth {depth} at every size"
        prepare = partial(write_queries, queries, folder / f"queries.{name}.parquet", count)
        options = {"index": index, "queries": queries, "k1": 0.82, "b": 0.68, "depth": depth, "tag": "bm25", **heap}
        yield Step(f"bm25 {name}", passages, "passages", note, prepare, **options, output=output)


def _neural_steps(folder: Path, passages: int, size: Fraction, model: Path, threads: int) -> Iterator[Step]:
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
    note = f"a small model, {TRIPLES} triples at every size"

    def write() -> None:
        tables.write_table(few, tables.read_table(folder / "triples.train.parquet", tables.TRIPLES).slice(0, TRIPLES))

    outputs = {"output": trained, "output_curve": trained / "curve.csv", "output_selection": trained / "selection.json"}
    yield Step("train", TRIPLES, "triples", note, write, **files, **shape, threads=threads, **outputs)
    shards = max(passages // ENCODED, 1)
    options = {"model": trained / "last", "tokens": tokens, "kind": "passage", "shard": f"1-of-{shards}"}
    note, output = f"that model, shard 1 of {shards}", folder / "encoded.arrow"
    yield Step("encode", passages / shards, "passages", note, **options, threads=threads, output=output)


def _vector_steps(folder: Path, passages: int, threads: int) -> Iterator[Step]:
    queries, vectors, few = (folder / f"{name}.arrow" for name in ("queries", "vectors", "few"))
    count = passages // GRAPH

    def write() -> None:
        ids = tables.read_table(folder / "passages.parquet", pa.schema([tables.PASSAGES.field("doc_id")]))["doc_id"]
        asked = pa.chunked_array([[str(row) for row in range(DEV_QUERIES)]])
        for path, some, seed in ((vectors, ids, 1), (few, ids.slice(0, count), 1), (queries, asked, 2)):
            write_vectors(path, some, DIMENSION, seed)

    search = {"queries": queries, "depth": DEPTH, "threads": threads}
    exact = {**search, "passages": vectors, "device": "cpu", "tag": "cort", "output": folder / "cort.trec"}
    note = f"{DEV_QUERIES:,} random queries, random vectors of {DIMENSION} dimensions"
    yield Step("retrieve", passages, "passages", note, write, **exact)
    note, index = f"1 in {GRAPH} of the random vectors", folder / "onng"
    yield Step("onng", count, "passages", note, passages=few, threads=threads, output=index)
    graph = {**search, "kind": "onng", "index": index, "width": 0.1, "tag": "onng", "output": folder / "onng.trec"}
    yield Step("retrieve_graph", count, "passages", note, **graph)
    yield Step("hnsw", count, "passages", note, passages=few, output=folder / "hnsw")


def _run_steps(folder: Path, passages: int, size: Fraction) -> Iterator[Step]:
    count = max(round(DEV_QUERIES * size), 1)
    first, second = runs = [folder / f"run{number}.trec" for number in (1, 2)]
    scores, answered = folder / "scores.parquet", folder / "queries.answered.parquet"
    queries, qrels = ({kind: folder / f"{kind}.dev.small.parquet"} for kind in ("queries", "qrels"))

    def write() -> None:
        ids = tables.read_table(qrels["qrels"], tables.QRELS)["query_id"].unique().to_pylist()[:count]
        for number, run in enumerate(runs):
            write_random_run(run, ids, passages, min(DEPTH, passages // 2), number)
        write_random_scores(scores, first, 1)
        tables.write_table(answered, pa.table({"query_id": ids, "text": ids}, schema=tables.QUERIES))

    def call(name: str, output: str, **options: object) -> Step:
        prepare = write if name == "fuse" else None
        return Step(name, count * DEPTH, "results", "random runs", prepare, **options, output=folder / output)

    per_query, recall = folder / "measures.parquet", folder / "recall.csv"
    table, split = {"passages": folder / "passages.parquet"}, {"split": "dev.small"}
    named, ranked = {"system": "x", **split}, {"candidates": first, "scores": scores}
    ranks = [*(2**power for power in range(10) if 2**power < DEPTH), DEPTH]
    yield call("fuse", "merged.trec", runs=runs, depth=DEPTH, tag="x")
    yield call("import_run", "imported.trec", run=first, **queries, **table, tag="x")
    more: dict[str, object] = {"output_per_query": per_query, "output_recall": recall}
    yield call("evaluate", "measures.json", run=first, **queries, **qrels, measures=MEASURES, **named, **more)
    more = {"output_table": folder / "compared.csv", "output_queries": folder / "differences.csv", "seed": 42}
    both = {"systems": ["x", "y"], "per_query": [per_query] * 2, "recall": [recall] * 2}
    yield call("compare", "compared.json", baseline="x", **both, **queries, **split, **more)
    yield call("rerank", "reranked.trec", **ranked, depth=DEPTH, tag="x")
    yield call("depths", "depths.json", **ranked, **qrels, depths=ranks, measures=["RR@10", "nDCG@20"], **named)
    more = {"reference": second, "reference_name": "y", "depths": ranks}
    yield call("consistency", "consistency.json", run=first, **more, **named)
    yield call("submission", "submission.tsv", run=first, queries=answered, **table, form="msmarco")
    more = {"first": first, "second": second, "first_name": "a", "second_name": "b"}
    yield call("disagreements", "disagreements.json", **more, **queries, **qrels, **table, **split)


def write_queries(path: Path, split: Path, count: int) -> None:
    """Write `count` queries: those of a split, again and again if it has not as many."""
    table = tables.read_table(split, tables.QUERIES)
    texts = table["text"].take(pa.array(np.arange(count) % table.num_rows))
    columns = {"query_id": [str(row) for row in range(count)], "text": texts}
    tables.write_table(path, pa.table(columns, schema=tables.QUERIES))


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
