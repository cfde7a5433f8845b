"""The steps of a rehearsal: which stage works on what, at one size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import pyarrow as pa

from cort.formats import tables
from scripts.rehearsal import fake_artifacts
from scripts.rehearsal.synthetic import PASSAGES

DEV_QUERIES, TRAIN_QUERIES = 6_980, 808_731
DIMENSION, DEPTH, TRAINING_DEPTH = 128, 1_000, 100
# Texts encoded, triples trained on and queries of train searched, at every size; the share of vectors in the graph.
ENCODED, TRIPLES, SEARCHED, GRAPH = 16_384, 240, 3_159, 256
MEASURES = ("RR@10", "nDCG@20", "R@50", "R@100", "R@200", "R@500", "R@1000")


@dataclass(frozen=True)
class Step:
    """One call of a stage: its options and outputs; its cost should be proportional to the number `n` of `unit`."""

    name: str
    n: float
    unit: str
    options: Sequence[object]
    outputs: Sequence[Path]
    note: str = ""
    prepare: Callable[[], None] | None = field(default=None, compare=False)

    @property
    def stage(self) -> str:
        """Module of cort/."""
        return self.name.split()[0]


def steps(folder: Path, size: Fraction, model: Path, threads: int) -> Iterator[Step]:
    """All steps of one size, in order.

    :param model: a base model made before.
    """
    passages = max(round(PASSAGES * size), 1_000)
    raw, table = folder / "raw", folder / "passages.parquet"
    use = ("--threads", threads)
    yield Step("collection", passages, "passages", ("--passages", raw / "collection.tsv", "--output", table), [table])
    for name, count in (("train", round(TRAIN_QUERIES * size)), ("dev.small", round(DEV_QUERIES * size))):
        files = [folder / f"{kind}.{name}.parquet" for kind in ("queries", "qrels")]
        yield Step(f"split {name}", count, "queries", _split(raw, name, table, files), files)
    files = [folder / f"{kind}.validation.parquet" for kind in ("queries", "qrels")]
    more = ("--without", folder / "queries.dev.small.parquet", "--sample", max(round(1_000 * size), 1), "--seed", 42)
    yield Step("split validation", round(101_093 * size), "queries", (*_split(raw, "dev", table, files), *more), files)
    for name, count in (("passages", passages), ("queries.train", round(TRAIN_QUERIES * size))):
        output = folder / f"{name}.tokens.arrow"
        texts = ("--tokenizer", model, "--texts", folder / f"{name}.parquet", *use, "--output", output)
        yield Step(f"tokenize {name}", count, "texts", texts, [output])
    yield from _bm25_steps(folder, passages, threads)
    yield from _neural_steps(folder, passages, size, model, threads)
    yield from _vector_steps(folder, passages, threads)
    yield from _run_steps(folder, passages, size)


def _split(raw: Path, name: str, table: Path, files: Sequence[Path]) -> tuple[object, ...]:
    sources = ("--queries", raw / f"queries.{name}.tsv", "--qrels", raw / f"qrels.{name}.tsv", "--passages", table)
    return (*sources, "--output-queries", files[0], "--output-qrels", files[1])


def _bm25_steps(folder: Path, passages: int, threads: int) -> Iterator[Step]:
    index = folder / "index"
    heap = ("--threads", threads, "--memory-mb", 2_000)
    build = ("--passages", folder / "passages.parquet", *heap, "--output", index)
    yield Step("bm25_index", passages, "passages", build, [index])
    searches = (("dev.small", DEV_QUERIES, DEPTH), ("train", SEARCHED, TRAINING_DEPTH))
    for name, count, depth in searches:
        run, queries = folder / f"bm25.{name}.trec", folder / f"all.{name}.parquet"
        options = ("--index", index, "--queries", queries, "--k1", 0.82, "--b", 0.68, "--depth", depth, *heap)
        note = f"{count:,} queries at depth {depth} at every size"
        prepare = _queries_from(folder, name, count)
        yield Step(
            f"bm25 {name}", passages, "passages", (*options, "--tag", "bm25", "--output", run), [run], note, prepare
        )


def _queries_from(folder: Path, name: str, count: int) -> Callable[[], None]:
    """Write `count` queries: those of a split, again and again if it has not as many."""

    def write() -> None:
        table = tables.read_table(folder / f"queries.{name}.parquet", tables.QUERIES)
        texts = [table["text"][row % table.num_rows].as_py() for row in range(count)]
        columns = {"query_id": [str(row) for row in range(count)], "text": texts}
        tables.write_table(folder / f"all.{name}.parquet", pa.table(columns, schema=tables.QUERIES))

    return write


def _neural_steps(folder: Path, passages: int, size: Fraction, model: Path, threads: int) -> Iterator[Step]:
    judged = round(502_939 * size)
    for split in ("train", "validation"):
        run, output = folder / f"random.{split}.trec", folder / f"triples.{split}.parquet"
        count = judged if split == "train" else max(round(1_000 * size), 1)
        ranks = ("--first-rank", 8, "--last-rank", 100, "--epochs", 10 if split == "train" else 1)
        qrels = ("--qrels", folder / f"qrels.{split}.parquet", "--output-counts", folder / "counts.json")
        prepare = _training_run(folder, split, passages)
        drawn: tuple[object, ...] = (*qrels, "--run", run, *ranks, "--output", output)
        yield Step(f"triples {split}", count, "queries", drawn, [output], "of a random run", prepare)
        if split == "train":
            output = folder / "pairs.train.parquet"
            drawn = (*qrels, "--run", run, "--output", output)
            yield Step("pairs train", count, "queries", drawn, [output], "of the same run")
    output, few = folder / "encoder", folder / "few.parquet"
    tokens = {name: folder / f"{name}.tokens.arrow" for name in ("passages", "queries.train")}
    options: list[object] = ["--base-model", model, "--triples", few, "--validation-triples", few]
    options += ["--passages", tokens["passages"], "--queries", tokens["queries.train"]]
    options += ["--validation-queries", tokens["queries.train"], "--dimension", DIMENSION, "--passage-length", 128]
    options += ["--query-length", 32, "--gradient-accumulation", 10, "--threads", threads, "--output", output]
    options += ["--output-curve", output / "curve.csv"]
    note = f"a small model, {TRIPLES} triples at every size"
    yield Step("train", TRIPLES, "triples", options, [output / "last" / "cort.json"], note, _few_triples(folder))
    shards = max(passages // ENCODED, 1)
    output = folder / "encoded.arrow"
    options = ["--model", folder / "encoder" / "last", "--tokens", tokens["passages"], "--kind", "passage"]
    options += ["--shard", f"1-of-{shards}", "--threads", threads, "--output", output]
    yield Step("encode", passages / shards, "passages", options, [output], f"that model, shard 1 of {shards}")


def _training_run(folder: Path, split: str, passages: int) -> Callable[[], None]:
    def write() -> None:
        qrels = tables.read_table(folder / f"qrels.{split}.parquet", tables.QRELS)
        queries = qrels["query_id"].unique().to_pylist()
        fake_artifacts.write_random_run(folder / f"random.{split}.trec", queries, passages, TRAINING_DEPTH, 1)

    return write


def _few_triples(folder: Path) -> Callable[[], None]:
    def write() -> None:
        table = tables.read_table(folder / "triples.train.parquet", tables.TRIPLES)
        tables.write_table(folder / "few.parquet", table.slice(0, TRIPLES))

    return write


def _vector_steps(folder: Path, passages: int, threads: int) -> Iterator[Step]:
    queries, vectors, few = (folder / f"{name}.arrow" for name in ("queries", "vectors", "few"))
    count = passages // GRAPH

    def write() -> None:
        ids = tables.read_table(folder / "passages.parquet", pa.schema([tables.PASSAGES.field("doc_id")]))["doc_id"]
        fake_artifacts.write_vectors(vectors, ids, DIMENSION, 1)
        fake_artifacts.write_vectors(few, ids.slice(0, count), DIMENSION, 1)
        asked = pa.chunked_array([[str(row) for row in range(DEV_QUERIES)]])
        fake_artifacts.write_vectors(queries, asked, DIMENSION, 2)

    search = ("--queries", queries, "--depth", DEPTH, "--threads", threads)
    run, approximate, index = folder / "cort.trec", folder / "onng.trec", folder / "onng"
    exact = (*search, "--passages", vectors, "--device", "cpu", "--tag", "cort", "--output", run)
    note = f"{DEV_QUERIES:,} random queries, random vectors of {DIMENSION} dimensions"
    yield Step("retrieve", passages, "passages", exact, [run], note, write)
    note = f"1 in {GRAPH} of the random vectors"
    build = ("--passages", few, "--threads", threads, "--output", index)
    yield Step("onng", count, "passages", build, [index / "meta.json"], note)
    graph = (*search, "--kind", "onng", "--index", index, "--width", 0.1, "--tag", "onng", "--output", approximate)
    yield Step("retrieve_graph", count, "passages", graph, [approximate], note)
    index = folder / "hnsw"
    yield Step("hnsw", count, "passages", ("--passages", few, "--output", index), [index / "meta.json"], note)


def _run_steps(folder: Path, passages: int, size: Fraction) -> Iterator[Step]:
    count = max(round(DEV_QUERIES * size), 1)
    runs = [folder / f"run{number}.trec" for number in (1, 2)]
    scores, qrels = folder / "scores.parquet", folder / "qrels.dev.small.parquet"
    answered = folder / "queries.answered.parquet"

    def write() -> None:
        ids = tables.read_table(qrels, tables.QRELS)["query_id"].unique().to_pylist()[:count]
        for number, run in enumerate(runs):
            fake_artifacts.write_random_run(run, ids, passages, min(DEPTH, passages // 2), number)
        fake_artifacts.write_random_scores(scores, runs[0], 1)
        tables.write_table(answered, pa.table({"query_id": ids, "text": ids}, schema=tables.QUERIES))

    def step(name: str, output: Path, *options: object, note: str = "random runs") -> Step:
        prepare = write if name == "fuse" else None
        return Step(name, count * DEPTH, "results", (*options, "--output", output), [output], note, prepare)

    queries = ("--queries", folder / "queries.dev.small.parquet")
    passages_table = ("--passages", folder / "passages.parquet")
    named = ("--system", "x", "--split", "dev.small")
    merged, imported, reranked = (folder / f"{name}.trec" for name in ("merged", "imported", "reranked"))
    yield step("fuse", merged, "--runs", *runs, "--depth", DEPTH, "--tag", "x")
    yield step("import_run", imported, "--run", runs[0], *queries, *passages_table, "--tag", "x")
    measured = ("--run", runs[0], *queries, "--qrels", qrels, "--measures", *MEASURES, *named)
    per_query = ("--output-per-query", folder / "measures.parquet", "--output-recall", folder / "recall.csv")
    yield step("evaluate", folder / "measures.json", *measured, *per_query)
    both = ("--systems", "x", "y", "--per-query", *[folder / "measures.parquet"] * 2)
    both = (*both, "--recall", *[folder / "recall.csv"] * 2, *queries, "--split", "dev.small", "--seed", 42)
    tables_of = ("--output-table", folder / "compared.csv", "--output-queries", folder / "differences.csv")
    yield step("compare", folder / "compared.json", "--baseline", "x", *both, *tables_of)
    candidates = ("--candidates", runs[0], "--scores", scores)
    yield step("rerank", reranked, *candidates, "--depth", DEPTH, "--tag", "x")
    numbers = (*(2**power for power in range(10) if 2**power < DEPTH), DEPTH)
    depths = ("--depths", *numbers, "--measures", "RR@10", "nDCG@20", *named)
    yield step("depths", folder / "depths.json", *candidates, "--qrels", qrels, *depths)
    compared = ("--run", runs[0], "--reference", runs[1], "--reference-name", "y", "--depths", *numbers)
    yield step("consistency", folder / "consistency.json", *compared, *named)
    handed_in = ("--run", runs[0], "--queries", answered, *passages_table, "--form", "msmarco")
    yield step("submission", folder / "submission.tsv", *handed_in)
    pair = ("--first", runs[0], "--second", runs[1], "--first-name", "a", "--second-name", "b", *queries)
    yield step(
        "disagreements", folder / "disagreements.json", *pair, "--qrels", qrels, *passages_table, "--split", "dev.small"
    )
