"""Write an experiment that runs within a minute: 150 passages, every kind of system, all as files a user brings.

Each passage speaks of one of six topics and has a word of its own; a query asks for that word and two of the topic's,
so that BM25 finds its passage among two dozen others.

Usage: python tests/tiny/generate.py FOLDER   writes FOLDER/tiny.yaml and FOLDER/data; run it with --configfile
"""

from __future__ import annotations

import random
import sys
import zipfile
from pathlib import Path
from typing import Any

import yaml

PASSAGES, TOPICS, WORDS = 150, 6, 12
QUERIES = {"train": 50, "test": 12}
HELD_OUT = 10
DEPTH = 50
SYLLABLES = ("ba", "ko", "ri", "lu", "ne", "sa", "to", "mi", "ga", "du")


def word(number: int) -> str:
    """Spell a number from 0 to 999."""
    return "".join(SYLLABLES[int(digit)] for digit in f"{number:03d}")


def make_passages(generator: random.Random) -> list[str]:
    """Draw texts; the topic of passage n is n modulo `TOPICS`."""
    texts = []
    for number in range(PASSAGES):
        topic = [word(number % TOPICS * WORDS + offset) for offset in range(WORDS)]
        common = [word(900 + offset) for offset in range(20)]
        words = [*generator.choices(topic, k=8), *generator.choices(common, k=8), word(300 + number)]
        generator.shuffle(words)
        texts.append(f"{' '.join(words).capitalize()}.")
    return texts


def make_query(generator: random.Random, target: int) -> str:
    """Ask for one passage."""
    topic = [word(target % TOPICS * WORDS + offset) for offset in range(WORDS)]
    return " ".join([word(300 + target), *generator.sample(topic, k=2)])


def write_predictions(path: Path, texts: list[str]) -> None:
    """Predict for each passage its rarest word and others of it: three samples in two parts, as docTTTTTquery's."""
    with zipfile.ZipFile(path, "w") as archive:
        for sample in range(3):
            lines = [
                f"{word(300 + number)} {text.lower().rstrip('.').split()[sample]}\n"
                for number, text in enumerate(texts)
            ]
            for part, chosen in enumerate((lines[:100], lines[100:])):
                # A time of the file's own would be one of its making.
                name = zipfile.ZipInfo(f"predicted_queries_topk_sample{sample:03d}.txt{part:03d}-1004000")
                archive.writestr(name, "".join(chosen))


def make_run(query: str, texts: list[str]) -> list[tuple[str, float]]:
    """Rank by shared words, as somebody else's system might."""
    asked = set(query.split())
    scores = [len(asked & set(text.rstrip(".").lower().split())) for text in texts]
    ranked = sorted(range(len(texts)), key=lambda number: (-scores[number], number))[:20]
    return [(f"d{number}", float(scores[number])) for number in ranked]


def make_config(data: Path) -> dict[str, Any]:
    """Describe the experiment: models of a few thousand weights, a system of each kind."""
    architecture = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    architecture |= {"intermediate_size": 64, "max_position_embeddings": 96}
    training = {"epochs": 2, "batch_size": 8, "gradient_accumulation": 1, "learning_rate": 1.0e-3, "warmup_updates": 2}
    training |= {"validate_every": 5}
    triples, pairs = ({"first_rank": first, "last_rank": 20, "minimum_results": 5} for first in (2, 1))
    encoder = {"base_model": "small", "pooling": "mean", "dimension": 16, "query_length": 24, "passage_length": 64}
    encoder |= {"triples": triples, "onng": {"edges": 10, "outgoing": 5, "incoming": 10}}
    encoder |= {"hnsw": {"M": 4, "ef_construction": 20}}
    cross = {"base_model": "small", "query_length": 24, "max_length": 90, "depth": 20}
    # Deeper than runs of training queries are.
    cross |= {"pairs": pairs | {"last_rank": 40}}
    files = {name: {kind: f"{data}/{kind}.{name}.tsv" for kind in ("queries", "qrels")} for name in QUERIES}
    return {
        "dataset": "tiny",
        "title": "Tiny & whole",
        "protect": False,
        "collection": {"passages": f"{data}/collection.tsv"},
        "splits": {"train": files["train"], "validation": {"hold_out": HELD_OUT}, "test": files["test"]},
        "depth": DEPTH,
        "training_depth": 30,
        "lexical": {
            "bm25": {"tune": {"k1": [0.6, 0.9], "b": [0.4], "samples": 2, "sample_size": 20, "measure": "RR@10"}},
            "expanded": {"expand": "doc2query", "b": 0.3},
        },
        "expanders": {"doc2query": {"file": f"{data}/predictions.zip", "queries": 2}},
        "base_models": {"small": {"vocabulary_size": 300, "architecture": architecture}},
        "encoders": {"encoder": encoder | {"training": {**training}}},
        "rerankers": {"cross": cross | {"training": {**training}}},
        "systems": {
            "bm25": {"retrieve": "bm25"},
            "cort": {"retrieve": "encoder"},
            "cort-onng": {"retrieve": "encoder", "onng": {"epsilon": 0.2}},
            "cort-hnsw": {"retrieve": "encoder", "hnsw": {"ef": "auto", "recall": 0.9}},
            "cort+bm25": {"interleave": ["cort", "bm25"]},
            "cort+bm25-cross": {"rerank": "cort+bm25", "reranker": "cross", "depth": 10},
            "published": {"run": f"{data}/run.{{split}}.trec"},
            "expanded": {"retrieve": "expanded"},
        },
        "evaluation": {
            "measures": ["RR@10", "nDCG@20", "R@20", "R@50"],
            "contrasts": [["cort+bm25-cross", "cort"]],
            "depths": [1, 5, 20],
            "consistency": {"reference": "published", "systems": ["bm25", "cort"], "depths": [1, 5, 20]},
        },
        "audit": {"epsilons": [0.1, 0.2], "efs": [10, 50, 100], "depths": [10, 1000], "queries": 8},
        "papers": [f"{data}/paper.csv"],
        "submissions": {
            "leaderboard": {"system": "bm25", "split": "test", "form": "msmarco"},
            "track": {"system": "cort+bm25", "split": "test", "form": "trec", "run_id": "tiny-1"},
        },
    }


def make_paper() -> list[str]:
    """Publish numbers: BM25 does find all of its passages, nothing has a recall of 5 %, nobody ran the third system."""
    rows = [
        "Table 1,BM25,R@20,1,bm25,test,R@20,,",
        "Table 1,BM25,R@50,1,bm25,test,R@50,,",
        "Table 1,Worse,R@20,.05,bm25,test,R@20,,",
        "Table 1,Somebody else's,R@20,.5,,test,R@20,,another group's system",
        "Figure 1,CoRT+BM25,at 5,.2,cort+bm25-cross,test,RR@10,5,",
    ]
    header = "paper,table,row,column,value,system,split,measure,candidates,note"
    return [header, *(f"A tiny paper,{row}" for row in rows)]


def write_experiment(folder: str | Path, seed: int = 7) -> Path:
    """Write data and config; return the config's path. Paths in it are as `folder` is, relative or absolute."""
    folder = Path(folder)
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    generator = random.Random(seed)  # noqa: S311 - texts, not secrets
    texts = make_passages(generator)
    _write(data / "collection.tsv", [f"d{number}\t{text}" for number, text in enumerate(texts)])
    write_predictions(data / "predictions.zip", texts)
    targets = iter(generator.sample(range(PASSAGES), k=sum(QUERIES.values())))
    for name, count in QUERIES.items():
        asked = [(f"{name}{number}", target) for number, target in zip(range(count), targets, strict=False)]
        queries = {query_id: make_query(generator, target) for query_id, target in asked}
        _write(data / f"queries.{name}.tsv", [f"{query_id}\t{text}" for query_id, text in queries.items()])
        _write(data / f"qrels.{name}.tsv", [f"{query_id} 0 d{target} 1" for query_id, target in asked])
        triples = [(query_id, target, (target + 1) % PASSAGES) for query_id, target in asked]
        for kind in ("triples", "pairs"):
            _write(data / f"{kind}.{name}.tsv", [f"{query_id}\td{good}\td{bad}" for query_id, good, bad in triples])
        ranked = [
            (query_id, rank, *result)
            for query_id, text in queries.items()
            for rank, result in enumerate(make_run(text, texts), start=1)
        ]
        lines = [f"{query} Q0 {doc} {rank} {score} other" for query, rank, doc, score in ranked]
        _write(data / f"run.{name}.trec", lines)
    _write(data / "paper.csv", make_paper())
    config = folder / "tiny.yaml"
    config.write_text(yaml.safe_dump(make_config(data), sort_keys=False), encoding="utf-8")
    return config


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    write_experiment(sys.argv[1])
