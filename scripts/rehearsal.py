"""Run every stage on a collection of MS MARCO's size, and measure time, memory, disk and their growth.

For each size, a synthetic collection with MS MARCO's counts and lengths is generated, and the stages run in sequence.
Stages that are too slow without a GPU run on a part, named in the table; outputs of neural stages (vectors, token
vectors, runs, scores, predicted queries) are random. Measurements are kept in the folder, so that a call resumes.

Usage: python -m scripts.rehearsal --folder FOLDER [--sizes 1/64 1/16 1/4 1]
           [--steps explorer "bm25 train"]     only these, by stage or name; their inputs must exist
"""

import json
import math
import os
import resource
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cort.formats import tables
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from cort.formats.shards import token_vector_batch, write_shard, write_token_shard
from scripts.bench.common import parse, print_table, run_stage, words
from scripts.sandbox import ROOT, size_of

Ids = npt.NDArray[np.int64]
Options = dict[str, Any]

PASSAGES = 8_841_823
# Queries, and how many of them are judged, with one passage each; dev without dev.small.
SPLITS = {"train": (808_731, 502_939), "dev": (94_113, 48_598), "dev.small": (6_980, 6_980)}
# Words follow a Zipf-Mandelbrot distribution over as many terms as Lucene finds in MS MARCO; exponent and shift fit a
# sample of its passages. The most frequent words are Lucene's stop words.
TERMS, EXPONENT, SHIFT = 2_660_824, 1.05, 2.0
STOP_WORDS = "the of a to and is in for or that are on it with as by be at an this if not such their there these they"
# Words of a passage (log-normal, 56 on average) and of a query (at least 2, 5.9 on average), with the maximum.
PASSAGE, QUERY = (3.95, 0.39, 300), (3.92, 30)
BLOCK = 65_536
# Independent of the size: evaluated queries and results per query; queries of train, for expanded passages and for late
# interaction.
DEV, DEPTH, SEARCHED, CHANGED, LATE = 6_980, 1_000, 3_159, 1_000, 16
# The graph has 1 in IN_GRAPH vectors; 1 in WITH_TOKENS passages has token vectors, TOKENS on average.
IN_GRAPH, WITH_TOKENS, TOKENS, DIMENSION = 256, 16, 70, 128
# Predicted queries per passage, and words per query.
PREDICTED, PREDICTED_WORDS = 40, 7
# Steps are named after rules. Commands of those that are not named after their stage:
COMMANDS = {
    **{kind: f"index {kind}" for kind in ("hnsw", "onng")},
    **{f"retrieve_{kind}": f"retrieve {kind}" for kind in ("graph", "tokens")},
    **{name: f"analyze {name}" for name in ("depths", "consistency", "disagreements")},
    **{"bm25": "retrieve bm25", "bm25_index": "index bm25", "retrieve": "retrieve exact"},
    "import_expansions": "expand import",
}
ARCHITECTURE = {
    **{"model_type": "bert", "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4},
    "intermediate_size": 256,
}


@cache
def vocabulary() -> pa.Array:
    """All words by rank: stop words, then numbers."""
    stop_words = STOP_WORDS.split()
    return pa.concat_arrays([pa.array(stop_words, pa.string()), strings(np.arange(len(stop_words), TERMS))])


def join_words(known: pa.Array, ids: Ids, lengths: Ids) -> pa.Array:
    """Texts with these numbers of words, from the indexes of all their words."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), known.take(pa.array(ids))), " ")


def draw_texts(generator: np.random.Generator, lengths: Ids) -> pa.Array:
    """Draw words by inverse transform sampling."""
    power = 1.0 - EXPONENT
    low, high = SHIFT**power, (TERMS + SHIFT) ** power
    ranks = (low + (high - low) * generator.random(int(lengths.sum()))) ** (1.0 / power) - SHIFT
    return join_words(vocabulary(), np.minimum(ranks.astype(np.int64), TERMS - 1), lengths)


def write_tsv(path: Path, *columns: Any, append: bool = False) -> None:
    """Write columns separated by tabs."""
    options = pa.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    with open(path, "ab" if append else "wb") as handle:
        pa.csv.write_csv(pa.table(list(columns), [str(number) for number in range(len(columns))]), handle, options)


def strings(numbers: Any) -> pa.Array:
    """Numbers as ids."""
    return pa.array(numbers).cast(pa.string())


def generate(folder: Path, size: Fraction) -> None:
    """Write collection.tsv, and queries and qrels of train, dev and dev.small (a part of dev)."""
    folder.mkdir(parents=True, exist_ok=True)
    passages, first = max(round(PASSAGES * size), 1_000), 0
    for start in range(0, passages, BLOCK):
        generator, count = np.random.default_rng([1, start]), min(BLOCK, passages - start)
        lengths = np.exp(generator.normal(*PASSAGE[:2], count)).astype(np.int64).clip(2, PASSAGE[2])
        ids = strings(np.arange(start, start + count))
        write_tsv(folder / "collection.tsv", ids, draw_texts(generator, lengths), append=start > 0)
    for name, counts in SPLITS.items():
        queries, judged = (max(round(count * size), 2) for count in counts)
        generator = np.random.default_rng(first + 2)
        texts = draw_texts(generator, np.minimum(2 + generator.poisson(QUERY[0], queries), QUERY[1]))
        ids, relevant = strings(np.arange(first, first + queries)), strings(generator.integers(passages, size=judged))
        first += queries
        judgements = ids[:judged], pa.repeat("0", judged), relevant, pa.repeat("1", judged)
        for file in {name, name.removesuffix(".small")}:
            # Those of dev.small also follow dev's own.
            write_tsv(folder / f"queries.{file}.tsv", ids, texts, append=file != name)
            write_tsv(folder / f"qrels.{file}.tsv", *judgements, append=file != name)


def write_predictions(path: Path, passages: Path) -> None:
    """Write predicted queries, made of the words of passages, in docTTTTTquery's layout: a zip of samples and parts."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for part, batch in enumerate(tables.iter_batches(passages, tables.PASSAGES, BLOCK)):
            split, generator = pc.split_pattern(batch["text"], " "), np.random.default_rng(part)
            lengths = pc.list_value_length(split).to_numpy().astype(np.int64)
            starts, counts = np.cumsum(lengths) - lengths, np.full(len(lengths), PREDICTED_WORDS)
            for sample in range(PREDICTED):
                drawn = (generator.random((len(lengths), PREDICTED_WORDS)) * lengths[:, None]).astype(np.int64)
                queries = join_words(split.flatten(), (drawn + starts[:, None]).reshape(-1), counts)
                name = f"predicted_queries_sample{sample:03d}.txt{part:03d}-{len(lengths)}"
                archive.writestr(name, "\n".join([*queries.to_pylist(), ""]))


def unit(generator: np.random.Generator, count: int) -> Any:
    """Draw vectors of length 1."""
    vectors = generator.standard_normal((count, DIMENSION), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def write_vectors(path: Path, count: int, seed: int) -> None:
    """Write random vectors as `encode vectors` does."""
    parts = (np.arange(at, min(at + BLOCK, count)) for at in range(0, count, BLOCK))
    blocks = ((strings(rows), unit(np.random.default_rng([seed, rows[0]]), len(rows))) for rows in parts)
    write_shard(path, blocks, model="drawn at random", dimension=DIMENSION, count=count)


def write_token_vectors(path: Path, count: int, base: Path, model: Path) -> None:
    """Write random vectors as `encode tokens` does, with a late-interaction model of random weights."""
    # Imported here, since torch takes seconds.
    from cort.models.late_interaction import load_late_interaction, new_late_interaction, origin_of
    from cort.models.settings import PairSettings

    settings = PairSettings(32, 128, kind="late_interaction", dimension=DIMENSION)
    model.mkdir()
    new_late_interaction(base, settings, 1).save(model)
    origin = origin_of(model, load_late_interaction(model))

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, count, 1_024):
            generator, ids = np.random.default_rng([3, start]), strings(np.arange(start, min(start + 1_024, count)))
            counts = generator.normal(TOKENS, TOKENS / 3, len(ids)).astype(np.int64).clip(5, origin.passage_length)
            yield token_vector_batch(ids, unit(generator, int(counts.sum())).astype(np.float16), counts)

    write_token_shard(path, batches(), origin, count)


def write_random_run(path: Path, qrels: Path, passages: int, depth: int, seed: int = 1) -> None:
    """Write a run of all judged queries, with a passage from each of `depth` equal parts of the collection."""
    generator, scores = np.random.default_rng(seed), 1.0 / np.arange(1, depth + 1)
    query_ids = tables.read_table(qrels, tables.QRELS)["query_id"].unique().to_pylist()
    part = passages // depth
    drawn = (generator.permutation(np.arange(depth) * part + generator.integers(part, size=depth)) for _ in query_ids)
    rankings = (
        Ranking(query_id, rows.astype(str).tolist(), scores) for query_id, rows in zip(query_ids, drawn, strict=True)
    )
    write_run(path, rankings, path.stem)


def write_random_scores(path: Path, run: Path) -> None:
    """Score every pair of a run at random."""
    from cort.score import distinct_pairs

    pairs = distinct_pairs([read_run(run)], DEPTH)
    scores = np.random.default_rng(1).standard_normal(pairs.num_rows, dtype=np.float32)
    tables.write_table(path, pairs.append_column("score", pa.array(scores)).cast(tables.SCORES))


def write_queries(path: Path, split: Path, count: int) -> None:
    """Write `count` queries of a split, repeatedly if it has fewer."""
    texts, rows = tables.read_table(split, tables.QUERIES)["text"], np.arange(count)
    columns = {"query_id": strings(rows), "text": texts.take(pa.array(rows % len(texts)))}
    tables.write_table(path, pa.table(columns, schema=tables.QUERIES))


class Step(NamedTuple):
    """A call of a stage, named by the first word; its cost should be proportional to the number `n` of `unit`."""

    name: str
    n: float
    unit: str
    options: Options
    note: str = ""
    prepare: Callable[[], object] | None = None


def steps(folder: Path, size: Fraction, model: Path, threads: int) -> Iterator[Step]:
    """All steps of a size, in order; `model` is a base model."""
    at, passages = folder.joinpath, max(round(PASSAGES * size), 1_000)
    table: Options = {"passages": at("passages.parquet")}
    raw = {"passages": at("raw/collection.tsv"), "output": at("passages.parquet")}
    yield Step("collection", passages, "passages", raw)
    sample = {"without": at("queries.dev.small.parquet"), "sample": max(round(1_000 * size), 1), "seed": 42}
    for name, source, more in (("train", "train", {}), ("dev.small", "dev.small", {}), ("validation", "dev", sample)):
        files = {kind: at(f"raw/{kind}.{source}.tsv") for kind in ("queries", "qrels")}
        outputs = {f"output_{kind}": at(f"{kind}.{name}.parquet") for kind in files}
        yield Step(f"split {name}", round(SPLITS[source][0] * size), "queries", {**files, **table, **outputs, **more})
    for name, count in (("passages", passages), ("queries.train", round(SPLITS["train"][0] * size))):
        files = {"tokenizer": model, "texts": at(f"{name}.parquet"), "output": at(f"{name}.arrow")}
        yield Step(f"tokenize {name}", count, "texts", {**files, "threads": threads})
    yield from lexical_steps(at, passages, {"threads": threads, "memory_mb": 2_000})
    yield from vector_steps(at, passages, model, threads)
    yield from run_steps(at, passages, size)


def lexical_steps(at: Callable[[str], Path], passages: int, cores: Options) -> Iterator[Step]:
    """Index and search the original and the expanded passages."""
    table, note = {"passages": at("passages.parquet")}, f"{PREDICTED} random queries of {PREDICTED_WORDS} words each"
    files = {"predictions": at("queries.zip"), "queries": PREDICTED, "output": at("queries.parquet")}
    index: Options = {**table, **cores, "output": at("index")}
    yield Step("bm25_index", passages, "passages", index)
    write = partial(write_predictions, at("queries.zip"), at("passages.parquet"))
    yield Step("import_expansions", passages, "passages", {**table, **files}, note, write)
    expanded: Options = {"expansions": at("queries.parquet"), "output": at("expanded.index")}
    yield Step("bm25_index expanded", passages, "passages", index | expanded, note)
    searches = [("dev.small", "dev.small", DEV, DEPTH), ("train", "train", SEARCHED, 100)]
    for name, split, count, depth in (*searches, ("expanded", "dev.small", CHANGED, DEPTH)):
        queries, folder = at(f"searched.{name}"), at("expanded.index" if name == "expanded" else "index")
        how = {"k1": 0.82, "b": 0.68, "tag": "bm25", "depth": depth, "queries": queries, "index": folder, **cores}
        write = partial(write_queries, queries, at(f"queries.{split}.parquet"), count)
        note, output = f"{count:,} queries at depth {depth}", {"output": at(f"bm25.{name}.trec")}
        yield Step(f"bm25 {name}", passages, "passages", how | output, note, write)


def vector_steps(at: Callable[[str], Path], passages: int, model: Path, threads: int) -> Iterator[Step]:
    """Search random vectors exactly, a part of them in graphs, and the token vectors of another part."""
    queries, vectors, few, late = (at(f"{name}.arrow") for name in ("queries", "vectors", "few", "late.vectors"))
    late_queries, count = at("late.queries.arrow"), passages // IN_GRAPH

    def write() -> None:
        write_vectors(vectors, passages, seed=1)
        write_vectors(few, count, seed=1)
        write_vectors(queries, DEV, seed=2)

    def write_late() -> None:
        write_token_vectors(late, passages // WITH_TOKENS, model, at("late"))
        write_queries(at("late.queries"), at("queries.dev.small.parquet"), LATE)
        run_stage("tokenize", tokenizer=model, texts=at("late.queries"), output=late_queries)

    search = {"queries": queries, "depth": DEPTH, "threads": threads, "tag": "x"}
    exact = {**search, "passages": vectors, "device": "cpu", "output": at("exact.trec")}
    yield Step("retrieve", passages, "passages", exact, f"{DEV:,} random queries", write)
    note = f"1 in {IN_GRAPH} of the random vectors"
    yield Step("onng", count, "passages", {"passages": few, "threads": threads, "output": at("onng")}, note)
    graph = {**search, "kind": "onng", "index": at("onng"), "width": 0.1, "output": at("onng.trec")}
    yield Step("retrieve_graph", count, "passages", graph, note)
    yield Step("hnsw", count, "passages", {"passages": few, "output": at("hnsw")}, note)
    tokens = {**search, "queries": late_queries, "model": at("late"), "passages": late, "output": at("late.trec")}
    note = f"{LATE} queries; random token vectors of 1 in {WITH_TOKENS} passages"
    yield Step("retrieve_tokens", passages // WITH_TOKENS, "passages", tokens, note, write_late)


def run_steps(at: Callable[[str], Path], passages: int, size: Fraction) -> Iterator[Step]:
    """Sample training examples from a random run; fuse, import, evaluate, re-rank, export and show two others."""
    qrels, run, judged = at("qrels.train.parquet"), at("train.trec"), round(SPLITS["train"][1] * size)
    for stage in ("triples", "pairs"):
        write = partial(write_random_run, run, qrels, passages, 100) if stage == "triples" else None
        drawn = {"run": run, "qrels": qrels, "first_rank": 8, "last_rank": 100, "epochs": 10}
        outputs = {"output": at(f"{stage}.parquet"), "output_counts": at(f"{stage}.json")}
        yield Step(stage, judged, "queries", {**drawn, **outputs}, "of a random run", write)
    runs, scores = [at("1.trec"), at("2.trec")], at("scores")
    per_query, recall = at("measures.parquet"), at("recall.csv")
    queries, judgements = ({kind: at(f"{kind}.dev.small.parquet")} for kind in ("queries", "qrels"))
    ranks, table = [*(2**power for power in range(10) if 2**power < DEPTH), DEPTH], {"passages": at("passages.parquet")}

    def write_runs() -> None:
        for number, path in enumerate(runs):
            write_random_run(path, judgements["qrels"], passages, min(DEPTH, passages // 2), number)
        write_random_scores(scores, runs[0])

    single, named = {"run": runs[0]}, {"system": "x", "split": "dev.small"}
    both, ranked = {"systems": ["x", "y"], "per_query": [per_query] * 2}, {"candidates": runs[0], "scores": scores}
    measured = {"measures": ["RR@10", *(f"R@{k}" for k in (50, 100, 200, 500, 1000))], "output_per_query": per_query}
    compared = {"output_table": at("compared.csv"), "output_queries": at("differences.csv"), "seed": 42}
    others = {"reference": runs[1], "reference_name": "y", "depths": ranks}
    sides = {"first": runs[0], "second": runs[1], "first_name": "x", "second_name": "y", "split": "dev.small"}
    shown = {"dataset": "synthetic", "split": "dev.small", "runs": runs}
    calls: dict[str, Options] = {
        "fuse": {"runs": runs, "depth": DEPTH, "tag": "x"},
        "import_run": {**single, **queries, **table, "tag": "x"},
        "evaluate": {**single, **queries, **judgements, **named, **measured, "output_recall": recall},
        "compare": {"baseline": "x", **both, "recall": [recall] * 2, **queries, "split": "dev.small", **compared},
        "rerank": {**ranked, "depth": DEPTH, "tag": "x"},
        "depths": {**ranked, **judgements, "depths": ranks, "measures": ["RR@10", "nDCG@20"], **named},
        "consistency": {**single, **others, **named},
        "submission": {**single, **queries},
        "disagreements": {**sides, **queries, **judgements, **table},
        "explorer": {**shown, **both, **queries, **judgements, **table},
    }
    for stage, options in calls.items():
        n, output = max(round(DEV * size), 2) * DEPTH, {"output": at(f"{stage}.made")}
        yield Step(stage, n, "results", options | output, "random runs", write_runs if stage == "fuse" else None)


def measure(command: Sequence[str], folder: Path) -> dict[str, float]:
    """Run a command; return seconds, CPU seconds, and peaks of memory without and with file pages and of disk (GB)."""
    before, started, cpu = size_of(folder), time.perf_counter(), cpu_of_children()
    process, peaks = subprocess.Popen(command, cwd=ROOT), np.zeros(3)
    while process.poll() is None:
        with suppress(psutil.Error):
            parent = psutil.Process(process.pid)
            memory = [each.memory_info() for each in (parent, *parent.children(recursive=True))]
            own, resident = sum(each.rss - each.shared for each in memory), sum(each.rss for each in memory)
            peaks = np.maximum(peaks, (own, resident, size_of(folder) - before))
        time.sleep(0.2)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: status {process.returncode}")
    costs = {"seconds": time.perf_counter() - started, "cpu": cpu_of_children() - cpu}
    return costs | dict(zip(("own", "resident", "disk"), (peaks / 1e9).tolist(), strict=True))


def cpu_of_children() -> float:
    """CPU seconds of all ended processes that this one and its children started."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def rows(measured: Sequence[Options]) -> Iterator[list[str]]:
    """Yield a row per step with its largest size; growth is the exponent of CPU time between the last two sizes."""
    by_name: dict[str, list[Options]] = {}
    for measurement in sorted(measured, key=lambda measurement: Fraction(measurement["size"])):
        by_name.setdefault(measurement["name"], []).append(measurement)
    for name, sizes in by_name.items():
        last, growth = sizes[-1], ""
        if len(sizes) > 1 and last["n"] > sizes[-2]["n"]:
            growth = f"{math.log(last['cpu'] / sizes[-2]['cpu']) / math.log(last['n'] / sizes[-2]['n']):.2f}"
        seconds = ", ".join(f"{size['seconds']:.0f} at {size['size']}" for size in sizes)
        cells = [f"{last['cpu']:.0f}", *(f"{last[key]:.2f}" for key in ("own", "resident", "disk", "kept"))]
        yield [f"`{name}`", f"{last['n']:,.0f} {last['unit']}", seconds, growth, *cells, last["note"]]


def rehearse(folder: Path, size: Fraction, threads: int, wanted: Sequence[str] = ()) -> list[Options]:
    """Run all or the wanted steps of a size that were not measured before; return all measurements."""
    place, path = folder / str(size).replace("/", "-of-"), folder / "measurements.jsonl"
    known: list[Options] = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    if not (place / "raw" / "qrels.dev.small.tsv").exists():
        generate(place / "raw", size)
    for step in steps(place, size, folder / "model", threads):
        stage, named = step.name.split()[0], {"name": step.name, "size": str(size)}
        done = any(named.items() <= measurement.items() for measurement in known)
        if done or (wanted and not {step.name, stage} & {*wanted}):
            continue
        if step.prepare:
            step.prepare()
        command = f"cort.{COMMANDS.get(stage, stage)}".split()
        cost = measure([sys.executable, "-m", *command, *words(step.options)], place)
        kept = sum(size_of(file) for option, file in step.options.items() if option.startswith("output"))
        known.append({**cost, **named, "n": step.n, "unit": step.unit, "note": step.note, "kept": kept / 1e9})
        path.write_text("".join(json.dumps(measurement) + "\n" for measurement in known), "utf-8")
        sys.stderr.write(f"{step.name} at {size}: {cost['seconds']:.1f} s, {cost['own']:.2f} GB\n")
    return known


def main() -> None:
    """Rehearse from the smallest size, with a base model made from its passages; print the table."""
    sizes = [Fraction(1, 4**power) for power in (3, 2, 1, 0)]
    args = parse(__doc__, folder=Path, sizes=sizes, steps=["all"], threads=len(os.sched_getaffinity(0)))
    folder = args.folder.resolve()
    if not (folder / "model").exists():
        generate(folder / "raw", min(*args.sizes, Fraction(1, 64)))
        run_stage("collection", passages=folder / "raw" / "collection.tsv", output=folder / "passages.parquet")
        options = {"architecture": json.dumps(ARCHITECTURE), "passages": folder / "passages.parquet"}
        run_stage("base_model", **options, output=folder / "model")
    wanted = [stage for stage in args.steps if stage != "all"]
    measured = [rehearse(folder, size, args.threads, wanted) for size in sorted(args.sizes)][-1]
    heads = ("stage", "n", "seconds", "growth", "CPU s", "memory, GB", "with file pages", "disk, GB", "kept, GB", "")
    print_table(rows(measured), heads)


if __name__ == "__main__":
    main()
