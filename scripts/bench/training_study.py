"""Compare training objectives on real text: before and after, alone and interleaved with BM25, with several seeds.

Every dataset and seed is an experiment of its own, built by the workflow in a copy of the project: the same pretrained
encoder, triples, updates and learning rate for every objective. The folder keeps all results, so the same call goes on
where it was ended. The tables go between the marks of the report.

Usage: python -m scripts.bench.training_study --data ../shared/data --base-model FOLDER --folder /tmp/study
           [--seeds 1 2 3] [--report docs/training.md]
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from scripts.bench.common import make_parser
from scripts.rehearsal.table import put_between
from scripts.sandbox import copy_tree, timed

TRIPLES_PER_UPDATE = 48
#: The objectives, and the mini-batches whose texts are each other's negatives: CoRT's, RepBERT's, a whole update.
OBJECTIVES: Mapping[str, dict[str, Any]] = {
    "cort": {"loss": "triplet", "similarity": "angular", "batch_size": 6},
    "repbert": {"loss": "multilabel_margin", "similarity": "inner_product", "batch_size": 12},
    "info-nce": {"loss": "info_nce", "similarity": "cosine", "batch_size": TRIPLES_PER_UPDATE},
}
BEFORE = "before"
# Vectors as sentence-transformers makes them of this model: no projection, one segment.
VECTORS = {"pooling": "mean", "projection": False, "dimension": 384, "query_segment": 0, "passage_segment": 0}
TRAINING = {"epochs": 1, "learning_rate": 5.0e-5, "weight_decay": 0.01, "warmup_updates": 5, "validate_every": 25}
#: Of SQuAD: all passages of dev and every eighth of the others; every fifth question of dev is a test query.
PASSAGE_EVERY, TEST_EVERY = 8, 5
#: Questions drawn for training, and of SQuAD's, which has no third split, for validation.
TRIPLES, HELD_OUT = 1200, 200
DATASETS: Mapping[str, tuple[str, ...]] = {
    "nfcorpus": ("nDCG@10", "RR@10", "R@100", "R@1000"),
    "squad": ("RR@10", "R@10", "R@100", "R@1000"),
}


def texts(dataset: str, data: Path, folder: Path) -> dict[str, Any]:
    """Name the files of a dataset; of SQuAD a part is written to the folder."""
    if dataset == "squad":
        write_part(data, folder)
        data = folder
    passages = {"passages": str(data / "collection.tsv")}
    splits = {
        split: {"queries": str(data / f"queries.{split}.tsv"), "qrels": str(data / f"qrels.{split}.tsv")}
        for split in ("train", "dev", "test")
        if (data / f"queries.{split}.tsv").is_file()
    }
    named = {"train": splits["train"], "validation": splits["dev"], "test": splits.get("test", splits["dev"])}
    if dataset == "squad":
        drawn: dict[str, Any] = {**splits["train"], "sample": TRIPLES + HELD_OUT}
        return {"collection": passages, "splits": {**named, "train": drawn, "validation": {"hold_out": HELD_OUT}}}
    return {"collection": passages, "splits": named}


def write_part(data: Path, folder: Path) -> None:
    """Write a part of SQuAD: fewer passages, the judgements of these, and their questions."""
    folder.mkdir(exist_ok=True)
    lines = {path.name: path.read_text(encoding="utf-8").splitlines(keepends=True) for path in data.glob("*.tsv")}
    judged = {
        split: [(line.split("\t")[0], line.split("\t")[2], line) for line in lines[f"qrels.{split}.tsv"]]
        for split in ("train", "dev")
    }
    of_dev = {doc_id for _, doc_id, _ in judged["dev"]}
    others = [line for line in lines["collection.tsv"] if line.split("\t")[0] not in of_dev][::PASSAGE_EVERY]
    kept = of_dev | {line.split("\t")[0] for line in others}
    parts = {"collection.tsv": [line for line in lines["collection.tsv"] if line.split("\t")[0] in kept]}
    for split, every in (("train", 1), ("dev", TEST_EVERY)):
        wanted = {query_id for query_id, doc_id, _ in judged[split] if doc_id in kept}
        queries = [line for line in lines[f"queries.{split}.tsv"] if line.split("\t")[0] in wanted][::every]
        names = {line.split("\t")[0] for line in queries}
        parts[f"queries.{split}.tsv"] = queries
        parts[f"qrels.{split}.tsv"] = [line for query_id, _, line in judged[split] if query_id in names]
    for name, part in parts.items():
        (folder / name).write_text("".join(part), encoding="utf-8", newline="\n")


def experiment(dataset: str, seed: int, data: Path, base_model: Path, folder: Path) -> dict[str, Any]:
    """Write an experiment's config: the model before training and after each objective, all also beside BM25."""
    lengths = {"query_length": 32, "passage_length": 128}
    shared = {"base_model": "pretrained", **VECTORS, **lengths}
    weights = str(base_model / "model.safetensors")
    encoders: dict[str, Any] = {BEFORE: {**shared, "similarity": "cosine", "released": weights}}
    for name, objective in OBJECTIVES.items():
        own = {key: objective[key] for key in ("loss", "similarity")} | {"triples": {"maximum_queries": TRIPLES}}
        batches = {
            "batch_size": objective["batch_size"],
            "gradient_accumulation": TRIPLES_PER_UPDATE // objective["batch_size"],
        }
        encoders[name] = {**shared, **own, "training": {**TRAINING, **batches}}
    systems: dict[str, Any] = {"bm25": {"retrieve": "bm25"}}
    for name in encoders:
        systems |= {name: {"retrieve": name}, f"{name}+bm25": {"interleave": [name, "bm25"]}}
    return {
        "dataset": f"{dataset}-{seed}",
        "seed": seed,
        "protect": False,
        **texts(dataset, data, folder / dataset),
        "base_models": {"pretrained": {"pretrained": str(base_model)}},
        "encoders": encoders,
        "systems": systems,
        "evaluation": {"measures": list(DATASETS[dataset])},
    }


def build(project: Path, config: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Make all measures of an experiment; means by system."""
    path = project / f"{config['dataset']}.yaml"
    path.write_text(yaml.safe_dump(dict(config), sort_keys=False), encoding="utf-8")
    folder = Path("results") / config["dataset"] / "measures" / "test"
    files = {name: folder / f"{name}.json" for name in config["systems"]}
    seconds, _ = timed(project, "--cores", "all", "--configfile", path.name, "--", *files.values())
    sys.stdout.write(f"{config['dataset']}: {seconds / 60:.1f} min\n")
    sys.stdout.flush()
    return {name: json.loads((project / file).read_text(encoding="utf-8"))["mean"] for name, file in files.items()}


def table(dataset: str, found: Sequence[Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    """Yield rows of Markdown: mean over the seeds and, where they differ, the standard deviation."""
    measures = DATASETS[dataset]
    yield f"| {dataset} | {' | '.join(measures)} |"
    yield f"| --- |{' ---: |' * len(measures)}"
    for name in found[0]:
        cells = []
        for measure in measures:
            values = [one[name][measure] for one in found]
            spread = f" ± {statistics.stdev(values):.3f}" if len(set(values)) > 1 else ""
            cells.append(f"{statistics.mean(values):.3f}{spread}")
        yield f"| `{name}` | {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> None:
    """Build every experiment, then write the tables."""
    parser = make_parser(__doc__, data="nfcorpus/ and squad/", base_model=True)
    parser.add_argument("--folder", type=Path, required=True, metavar="FOLDER", help="for all that is made")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--report", type=Path, metavar="MD")
    args = parser.parse_args(argv)
    data, base_model = args.data.resolve(), args.base_model.resolve()
    project = args.folder.resolve()
    project.mkdir(parents=True, exist_ok=True)
    copy_tree(project)
    for dataset in DATASETS:
        experiments = [experiment(dataset, seed, data / dataset, base_model, project) for seed in args.seeds]
        lines = list(table(dataset, [build(project, one) for one in experiments]))
        sys.stdout.write("\n".join(["", *lines, ""]))
        if args.report:
            put_between(args.report, f"<!-- {dataset} -->", f"<!-- end of {dataset} -->", lines)


if __name__ == "__main__":
    main()
