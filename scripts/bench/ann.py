"""Measure both graph indexes against exact search: build them, and print recall and time at 10, 100 and 1,000 results.

Vectors are those of texts under a model, or any: one .npy file of unit vectors, of which the last --queries are the
queries. Texts come from a folder with collection.tsv and queries.train.tsv: sentences of the passages, then questions,
as many as --texts says; the last --queries questions are searched for. The model is one of sentence-transformers, or
any BERT-like one with its tokenizer, pooled by the mean; of its vectors the --dimension principal axes are kept.

Usage: python -m scripts.bench.ann --vectors vectors.npy [--queries 200] [--kinds hnsw --M 32]
       python -m scripts.bench.ann --data ../shared/data/squad --base-model FOLDER [--texts 150000]
           [--dimension 128] [--keep vectors.npy]
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.artifacts import read_artifact
from cort.formats.embeddings import open_shards
from cort.formats.tables import QRELS, write_table
from cort.reporting.audits import audit_blocks, audits_table
from cort.reporting.tables import to_markdown
from cort.retrieval.audits import Audit
from scripts.bench.common import make_parser, run_stage, write_encoder, write_passages, write_vectors
from scripts.sandbox import size_of

Vectors = npt.NDArray[np.float32]

DEPTHS = (10, 100, 1000)
WIDTHS: dict[str, list[float]] = {
    "onng": [0, 0.02, 0.05, 0.1, 0.2],
    "hnsw": [10, 20, 50, 100, 200, 500, 1000, 1250, 1500, 1750, 2000, 2500, 4000],
}
# Tokens of a text.
LENGTH = 64
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def read_texts(path: Path) -> list[str]:
    """Read the second column."""
    with open(path, encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t", 1)[1] for line in lines]


def encode_texts(data: Path, model: Path, texts: int, queries: int, folder: Path) -> Vectors:
    """Encode sentences and questions, those to search for last; vectors of shape (texts + queries, width)."""
    passages, questions = read_texts(data / "collection.tsv"), read_texts(data / "queries.train.tsv")
    sentences = [part for passage in passages for part in SENTENCE_END.split(passage) if part.strip()]
    kept = [*[*sentences, *questions[:-queries]][:texts], *questions[-queries:]]
    table = write_passages((f"{row}\t{text}\n" for row, text in enumerate(kept)), folder)
    encoder = write_encoder(model, LENGTH, "angular", folder)
    tokens, vectors, threads = folder / "tokens.arrow", folder / "texts.arrow", len(os.sched_getaffinity(0))
    run_stage("tokenize", "--tokenizer", encoder, "--texts", table, "--output", tokens)
    source = ("--model", encoder, "--tokens", tokens, "--kind", "passage", "--threads", threads)
    run_stage("encode", *source, "--output", vectors)
    return np.concatenate([block for _, block in open_shards([vectors])[0].blocks()])


def principal(vectors: Vectors, dimension: int) -> Vectors:
    """Keep the axes along which vectors differ most, with length 1."""
    if dimension < vectors.shape[1]:
        _, axes = np.linalg.eigh(np.cov(vectors, rowvar=False, dtype=np.float64))
        vectors = (vectors - vectors.mean(0)) @ axes[:, -dimension:].astype(np.float32)
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def write_shards(source: Path, vectors: Vectors, queries: int, folder: Path) -> None:
    """Write vectors as shards, the last ones as queries, and a judgement for each query, as audits want it."""
    if vectors.ndim != 2 or len(vectors) <= queries:
        sys.exit(f"{source}: found an array of shape {vectors.shape}, expected more than {queries} rows; name another")
    for name, part in (("passages", vectors[:-queries]), ("queries", vectors[-queries:])):
        write_vectors(folder / f"{name}.arrow", part, name)
    judged = [[f"queries{row}" for row in range(queries)], ["passages0"] * queries, [1] * queries]
    write_table(folder / "qrels.parquet", pa.table(judged, schema=QRELS))


def audit(kind: str, options: Sequence[object], passages: int, folder: Path) -> Audit:
    """Build an index and measure it; print the seconds of its build, and its size."""
    index, vectors = folder / kind, ("--passages", folder / "passages.arrow")
    seconds = run_stage(kind, *vectors, *options, "--output", index).seconds
    sys.stdout.write(f"{kind}: {passages} vectors built in {seconds:.1f} s, {size_of(index) / 1e6:.0f} MB\n")
    files = ("--queries", folder / "queries.arrow", "--qrels", folder / "qrels.parquet", "--index", index)
    depths = sorted({min(depth, passages) for depth in DEPTHS})
    named = ("--kind", kind, "--encoder", "vectors", "--split", "benchmark", "--output", folder / "audit.json")
    run_stage("audit", *vectors, *files, *named, "--widths", *WIDTHS[kind], "--depths", *depths)
    return read_artifact(folder / "audit.json", Audit)


def main(argv: Sequence[str] | None = None) -> None:
    """Prepare, build, measure, print."""
    parser = make_parser(__doc__)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--vectors", type=Path, metavar="NPY", help="unit vectors, one a row")
    given.add_argument("--data", type=Path, metavar="FOLDER", help="with collection.tsv and queries.train.tsv")
    parser.add_argument("--base-model", type=Path, metavar="FOLDER", help="with --data")
    parser.add_argument("--texts", type=int, default=150_000, metavar="N", help="with --data, at most")
    parser.add_argument("--dimension", type=int, default=128, metavar="N", help="with --data")
    parser.add_argument("--keep", type=Path, metavar="NPY", help="with --data: write the vectors, for --vectors")
    parser.add_argument("--queries", type=int, default=200, metavar="N", help="to search")
    parser.add_argument("--kinds", nargs="+", choices=list(WIDTHS), default=list(WIDTHS))
    parser.add_argument("--M", type=int, default=16, metavar="M", help="of hnsw")
    parser.add_argument("--ef-construction", type=int, default=200, metavar="N", help="of hnsw")
    args = parser.parse_args(argv)
    options = {"hnsw": ("--M", args.M, "--ef-construction", args.ef_construction)}
    if args.data and not args.base_model:
        parser.error("--data needs --base-model")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.data:
            encoded = encode_texts(args.data, args.base_model, args.texts, args.queries, folder)
            vectors = principal(encoded, args.dimension)
            if args.keep:
                np.save(args.keep, vectors)
        else:
            vectors = np.load(args.vectors, allow_pickle=False)
        write_shards(args.vectors or args.data, vectors, args.queries, folder)
        audits = [audit(kind, options.get(kind, ()), len(vectors) - args.queries, folder) for kind in args.kinds]
    sys.stdout.write(f"\n{to_markdown(audits_table(audit_blocks(audits)))}")


if __name__ == "__main__":
    main()
