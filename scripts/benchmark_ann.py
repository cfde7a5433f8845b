"""Measure both graph indexes against exact search: build them, and print recall and time at 10, 100 and 1,000 results.

Vectors are those of a text collection under a model, or any: one .npy file of unit vectors, of which the last --queries
are the queries. A text collection is a folder with collection.tsv and queries.train.tsv (and qrels.train.tsv, for the
queries that count), a model one of sentence-transformers, or any BERT-like one with its tokenizer, pooled by the mean.

Usage: python scripts/benchmark_ann.py --vectors vectors.npy [--queries 200]
       python scripts/benchmark_ann.py --data ../shared/data/squad --language-model FOLDER
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from cort.audit import OPEN, audit_exact, audit_searches, find_truth, sample_queries
from cort.formats.audits import PARAMETERS, Audit
from cort.formats.embeddings import Shard, open_shards, write_shard
from cort.measures import Qrels
from cort.reporting.audits import audit_blocks, audits_table
from cort.reporting.tables import to_markdown

ROOT = Path(__file__).parents[1]
DEPTHS = (10, 100, 1000)
WIDTHS: dict[str, list[float]] = {
    "onng": [0, 0.02, 0.05, 0.1, 0.2],
    "hnsw": [10, 20, 50, 100, 200, 500, 1000, 1500, 2000, 4000],
}
LENGTH = 256
SEED = 1


def run(stage: str, *options: object) -> float:
    """Run a stage; the seconds it took."""
    started = time.perf_counter()
    command = [sys.executable, "-m", f"cort.{stage}", *map(str, options)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip().splitlines()[-1])
    return time.perf_counter() - started


def encode_texts(data: Path, model: Path, folder: Path) -> tuple[Path, Path]:
    """Encode passages and judged queries of a text collection; their shards."""
    passages, queries, language_model = folder / "passages", folder / "queries", folder / "lm"
    run("collection", "--passages", data / "collection.tsv", "--output", f"{passages}.parquet")
    split = ("--queries", data / "queries.train.tsv", "--qrels", data / "qrels.train.tsv")
    outputs = ("--output-queries", f"{queries}.parquet", "--output-qrels", folder / "qrels.parquet")
    run("split", *split, "--passages", f"{passages}.parquet", "--unjudged-queries", "drop", *outputs)
    run("language_model", "--pretrained", model, "--output", language_model)
    sizes = json.loads((language_model / "config.json").read_text(encoding="utf-8"))
    shape = ("--pooling", "mean", "--projection", "False", "--dimension", sizes["hidden_size"])
    length = min(LENGTH, sizes.get("max_position_embeddings", LENGTH))
    lengths = ("--query-length", length, "--passage-length", length)
    weights = ("--weights", language_model / "model.safetensors", "--language-model", language_model)
    run("import_encoder", *weights, *shape, *lengths, "--output", folder / "encoder")
    for kind, path in (("passage", passages), ("query", queries)):
        run("tokenize", "--tokenizer", language_model, "--texts", f"{path}.parquet", "--output", f"{path}.tokens.arrow")
        source = ("--model", folder / "encoder" / "best", "--tokens", f"{path}.tokens.arrow", "--kind", kind)
        run("encode", *source, "--output", f"{path}.arrow")
    return Path(f"{passages}.arrow"), Path(f"{queries}.arrow")


def cut_vectors(path: Path, queries: int, folder: Path) -> tuple[Path, Path]:
    """Write the vectors of a file as shards, the last ones as queries."""
    vectors = np.load(path, allow_pickle=False)
    if vectors.ndim != 2 or len(vectors) <= queries:
        sys.exit(f"{path}: found an array of shape {vectors.shape}, expected more than {queries} rows; name another")
    parts = {"passages": vectors[:-queries], "queries": vectors[-queries:]}
    for name, part in parts.items():
        blocks = [([f"{name}{row}" for row in range(len(part))], part)]
        write_shard(folder / f"{name}.arrow", blocks, model="file", dimension=vectors.shape[1], count=len(part))
    return folder / "passages.arrow", folder / "queries.arrow"


def audits(passages: Path, queries: Shard, folder: Path, kinds: Sequence[str]) -> Iterator[tuple[Audit, float, int]]:
    """Build each index and measure it; its audit, the seconds of its build, and its bytes."""
    shards = open_shards([passages])
    count = shards[0].table.num_rows
    depths = sorted({min(depth, count) for depth in DEPTHS})
    truth = find_truth(shards, queries, depths[-1], {})
    exact = list(audit_exact(shards, truth, depths))
    for kind in kinds:
        index = folder / kind
        seconds = run(kind, "--passages", passages, "--output", index)
        size = sum(path.stat().st_size for path in index.iterdir())
        searches = list(audit_searches(OPEN[kind](str(index)), truth, WIDTHS[kind], depths))
        number = queries.table.num_rows
        yield (
            Audit("benchmark", "vectors", kind, PARAMETERS[kind], shards[0].model, count, number, exact, searches),
            seconds,
            size,
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Prepare, build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--vectors", type=Path, metavar="NPY", help="unit vectors, one a row")
    source.add_argument("--data", type=Path, metavar="FOLDER", help="collection, queries.train, qrels.train")
    parser.add_argument("--language-model", type=Path, metavar="FOLDER", help="with --data")
    parser.add_argument("--queries", type=int, default=200, metavar="N", help="to search")
    parser.add_argument("--kinds", nargs="+", choices=list(PARAMETERS), default=list(PARAMETERS))
    args = parser.parse_args(argv)
    if args.data and not args.language_model:
        parser.error("--data needs --language-model")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.data:
            passages, asked = encode_texts(args.data.resolve(), args.language_model.resolve(), folder)
        else:
            passages, asked = cut_vectors(args.vectors, args.queries, folder)
        shards = open_shards([asked])
        known: Qrels = {query_id: {} for query_id in shards[0].table["id"].to_pylist()}
        queries = sample_queries(shards, known, args.queries, SEED)
        measured = list(audits(passages, queries, folder, args.kinds))
    for audit, seconds, size in measured:
        sys.stdout.write(f"{audit.index}: {audit.passages} vectors built in {seconds:.1f} s, {size / 1e6:.0f} MB\n")
    sys.stdout.write(f"\n{to_markdown(audits_table(audit_blocks([audit for audit, _, _ in measured])))}")


if __name__ == "__main__":
    main()
