"""Say what a planned job works on, from config and facts, and what a finished one worked on, from its log and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cort.downloads.catalog import load_catalog
from workflow.experiment.config import GRAPHS, TRAINING_SPLITS, Config, reranked_by, section_of
from workflow.planning.changes import parse_command
from workflow.planning.dryrun import Job
from workflow.planning.facts import UNKNOWN, Facts, model_from, read_json, read_table
from workflow.planning.work import Quantities

# Stages that run a transformer: section and wildcard of their model, and whether they train it.
TRANSFORMERS = {
    "train": ("encoders", "encoder", True),
    "encode": ("encoders", "encoder", False),
    "encode_queries": ("encoders", "encoder", False),
    "train_reranker": ("rerankers", "reranker", True),
    "score": ("rerankers", "reranker", False),
    "score_triples": ("rerankers", "reranker", False),
}
BYTES = {"fp32": 4, "fp16": 2}
# Names of a benchmark file: the wildcards before the last suffix, in order.
STEMS = {
    "download": ("source", "file"),
    "extract": ("source", "file"),
    "split": ("split",),
    "base_model": ("base_model",),
    "tokenize": ("base_model", "text"),
    "bm25": ("split", "system"),
    "triples": ("encoder", "split"),
    "pairs": ("reranker", "split"),
    "train": ("encoder",),
    "train_reranker": ("reranker",),
    "import_encoder": ("encoder",),
    "export_model": ("model",),
    "encode": ("encoder", "scatteritem"),
    "encode_queries": ("encoder", "split"),
    "score": ("reranker", "split"),
    "score_triples": ("reranker", "encoder", "split"),
    "onng": ("encoder",),
    "hnsw": ("encoder",),
    "audit": ("split", "encoder", "index"),
    "disagreements": ("split",),
    "submission": ("submission", "suffix"),
    "compare": ("split",),
    "latency": ("split",),
}
RETRIEVERS = ("retrieve", "retrieve_onng", "retrieve_hnsw", "interleave", "import_run")
STEMS |= dict.fromkeys((*RETRIEVERS, "rerank", "evaluate", "depths", "consistency"), ("split", "system"))
# Rules whose option --depth is that of the run they write.
RANKERS = ("bm25", "bm25_tune", *RETRIEVERS)
# Options of a stage's command -> what they say.
OPTIONS = {
    "batch-size": "batch",
    "gradient_accumulation": "gradient_accumulation",
    "tokens-at-once": "tokens_at_once",
    "validate-every": "validate_every",
    "query-length": "query_length",
    "passage-length": "passage_length",
    "max-length": "passage_length",
    "dimension": "dimension",
    "edges": "edges",
    "M": "M",
    "ef-construction": "ef_construction",
    "sample": "sampled",
}
SPECIAL = {"score": {"depth": "candidates"}}


def planned(job: Job, config: Config, facts: Facts) -> Quantities:
    """Say what a job will work on.

    :param config: with defaults.
    """
    wildcards = job.wildcards
    split = wildcards.get("split") or _split_of_submission(config, wildcards)
    queries = facts.queries.get(split, facts.queries.get("train", UNKNOWN))
    depth = config["training_depth" if split in TRAINING_SPLITS else "depth"]
    found = Quantities(
        passages=facts.passages,
        queries=queries,
        depth=depth,
        tag=wildcards.get("system", ""),
        heap=heap if isinstance(heap := job.resources.get("heap_mb"), int) else 0,
    )
    if "source" in wildcards:
        found = replace(found, **_by_catalog(wildcards))
    if "base_model" in wildcards:
        found = replace(found, model=facts.models[wildcards["base_model"]])
    if "text" in wildcards:
        text = wildcards["text"].removeprefix("queries.")
        found = replace(found, texts=facts.queries.get(text, facts.passages))
    if "scatteritem" in wildcards:
        found = replace(found, shards=int(wildcards["scatteritem"].rpartition("-")[2]))
    encoder = wildcards.get("encoder") or config["systems"].get(wildcards.get("system"), {}).get("retrieve")
    if encoder in config["encoders"]:
        found = _encoder(found, job.rule, config["encoders"][encoder], facts, split)
    if job.rule in SEARCHING:
        found = SEARCHING[job.rule](found, config, wildcards)
    if "reranker" in wildcards:
        found = _reranker(found, job, config, facts)
    if "model" in wildcards:
        name = wildcards["model"]
        found = replace(found, model=facts.models[config[section_of(config, name)][name]["base_model"]])
    return found


def _split_of_submission(config: Config, wildcards: Mapping[str, str]) -> str:
    split: str = config["submissions"].get(wildcards.get("submission"), {}).get("split", "")
    return split


def _tuning(found: Quantities, config: Config, _: Mapping[str, str]) -> Quantities:
    tune = config["bm25"]["tune"]
    drawn = min(tune["samples"] * tune["sample_size"], found.queries.count)
    searches = len(tune["k1"]) * len(tune["b"])
    return replace(found, queries=replace(found.queries, count=drawn), searches=searches)


def _timing(found: Quantities, config: Config, _: Mapping[str, str]) -> Quantities:
    asked = config["latency"]
    searched = min(asked["queries"], found.queries.count)
    return replace(found, queries=replace(found.queries, count=searched), searches=len(asked["systems"]))


def _encoder(found: Quantities, rule: str, encoder: Config, facts: Facts, split: str) -> Quantities:
    training = encoder["training"]
    per_epoch, validation = _drawn(encoder["triples"], facts)
    epochs = 1 if split == "validation" else training["epochs"]
    queries = rule == "encode_queries"
    return replace(
        found,
        texts=found.queries if queries else facts.passages,
        model=facts.models[encoder["base_model"]],
        query_length=encoder["query_length"],
        passage_length=encoder["query_length" if queries else "passage_length"],
        dimension=encoder["dimension"],
        value_bytes=BYTES[encoder["storage"]],
        precision=training["precision"] if rule == "train" else encoder["precision"],
        edges=encoder["onng"]["edges"],
        **encoder["hnsw"],
        examples=epochs * (validation if split == "validation" else per_epoch),
        validation=validation,
        **_batches(training),
    )


def _reranker(found: Quantities, job: Job, config: Config, facts: Facts) -> Quantities:
    name, split = job.wildcards["reranker"], job.wildcards.get("split", "")
    reranker = config["rerankers"][name]
    training = reranker["training"]
    each = 1 + reranker["pairs"]["negatives"]
    per_epoch, validation = (each * count for count in _drawn(reranker["pairs"], facts))
    epochs, drawn = (1, validation) if split == "validation" else (training["epochs"], per_epoch)
    return replace(
        found,
        model=facts.models[reranker["base_model"]],
        query_length=reranker["query_length"],
        passage_length=reranker["max_length"],
        precision=training["precision"] if job.rule == "train_reranker" else reranker["precision"],
        candidates=reranker["depth"],
        files=max(len(reranked_by(config, name, split)), 1) if job.rule == "score" else 1,
        # What a teacher scores is counted by the encoder that learns from it.
        examples=found.examples if job.rule == "score_triples" else epochs * drawn,
        validation=validation,
        **_batches(training),
    )


def _audit(found: Quantities, config: Config, wildcards: Mapping[str, str]) -> Quantities:
    audit, depth = config["audit"], config["depth"]
    # Searches of a smaller depth take less, in proportion.
    share = sum(min(one, depth) for one in {*audit["depths"], depth} if one <= depth) / depth
    searches = share * len(audit[GRAPHS[wildcards["index"]].widths])
    return replace(found, depth=depth, sampled=audit["queries"] or 0, searches=searches)


# Stages that search the same queries several times.
SEARCHING: Mapping[str, Callable[[Quantities, Config, Mapping[str, str]], Quantities]] = {
    "bm25_tune": _tuning,
    "latency": _timing,
    "audit": _audit,
}


def _drawn(options: Config, facts: Facts) -> tuple[float, float]:
    """Count the queries examples are drawn from, of train and of validation."""
    counts = [facts.queries[split].count if split in facts.queries else 0.0 for split in TRAINING_SPLITS]
    limit = options["maximum_queries"] or float("inf")
    return min(counts[0], limit), min(counts[1], limit)


def _batches(training: Config) -> dict[str, Any]:
    same = ("gradient_accumulation", "validate_every", "tokens_at_once", "gradient_checkpointing")
    return {"batch": training["batch_size"], **{name: training[name] for name in same}}


def observed(benchmark: Path, rule: str, now: Quantities, folder: Path) -> Quantities:
    """Say what a finished job worked on, as far as the log and the files of its dataset tell; the rest is as in `now`.

    :param benchmark: its benchmark file, ``benchmarks/<dataset>/<rule>/<wildcards>.tsv``.
    """
    name = benchmark.parents[1].name
    names = STEMS.get(rule, ())
    values = benchmark.stem.split(".", len(names) - 1) if names else []
    wildcards = dict(zip(names, values, strict=False))
    dataset, log = folder / "results" / name, folder / "logs" / name / rule
    command = _logged_command(log / f"{benchmark.stem}.log") or _logged_command(log.with_suffix(".log"))
    found = dict([*_by_options(rule, command), *_by_tables(dataset, rule, wildcards, now)])
    if "source" in wildcards:
        found |= _by_catalog(wildcards)
    return replace(now, **found | _by_model(dataset, rule, wildcards))


def _by_catalog(wildcards: Mapping[str, str]) -> dict[str, Any]:
    catalog, name = load_catalog(), f"{wildcards['source']}/{wildcards['file']}"
    return {"size": catalog.find(name).about, "fetched": catalog.source_of(name).about}


def _logged_command(path: Path) -> dict[str, list[str]]:
    """Options of the command in the first line of a stage's log."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            line = file.readline()
        return parse_command(line.partition("python -m ")[2])
    except (OSError, ValueError):
        return {}


def _by_options(rule: str, command: Mapping[str, list[str]]) -> Iterator[tuple[str, Any]]:
    fields = {**OPTIONS, **({"depth": "depth"} if rule in RANKERS else {}), **SPECIAL.get(rule, {})}
    for option, field in fields.items():
        for value in command.get(option, [])[:1]:
            yield field, float(value)
    for value in command.get("precision", [])[:1]:
        yield "precision", value
    for value in command.get("storage", [])[:1]:
        yield "value_bytes", BYTES.get(value, BYTES["fp32"])


def _by_tables(dataset: Path, rule: str, wildcards: Mapping[str, str], now: Quantities) -> Iterator[tuple[str, Any]]:
    split, collection = wildcards.get("split", "train"), dataset / "collection"
    tables = {"passages": "passages"}
    if rule != "bm25_tune":
        tables["queries"] = f"queries.{split}"
    tables["texts"] = wildcards.get("text", tables["queries"] if rule == "encode_queries" else "passages")
    for field, table in tables.items():
        texts = read_table(collection / f"{table}.parquet")
        if texts is not None:
            yield field, replace(texts, characters_per_token=getattr(now, field).characters_per_token)
    kind = {
        "triples": "triples",
        "pairs": "pairs",
        "train": "triples",
        "score_triples": "triples",
        "train_reranker": "pairs",
    }.get(rule, "")
    learner = wildcards.get("encoder", wildcards.get("reranker", ""))  # of scored triples, the encoder
    rows = _rows(dataset / kind / f"{learner}.{split}.parquet")
    yield from (("examples", rows),) if rows else ()


def _by_model(dataset: Path, rule: str, wildcards: Mapping[str, str]) -> dict[str, Any]:
    for section in ("rerankers", "encoders", "base_models"):
        wildcard = section[:-1]
        if wildcard in wildcards:
            folder = dataset / section / wildcards[wildcard] / ("" if section == "base_models" else "best")
            model = read_json(folder / "config.json")
            settings = read_json(folder / "cort.json") or read_json(folder / "reranker.json")
            return _sizes(rule, settings) | ({"model": model_from(model)} if model else {})
    return {}


def _sizes(rule: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    # Trainings have all these in their commands; the stages after them have them in the model alone.
    if rule in ("onng", "hnsw", "audit") and settings:
        return {"dimension": settings["dimension"]}
    if rule not in ("encode", "encode_queries", "score", "score_triples") or not settings:
        return {}
    length = settings["max_length"] if rule.startswith("score") else settings["passage_length"]
    sizes = {"query_length": settings["query_length"], "passage_length": length}
    if rule == "encode_queries":
        sizes["passage_length"] = settings["query_length"]
    return sizes | ({"dimension": settings["dimension"]} if "dimension" in settings else {})


def _rows(path: Path) -> int | None:
    if not path.is_file():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: int = pq.read_metadata(path).num_rows
    except (OSError, pa.ArrowException):
        return None
    return rows
