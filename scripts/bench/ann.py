"""Measure both graph indexes against exact search: build them, and print recall and time at 10, 100 and 1,000 results.

Vectors are those of texts under a model, or any: one .npy file of unit vectors, of which the last --queries are the
queries. Texts come from a folder with collection.tsv and queries.train.tsv: sentences of the passages, then questions,
then two and more sentences that follow each other, as many as --texts says; the last --queries questions are searched
for. The model is one of sentence-transformers, or any BERT-like one with its tokenizer, pooled by the mean; of its
vectors the --dimension principal axes are kept, and written to the file of --keep, for --vectors. --passages takes the
first of the vectors only. --M and --ef-construction are those of HNSW.

Usage: python -m scripts.bench.ann --vectors vectors.npy [--queries 200] [--passages 100000] [--kinds hnsw --M 32]
       python -m scripts.bench.ann --data ../shared/data/squad --base-model FOLDER [--texts 150000] [--keep NPY]
"""

import itertools
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.formats.artifacts import read_artifact
from cort.formats.embeddings import all_vectors, open_shards
from cort.formats.raw import iter_passages, iter_queries
from cort.formats.tables import QRELS, write_table
from cort.reporting.audits import audit_blocks, audits_table
from cort.reporting.tables import to_markdown
from cort.retrieval.audits import Audit
from scripts.bench.common import Vectors, parse, run_stage, write_encoder, write_passages, write_vectors
from scripts.sandbox import size_of

DEPTHS = (10, 100, 1000)
WIDTHS: dict[str, list[float]] = {
    "onng": [0, 0.02, 0.05, 0.1, 0.2],
    "hnsw": [10, 20, 50, 100, 200, 500, 1000, 1250, 1500, 1750, 2000, 2500, 4000],
}
# Tokens of a text.
LENGTH = 64
# Sentences of texts that are more than one.
LONGER = (2, 3, 4)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def encode_texts(data: Path, model: Path, texts: int, queries: int, precision: str, folder: Path) -> Vectors:
    """Encode sentences and questions, those to search for last; vectors of shape (texts + queries, width)."""
    passages = (passage.text for _, passage in iter_passages(data / "collection.tsv"))
    questions = [query.text for _, query in iter_queries(data / "queries.train.tsv")]
    sentences = [[part for part in SENTENCE_END.split(passage) if part.strip()] for passage in passages]
    found = itertools.chain(windows(sentences, 1), questions[:-queries], *(windows(sentences, n) for n in LONGER))
    kept = [*itertools.islice(found, texts), *questions[-queries:]]
    table = write_passages((f"{row}\t{text}\n" for row, text in enumerate(kept)), folder)
    encoder = write_encoder(model, LENGTH, "angular", folder)
    tokens, vectors, threads = folder / "tokens.arrow", folder / "texts.arrow", len(os.sched_getaffinity(0))
    run_stage("tokenize", tokenizer=encoder, texts=table, output=tokens)
    how = {"kind": "passage", "precision": precision, "threads": threads}
    run_stage("encode", model=encoder, tokens=tokens, **how, output=vectors)
    return all_vectors(open_shards([vectors]))


def windows(passages: Iterable[Sequence[str]], size: int) -> Iterator[str]:
    """Join so many sentences that follow each other, at every place of every passage."""
    for sentences in passages:
        for start in range(len(sentences) - size + 1):
            yield " ".join(sentences[start : start + size])


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


def audit(kind: str, options: Mapping[str, int], passages: int, folder: Path) -> Audit:
    """Build an index and measure it; print the seconds of its build, and its size."""
    index, vectors = folder / kind, folder / "passages.arrow"
    seconds = run_stage(kind, passages=vectors, **options, output=index).seconds
    sys.stdout.write(f"{kind}: {passages} vectors built in {seconds:.1f} s, {size_of(index) / 1e6:.0f} MB\n")
    files = {"queries": folder / "queries.arrow", "qrels": folder / "qrels.parquet", "output": folder / "audit.json"}
    named = {"kind": kind, "encoder": "vectors", "split": "benchmark", "widths": WIDTHS[kind]}
    depths = sorted({min(depth, passages) for depth in DEPTHS})
    run_stage("audit", passages=vectors, index=index, **files, **named, depths=depths)
    return read_artifact(files["output"], Audit)


def main() -> None:
    """Prepare, build, measure, print."""
    numbers = {"texts": 150_000, "dimension": 128, "queries": 200, "M": 16, "ef_construction": 200}
    files = dict.fromkeys(("vectors", "data", "base_model", "keep"))
    args = parse(__doc__, **files, **numbers, passages=0, precision="fp32", kinds=list(WIDTHS))
    wrong = bool(args.vectors) == bool(args.data) or (args.data and not args.base_model)
    if wrong or set(args.kinds) - WIDTHS.keys():
        sys.exit(f"expected either --vectors or --data with --base-model, and --kinds of {', '.join(WIDTHS)}")
    options = {"hnsw": {"M": args.M, "ef_construction": args.ef_construction}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.data:
            encoded = encode_texts(args.data, args.base_model, args.texts, args.queries, args.precision, folder)
            vectors = principal(encoded, args.dimension)
            if args.keep:
                np.save(args.keep, vectors)
        else:
            vectors = np.load(args.vectors, allow_pickle=False)
        if args.passages:
            vectors = np.concatenate([vectors[: args.passages], vectors[-args.queries :]])
        write_shards(args.vectors or args.data, vectors, args.queries, folder)
        audits = [audit(kind, options.get(kind, {}), len(vectors) - args.queries, folder) for kind in args.kinds]
    sys.stdout.write(f"\n{to_markdown(audits_table(audit_blocks(audits)))}")


if __name__ == "__main__":
    main()
