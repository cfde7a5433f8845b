"""Systems of a manifest, and a searcher whose parts take a known time."""

import time
from types import SimpleNamespace

import numpy as np

from cort.formats.records import Ranking
from cort.online.manifest import LexicalIndex, Manifest, Model
from cort.online.searcher import Searcher

SYSTEMS = {
    "bm25": {"kind": "bm25", "lexical": "bm25", "k1": 0.9, "b": 0.4},
    "dense": {"kind": "exact", "encoder": "encoder"},
    "both": {"kind": "interleave", "parts": ["dense", "bm25"]},
    "reranked": {"kind": "rerank", "candidates": "both", "reranker": "cross", "depth": 3},
}


def manifest_with(tmp_path, systems=None, **changes):
    model = Model(tmp_path / "model", "raw", "fp32", (tmp_path / "vectors.arrow",))
    fields = {
        "dataset": "toy",
        "depth": 10,
        "passages": tmp_path / "passages.parquet",
        "lexical": {"bm25": LexicalIndex(tmp_path / "index", "raw")},
        "encoders": {"encoder": model},
        "rerankers": {"cross": model},
        "systems": SYSTEMS if systems is None else systems,
    }
    return Manifest(**(fields | changes))


class Slow:
    """BM25, an encoder, an index and a re-ranker that take a known time, in seconds."""

    def __init__(self, bm25=0.0, tokenize=0.0, encode=0.0, search=0.0, rerank=0.0):
        self.seconds = {"bm25": bm25, "tokenize": tokenize, "encode": encode, "search": search, "rerank": rerank}
        self.seen = []

    def spend(self, part, *seen):
        self.seen.append((part, *seen))
        time.sleep(self.seconds[part])

    def searcher(self, manifest, systems, open_models=None):
        def rankings(prefix, queries, depth):
            doc_ids = [f"{prefix}{number}" for number in range(depth)]
            return [Ranking("", doc_ids, -np.arange(depth, dtype=float)) for _ in queries]

        def lucene(texts, parameters, depth):
            self.spend("bm25", depth)
            return rankings("b", texts, depth)

        def exact(vectors, depth):
            self.spend("search", depth)
            return rankings("e", vectors, depth)

        def tokenize(texts):
            self.spend("tokenize")
            return texts

        def encode(tokens):
            self.spend("encode")
            return np.zeros((len(tokens), 2), dtype=np.float32)

        def score(text, rows):
            self.spend("rerank", len(rows))
            return np.arange(len(rows), dtype=float)

        encoder = SimpleNamespace(tokenize=tokenize, encode=encode)
        models = SimpleNamespace(
            retrievers={"dense": (encoder, SimpleNamespace(search=exact))},
            rerankers={"cross": SimpleNamespace(score=score)},
        )
        passages = SimpleNamespace(rows=lambda doc_ids: list(range(len(doc_ids))), texts=list)
        return Searcher(
            manifest,
            systems,
            {"bm25": SimpleNamespace(search=lucene, close=lambda: None)},
            open_models or (lambda: models),
            passages,
        )
