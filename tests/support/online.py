"""Settings of results, and a searcher whose parts note how they are called."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from cort.config.experiment import Experiment
from cort.config.load import complete
from cort.config.stored import write_experiment
from cort.formats.records import Ranking
from cort.online.searcher import Searcher

SYSTEMS = {
    "bm25": {"retrieve": "bm25"},
    "dense": {"retrieve": "encoder"},
    "both": {"interleave": ["dense", "bm25"]},
    "reranked": {"rerank": "both", "reranker": "cross", "depth": 3},
}


def results_with(folder, systems=None, **changes):
    """Results in a folder of an experiment with some systems, of whose files none is there."""
    config = {
        "dataset": "toy",
        "collection": {"passages": "passages.tsv"},
        "splits": {
            name: {"queries": f"{name}.tsv", "qrels": f"{name}.qrels"} for name in ("train", "validation", "test")
        },
        "depth": 10,
        "training_depth": 10,
        "base_models": {"small": {"pretrained": "small"}},
        "encoders": {"encoder": {"pretrained": "encoder"}},
        "rerankers": {"cross": {"pretrained": "cross"}},
        "systems": SYSTEMS if systems is None else systems,
    }
    return Experiment(complete(config | changes, "toy").root, Path(folder))


def write_results(folder, systems=None, **changes):
    """Write the settings of such results."""
    write_experiment(folder / "experiment.yaml", results_with(folder, systems, **changes).config)


class Parts:
    """BM25, an encoder, an index and a re-ranker that note their calls; some `wait` for a function."""

    def __init__(self):
        self.seen, self.wait = [], {}

    def note(self, part, *seen):
        self.seen.append((part, *seen))
        self.wait.get(part, bool)()

    def searcher(self, results, systems, open_models=None):
        def rankings(prefix, queries, depth):
            doc_ids = [f"{prefix}{number}" for number in range(depth)]
            return [Ranking("", doc_ids, -np.arange(depth, dtype=float)) for _ in queries]

        def lucene(texts, parameters, depth):
            self.note("bm25", depth)
            return rankings("b", texts, depth)

        def exact(vectors, depth):
            self.note("search", depth)
            return rankings("e", vectors, depth)

        def tokenize(texts):
            self.note("tokenize")
            return texts

        def encode(tokens):
            self.note("encode")
            return np.zeros((len(tokens), 2), dtype=np.float32)

        def score(text, rows):
            self.note("rerank", len(rows))
            return np.arange(len(rows), dtype=float)

        encoder = SimpleNamespace(tokenize=tokenize, encode=encode)
        models = SimpleNamespace(
            retrievers={"dense": (encoder, SimpleNamespace(search=exact))},
            rerankers={"cross": SimpleNamespace(score=score)},
        )
        passages = SimpleNamespace(rows=lambda doc_ids: list(range(len(doc_ids))), texts=list)
        return Searcher(
            results,
            systems,
            {"bm25": SimpleNamespace(search=lucene, close=lambda: None)},
            open_models or (lambda: models),
            passages,
        )
