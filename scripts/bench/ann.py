"""Measure both graph indexes against exact search: build them, and print recall and time at 10, 100 and 1,000 results.

Vectors are those of texts under a model, or any: one .npy file of unit vectors, of which the last --queries are the
queries. Texts come from a folder with collection.tsv and queries.train.tsv: sentences of the passages, then questions,
as many as --texts says; the last --queries questions are searched for. The model is one of sentence-transformers, or
any BERT-like one with its tokenizer, pooled by the mean; of its vectors the --dimension principal axes are kept.

Usage: python scripts/benchmark_ann.py --vectors vectors.npy [--queries 200] [--kinds hnsw --M 32]
       python scripts/benchmark_ann.py --data ../shared/data/squad --base-model FOLDER [--texts 150000]
           [--dimension 128] [--keep vectors.npy]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cort.audit import audit_exact, audit_searches, find_truth, sample_queries
from cort.evaluation.measures import Qrels
from cort.formats.embeddings import Shard, open_shards, write_shard
from cort.reporting.audits import audit_blocks, audits_table
from cort.reporting.tables import to_markdown
from cort.retrieval.audits import Audit
from cort.retrieval.graph import Vectors
from cort.retrieval.graphs import GRAPHS
from scripts.sandbox import run_stage

DEPTHS = (10, 100, 1000)
WIDTHS: dict[str, list[float]] = {
    "onng": [0, 0.02, 0.05, 0.1, 0.2],
    "hnsw": [10, 20, 50, 100, 200, 500, 1000, 1250, 1500, 1750, 2000, 2500, 4000],
}
# Tokens of a text.
LENGTH = 64
SEED = 1
BLOCK = 4_096
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def read_texts(path: Path) -> list[str]:
    """Read the second column."""
    with open(path, encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t", 1)[1] for line in lines]


def write_texts(data: Path, texts: int, queries: int, folder: Path) -> None:
    """Write sentences and questions as passages, and the last questions as passages behind them."""
    passages, questions = read_texts(data / "collection.tsv"), read_texts(data / "queries.train.tsv")
    sentences = [one for passage in passages for one in SENTENCE_END.split(passage) if one.strip()]
    kept = [*sentences, *questions[:-queries]][:texts]
    rows = (f"{row}\t{text}\n" for row, text in enumerate([*kept, *questions[-queries:]]))
    (folder / "collection.tsv").write_text("".join(rows), encoding="utf-8", newline="\n")


def encode_texts(data: Path, model: Path, texts: int, queries: int, folder: Path) -> Vectors:
    """Encode texts, those to search for last; vectors of shape (texts + queries, width of the model)."""
    write_texts(data, texts, queries, folder)
    passages, base_model = folder / "texts", folder / "lm"
    run_stage("collection", "--passages", folder / "collection.tsv", "--output", f"{passages}.parquet")
    run_stage("base_model", "--pretrained", model, "--output", base_model)
    sizes = json.loads((base_model / "config.json").read_text(encoding="utf-8"))
    shape = ("--pooling", "mean", "--projection", "False", "--dimension", sizes["hidden_size"])
    length = min(LENGTH, sizes.get("max_position_embeddings", LENGTH))
    lengths = ("--query-length", length, "--passage-length", length)
    weights = ("--weights", base_model / "model.safetensors", "--base-model", base_model)
    run_stage("import_encoder", *weights, *shape, *lengths, "--output", folder / "encoder")
    tokens = f"{passages}.tokens.arrow"
    run_stage("tokenize", "--tokenizer", base_model, "--texts", f"{passages}.parquet", "--output", tokens)
    threads = ("--threads", len(os.sched_getaffinity(0)))
    source = ("--model", folder / "encoder" / "best", "--tokens", tokens, "--kind", "passage")
    run_stage("encode", *source, *threads, "--output", f"{passages}.arrow")
    return np.concatenate([vectors for _, vectors in open_shards([f"{passages}.arrow"])[0].blocks()])


def principal(vectors: Vectors, dimension: int) -> Vectors:
    """Keep the axes along which vectors differ most, with length 1."""
    if dimension < vectors.shape[1]:
        _, axes = np.linalg.eigh(np.cov(vectors, rowvar=False, dtype=np.float64))
        vectors = (vectors - vectors.mean(0)) @ axes[:, -dimension:].astype(np.float32)
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def cut_vectors(source: Path, vectors: Vectors, queries: int, folder: Path) -> tuple[Path, Path]:
    """Write the vectors of a file or of texts as shards, the last ones as queries."""
    if vectors.ndim != 2 or len(vectors) <= queries:
        sys.exit(f"{source}: found an array of shape {vectors.shape}, expected more than {queries} rows; name another")
    parts = {"passages": vectors[:-queries], "queries": vectors[-queries:]}
    for name, part in parts.items():
        ids = [f"{name}{row}" for row in range(len(part))]
        blocks = ((ids[at : at + BLOCK], part[at : at + BLOCK]) for at in range(0, len(part), BLOCK))
        write_shard(folder / f"{name}.arrow", blocks, model="file", dimension=vectors.shape[1], count=len(part))
    return folder / "passages.arrow", folder / "queries.arrow"


def audits(
    passages: Path, queries: Shard, folder: Path, kinds: Mapping[str, Sequence[object]]
) -> Iterator[tuple[Audit, float, int]]:
    """Build each index with the given options and measure it; its audit, the seconds of its build, and its bytes."""
    shards = open_shards([passages])
    count = shards[0].table.num_rows
    depths = sorted({min(depth, count) for depth in DEPTHS})
    truth = find_truth(shards, queries, depths[-1], {})
    exact = list(audit_exact(shards, truth, depths))
    for kind, options in kinds.items():
        index = folder / kind
        seconds = run_stage(kind, "--passages", passages, *options, "--output", index)
        size = sum(path.stat().st_size for path in index.iterdir())
        searches = list(audit_searches(GRAPHS[kind], GRAPHS[kind].open(index), truth, WIDTHS[kind], depths))
        named = ("benchmark", "vectors", kind, GRAPHS[kind].parameter, shards[0].model)
        yield Audit(*named, count, queries.table.num_rows, exact, searches), seconds, size


def main(argv: Sequence[str] | None = None) -> None:
    """Prepare, build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--vectors", type=Path, metavar="NPY", help="unit vectors, one a row")
    given.add_argument("--data", type=Path, metavar="FOLDER", help="with collection.tsv and queries.train.tsv")
    parser.add_argument("--base-model", type=Path, metavar="FOLDER", help="with --data")
    parser.add_argument("--texts", type=int, default=150_000, metavar="N", help="with --data, at most")
    parser.add_argument("--dimension", type=int, default=128, metavar="N", help="with --data")
    parser.add_argument("--keep", type=Path, metavar="NPY", help="with --data: write the vectors, for --vectors")
    parser.add_argument("--queries", type=int, default=200, metavar="N", help="to search")
    parser.add_argument("--kinds", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--M", type=int, default=16, metavar="M", help="of hnsw")
    parser.add_argument("--ef-construction", type=int, default=200, metavar="N", help="of hnsw")
    args = parser.parse_args(argv)
    options = {"hnsw": ("--M", args.M, "--ef-construction", args.ef_construction)}
    if args.data and not args.base_model:
        parser.error("--data needs --base-model")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.data:
            source, model = args.data.resolve(), args.base_model.resolve()
            vectors = principal(encode_texts(source, model, args.texts, args.queries, folder), args.dimension)
            if args.keep:
                np.save(args.keep, vectors)
        else:
            vectors = np.load(args.vectors, allow_pickle=False)
        passages, asked = cut_vectors(args.vectors or args.data, vectors, args.queries, folder)
        shards = open_shards([asked])
        known: Qrels = {query_id: {} for query_id in shards[0].table["id"].to_pylist()}
        queries = sample_queries(shards, known, args.queries, SEED)
        measured = list(audits(passages, queries, folder, {kind: options.get(kind, ()) for kind in args.kinds}))
    for audit, seconds, size in measured:
        sys.stdout.write(f"{audit.index}: {audit.passages} vectors built in {seconds:.1f} s, {size / 1e6:.0f} MB\n")
    sys.stdout.write(f"\n{to_markdown(audits_table(audit_blocks([audit for audit, _, _ in measured])))}")


if __name__ == "__main__":
    main()
