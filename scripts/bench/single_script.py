"""What a user would write by hand: BM25, an encoder and their fusion, with bm25s, sentence-transformers, ir_measures.

Prints nDCG@10 of the fusion and the seconds of each step as JSON. `end_to_end` compares it with the workflow.

Usage: python -m scripts.bench.single_script --data ../shared/data/nfcorpus --model FOLDER [--dtype bfloat16]
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from scripts.bench.common import parse

DEPTH = 1_000
WEIGHTS = [step / 20 for step in range(21)]
Run = dict[str, dict[str, float]]
Result = TypeVar("Result")


def read_texts(path: Path) -> dict[str, str]:
    """Read lines of an id, a tab and a text."""
    with open(path, encoding="utf-8") as lines:
        return dict(line.rstrip("\n").split("\t", 1) for line in lines)


def rank_by_bm25(passages: Mapping[str, str], splits: Mapping[str, Mapping[str, str]]) -> dict[str, Run]:
    """Rank by BM25 with Porter stemming."""
    import bm25s
    import Stemmer

    def tokenize(texts: Mapping[str, str]) -> Any:
        return bm25s.tokenize(list(texts.values()), stopwords="en", stemmer=stemmer, show_progress=False)

    stemmer, index, ids = Stemmer.Stemmer("english"), bm25s.BM25(k1=0.9, b=0.4), list(passages)
    index.index(tokenize(passages), show_progress=False)
    runs = dict[str, Run]()
    for split, queries in splits.items():
        found, scores = index.retrieve(tokenize(queries), k=min(DEPTH, len(ids)), show_progress=False)
        runs[split] = named(ids, queries, found, scores)
    return runs


def rank_by_encoder(
    passages: Mapping[str, str], splits: Mapping[str, Mapping[str, str]], model: str, dtype: str
) -> dict[str, Run]:
    """Rank by the inner product of unit vectors."""
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    options: Any = {} if dtype == "float32" else {"model_kwargs": {"dtype": getattr(torch, dtype)}}
    encoder = SentenceTransformer(model, device="cpu", **options)

    def encode(texts: Mapping[str, str]) -> Any:
        return encoder.encode(list(texts.values()), normalize_embeddings=True, convert_to_tensor=True).float().numpy()

    ids, vectors, runs = list(passages), encode(passages), dict[str, Run]()
    for split, queries in splits.items():
        scores = encode(queries) @ vectors.T
        found = np.argsort(-scores, axis=1)[:, :DEPTH]
        runs[split] = named(ids, queries, found, np.take_along_axis(scores, found, axis=1))
    return runs


def named(ids: Sequence[str], queries: Mapping[str, str], found: Any, scores: Any) -> Run:
    """Make a run of row numbers and scores."""
    rows = zip(queries, found.tolist(), scores.tolist(), strict=True)
    return {query: {ids[row]: score for row, score in zip(*ranking, strict=True)} for query, *ranking in rows}


def fuse(first: Run, second: Run, weight: float) -> Run:
    """Add scores that are scaled to [0, 1] for each query."""

    def scaled(ranking: Mapping[str, float]) -> dict[str, float]:
        low, high = min(ranking.values()), max(ranking.values())
        return {name: (score - low) / ((high - low) or 1) for name, score in ranking.items()}

    fused: Run = {}
    for query in first:
        left, right = scaled(first[query]), scaled(second[query])
        fused[query] = {name: weight * left.get(name, 0) + (1 - weight) * right.get(name, 0) for name in left | right}
    return fused


def main() -> None:
    """Rank, choose the weight on validation queries, measure on test queries."""
    import ir_measures
    from ir_measures import nDCG

    args = parse(__doc__, data=Path, model=str, dtype="float32")
    steps: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Result]) -> Result:
        started = time.perf_counter()
        result = work()
        steps[name] = round(time.perf_counter() - started, 2)
        return result

    passages = read_texts(args.data / "collection.tsv")
    splits = {split: read_texts(args.data / f"queries.{split}.tsv") for split in ("dev", "test")}
    qrels = {split: list(ir_measures.read_trec_qrels(str(args.data / f"qrels.{split}.tsv"))) for split in splits}
    lexical = timed("BM25", lambda: rank_by_bm25(passages, splits))
    dense = timed("encode and retrieve", lambda: rank_by_encoder(passages, splits, args.model, args.dtype))

    def measured(split: str, weight: float) -> float:
        run = fuse(dense[split], lexical[split], weight)
        return float(ir_measures.calc_aggregate([nDCG @ 10], qrels[split], run)[nDCG @ 10])

    weight = timed("tune", lambda: max(WEIGHTS, key=lambda weight: measured("dev", weight)))
    value = timed("evaluate", lambda: measured("test", weight))
    sys.stdout.write(json.dumps({"nDCG@10": round(value, 4), "weight": weight, "steps": steps}) + "\n")


if __name__ == "__main__":
    main()
