"""Measure both graph indexes against exact search: build them, and print recall and time at 10, 100 and 1,000 results.

Then the narrowest search with nearly all of the exact results takes turns with exact search, over vectors in single
precision and over codes of 8 bits; medians of one query in one thread, and ratios.

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
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from cort.formats.artifacts import read_artifact
from cort.formats.embeddings import all_vectors, open_shards
from cort.formats.raw import iter_passages, iter_queries
from cort.formats.tables import QRELS, write_table
from cort.formats.tokens import Tokens
from cort.reporting.audits import audit_blocks, audits_table
from cort.reporting.tables import to_markdown
from cort.retrieval.auditing import timed
from cort.retrieval.audits import Audit
from cort.retrieval.exact import ExactIndex
from cort.retrieval.graph_search import open_index
from scripts.bench.common import (
    Vectors,
    in_turns,
    parse,
    print_table,
    ratios,
    run_stage,
    write_encoder,
    write_passages,
    write_vectors,
)
from scripts.sandbox import size_of

DEPTHS = (10, 100, 1000)
WIDTHS: dict[str, list[float]] = {
    "onng": [0, 0.02, 0.05, 0.1, 0.2],
    "hnsw": [10, 20, 50, 100, 200, 500, 1000, 1250, 1500, 1750, 2000, 2500, 4000],
}
# Tokens of a text, of which some are those that begin and end it.
LENGTH, SPECIAL = 64, 2
# Sentences of texts that are more than one.
LONGER = (2, 3, 4)
# Of the exact results, and rounds of queries.
RECALL, ROUNDS = 0.997, 4
# Whether exact search is over codes.
EXACT = {"fp32": False, "codes": True}
HEADER = ("vectors", "index", "width", "recall", "fp32, ms", "codes, ms", "index, ms", "fp32 / index", "codes / index")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def encode_texts(data: Path, model: Path, texts: int, queries: int, precision: str, folder: Path) -> Vectors:
    """Encode texts, those to search for last, each once; vectors of shape (texts and queries, width)."""
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
    distinct = first_of_each(Tokens(tokens))
    return all_vectors(open_shards([vectors]))[distinct]


def first_of_each(texts: Tokens) -> list[int]:
    """Find the rows of texts that no earlier one equals, as long ones do whose first tokens are the same."""
    rows: dict[bytes, int] = {}
    for row in range(len(texts)):
        rows.setdefault(texts[row][: LENGTH - SPECIAL].tobytes(), row)
    return list(rows.values())


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


def beside_exact(found: Audit, folder: Path) -> list[object]:
    """Take turns with exact search, in rounds of some queries; cells of a row."""
    shards, index = open_shards([folder / "passages.arrow"]), open_index(found.index, folder / found.index)
    queries, depth = all_vectors(open_shards([folder / "queries.arrow"])), max(one.depth for one in found.searches)
    good = [one for one in found.searches if one.depth == depth and one.recall >= RECALL]
    if not good:
        return [found.passages, found.index, f"less than {RECALL} of {depth}"]
    chosen = min(good, key=lambda one: one.width)
    exact = partial(ExactIndex, shards, memory_mb=sys.maxsize, one_by_one=True)
    sides: dict[str, Callable[[Vectors], object]] = {
        name: partial(exact(coded=coded).search, depth=depth) for name, coded in EXACT.items()
    }
    sides[found.index] = lambda query: index.search(query[0], chosen.width, depth)
    left = {name: iter(np.array_split(queries, ROUNDS + 1)) for name in sides}

    def median(name: str) -> float:
        return timed(sides[name], [query[None] for query in next(left[name])])[1].median

    taken = in_turns(ROUNDS, {name: partial(median, name) for name in sides}, warm_up=True)
    times = [f"{statistics.median(values):.2f}" for values in taken.values()]
    faster = [ratios(taken[name], taken[found.index]) for name in list(sides)[:-1]]
    return [found.passages, found.index, f"{chosen.width:g}", f"{chosen.recall:.4f}", *times, *faster]


def main() -> None:
    """Prepare, build, measure, print."""
    torch.set_num_threads(1)
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
        rows = [beside_exact(one, folder) for one in audits]
    sys.stdout.write(f"\n{to_markdown(audits_table(audit_blocks(audits)))}\n")
    print_table(rows, HEADER)


if __name__ == "__main__":
    main()
