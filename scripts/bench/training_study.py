"""Compare training objectives on real text: before and after, alone and interleaved with BM25, with several seeds.

Every dataset and seed is an experiment of its own, built by the workflow in a copy of the project: the same pretrained
encoder, triples, updates and learning rate for every objective. The folder keeps all results, so the same call goes on
where it was ended. The tables go between the marks of the report.

Usage: python -m scripts.bench.training_study --data ../shared/data --base-model FOLDER --folder /tmp/study
           [--seeds 1 2 3] [--report docs/training.md]
"""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from scripts.bench.common import markdown, parse, put_between
from scripts.sandbox import copy_tree, timed

TRIPLES_PER_UPDATE = 48
#: Loss, similarity and triples of a mini-batch, whose texts are each other's negatives: CoRT's, RepBERT's, an update.
OBJECTIVES = {
    "cort": ("triplet", "angular", 6),
    "repbert": ("multilabel_margin", "inner_product", 12),
    "info-nce": ("info_nce", "cosine", TRIPLES_PER_UPDATE),
}
# Vectors as sentence-transformers makes them of this model: no projection, one segment.
ENCODER = {"base_model": "pretrained", "pooling": "mean", "projection": False, "dimension": 384}
ENCODER |= {"query_segment": 0, "passage_segment": 0, "query_length": 32, "passage_length": 128}
TRAINING = {"epochs": 1, "learning_rate": 5.0e-5, "weight_decay": 0.01, "warmup_updates": 5, "validate_every": 25}
#: Of SQuAD: all passages of dev and every eighth of the others; every fifth question of dev is a test query.
PASSAGE_EVERY, TEST_EVERY = 8, 5
#: Questions drawn for training, and of SQuAD's, which has no third split, for validation.
TRIPLES, HELD_OUT = 1200, 200
DATASETS = {"nfcorpus": ("nDCG@10", "RR@10", "R@100", "R@1000"), "squad": ("RR@10", "R@10", "R@100", "R@1000")}


def texts(dataset: str, data: Path, folder: Path) -> dict[str, Any]:
    """Name the files of a dataset; of SQuAD a part is written to the folder."""
    if dataset == "squad":
        write_part(data, folder)
        data = folder
    train, dev, test = (
        {kind: str(data / f"{kind}.{split}.tsv") for kind in ("queries", "qrels")} for split in ("train", "dev", "test")
    )
    splits: dict[str, Any] = {"train": train, "validation": dev, "test": test}
    if dataset == "squad":
        drawn = train | {"sample": TRIPLES + HELD_OUT}
        splits = {"train": drawn, "validation": {"hold_out": HELD_OUT}, "test": dev}
    return {"collection": {"passages": str(data / "collection.tsv")}, "splits": splits}


def write_part(data: Path, folder: Path) -> None:
    """Write a part of SQuAD: fewer passages, the judgements of these, and their questions."""
    folder.mkdir(exist_ok=True)
    lines = {path.name: path.read_text(encoding="utf-8").splitlines(keepends=True) for path in data.glob("*.tsv")}
    found = {name: [line.split("\t") for line in some] for name, some in lines.items()}
    of_dev = {doc_id for _, _, doc_id, _ in found["qrels.dev.tsv"]}
    others = [doc_id for doc_id, _ in found["collection.tsv"] if doc_id not in of_dev][::PASSAGE_EVERY]
    kept = of_dev.union(others)
    parts = {"collection.tsv": [row for row in found["collection.tsv"] if row[0] in kept]}
    for split, every in (("train", 1), ("dev", TEST_EVERY)):
        qrels, queries = f"qrels.{split}.tsv", f"queries.{split}.tsv"
        wanted = {row[0] for row in found[qrels] if row[2] in kept}
        parts[queries] = [row for row in found[queries] if row[0] in wanted][::every]
        names = {row[0] for row in parts[queries]}
        parts[qrels] = [row for row in found[qrels] if row[0] in names]
    for name, rows in parts.items():
        (folder / name).write_text("".join(map("\t".join, rows)), encoding="utf-8", newline="\n")


def experiment(dataset: str, seed: int, data: Path, base_model: Path, folder: Path) -> dict[str, Any]:
    """Write an experiment's config: the model before training and after each objective, all also beside BM25."""
    weights = str(base_model / "model.safetensors")
    encoders: dict[str, Any] = {"before": {**ENCODER, "similarity": "cosine", "released": weights}}
    for name, (loss, similarity, size) in OBJECTIVES.items():
        batches = {"batch_size": size, "gradient_accumulation": TRIPLES_PER_UPDATE // size}
        own = {"loss": loss, "similarity": similarity, "triples": {"maximum_queries": TRIPLES}}
        encoders[name] = {**ENCODER, **own, "training": {**TRAINING, **batches}}
    systems: dict[str, Any] = {"bm25": {"retrieve": "bm25"}}
    for name in encoders:
        systems |= {name: {"retrieve": name}, f"{name}+bm25": {"interleave": [name, "bm25"]}}
    models = {"base_models": {"pretrained": {"pretrained": str(base_model)}}, "encoders": encoders, "systems": systems}
    named = {"dataset": f"{dataset}-{seed}", "seed": seed, "protect": False, **texts(dataset, data, folder / dataset)}
    return {**named, **models, "evaluation": {"measures": list(DATASETS[dataset])}}


def build(project: Path, config: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Make all measures of an experiment; means by system."""
    path = project / f"{config['dataset']}.yaml"
    path.write_text(yaml.safe_dump(dict(config), sort_keys=False), encoding="utf-8")
    folder = Path("results") / config["dataset"] / "measures" / "test"
    files = {name: folder / f"{name}.json" for name in config["systems"]}
    seconds, _ = timed(project, "--cores", "all", "--configfile", path.name, "--", *files.values())
    sys.stderr.write(f"{config['dataset']}: {seconds / 60:.1f} min\n")
    return {name: json.loads((project / file).read_text(encoding="utf-8"))["mean"] for name, file in files.items()}


def table(dataset: str, found: Sequence[Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Lines of Markdown: means over the seeds and, where they differ, the standard deviation."""
    rows = []
    for name in found[0]:
        row = [f"`{name}`"]
        for measure in DATASETS[dataset]:
            values = [one[name][measure] for one in found]
            spread = f" ± {statistics.stdev(values):.3f}" if len(set(values)) > 1 else ""
            row.append(f"{statistics.mean(values):.3f}{spread}")
        rows.append(row)
    return markdown([dataset, *DATASETS[dataset]], rows)


def main() -> None:
    """Build every experiment, then write the tables."""
    args = parse(__doc__, data=Path, base_model=Path, folder=Path, seeds=[1, 2, 3], report=None)
    data, base_model, project = (path.resolve() for path in (args.data, args.base_model, args.folder))
    project.mkdir(parents=True, exist_ok=True)
    copy_tree(project)
    for dataset in DATASETS:
        experiments = [experiment(dataset, seed, data / dataset, base_model, project) for seed in args.seeds]
        lines = table(dataset, [build(project, one) for one in experiments])
        sys.stdout.write("\n".join(["", *lines, ""]))
        if args.report:
            put_between(args.report, dataset, lines)


if __name__ == "__main__":
    main()
