"""Inputs of the rules that make runs, from the config and a job's wildcards.

Each function takes the config first and the wildcards last; rules bind all other arguments with `partial`.
"""

from __future__ import annotations

from pathlib import Path

from cort.downloads import rehearsal
from cort.experiment.config import CHANGES, used_by_indexes, with_parts
from cort.experiment.models import released_model, reranked_by, trained_models, triples_file
from cort.settings import paths
from cort.settings.config import (
    LEARNERS,
    Config,
    files_of,
    files_of_split,
    is_copied,
    is_imported,
    is_judged,
    one_or_more,
    ranked_splits,
    source_of,
    sources,
)
from cort.systems.base import Results, System
from cort.systems.registry import all_systems, system_of
from cort.training.losses import ENCODER_OBJECTIVES
from workflow.params import Wildcards, entry_of

MODEL_SUFFIXES = (".json", ".safetensors", ".txt", ".model", ".jinja", ".metadata")


def raw_split(config: Config, kind: str, wildcards: Wildcards) -> str | list[str]:
    """Files of `kind` ("queries" or "qrels") of a split; a held-out split has those of train."""
    if kind == "qrels" and not is_judged(config, wildcards.split):
        return []
    split = files_of_split(config, wildcards.split)
    name = next(name for name, other in config["splits"].items() if other is split)
    imported = {"queries": paths.IMPORTED_QUERIES, "qrels": paths.IMPORTED_QRELS}[kind]
    default = paths.at(imported if is_imported(split) else paths.RAW_SPLIT, config, kind=kind, split=name)
    files: str | list[str] = split.get(kind, default)
    return files


def origin_of_split(config: Config, wildcards: Wildcards) -> list[str]:
    """Files of local folders that a split is copied from; `SOURCE#SPLIT` has its judgements in another one."""
    part = config["splits"][wildcards.split].get("hf")
    judged = [part] if part and "#" in part else []
    return [path for name in (config["collection"]["hf"], *judged) for path in local_files(name)] if part else []


def origin_of_collection(config: Config) -> list[str]:
    """Files that a collection is read from, as far as they are here; those of a folder are a param."""
    source, collection = source_of(config) or "passages", config["collection"]
    if source in ("documents", "passages"):
        return files_of(collection.get(source, paths.at(paths.RAW_COLLECTION, config)))
    return local_files(collection[source]) if source == "hf" else []


def local_files(folder: str) -> list[str]:
    """Return the files of a collection in a local folder; none for a hub name, which its commit identifies."""
    name = folder if Path(folder).is_dir() else folder.partition("#")[0]
    return sorted(str(path) for path in Path(name).glob("**/[!.]*") if path.is_file())


def described_sources(config: Config) -> list[str]:
    """Descriptions of the files that an imported collection and imported splits are from."""
    files = [paths.at(paths.IMPORT_SOURCES, config)] if source_of(config) else []
    return files + [
        paths.at(paths.SPLIT_SOURCES, config, split=name)
        for name, split in config["splits"].items()
        if is_copied(split)
    ]


def excluded_queries(config: Config, wildcards: Wildcards) -> list[str]:
    """Return the queries of the splits under `without`; a held-out split has those of train."""
    split = files_of_split(config, wildcards.split)
    return [paths.at(paths.QUERIES, config, split=name) for name in one_or_more(split.get("without", []))]


def excluded_results(config: Config, wildcards: Wildcards) -> str | list[str]:
    """Return the file of results that are dropped from the runs of a split, if there is one."""
    file: str | list[str] = config["splits"][wildcards.split].get("exclude", [])
    return file


def of_splits(config: Config, path: str) -> list[str]:
    """Return a file of each split."""
    return [paths.at(path, config, split=name) for name in config["splits"]]


def raw_inputs(config: Config) -> list[str]:
    """Every file that the workflow reads but does not make."""
    collection = config["collection"]
    files: list[str | None] = ["requirements.lock" if "pydocs" in collection else None]
    files += [] if source_of(config) else files_of(collection.get("passages", []))
    for split in config["splits"].values():
        files += [
            file for kind in ("queries", "qrels", "exclude") if kind in split for file in one_or_more(split[kind])
        ]
    systems = all_systems(config).values()
    files += [run[0] for split in ranked_splits(config) for system in systems if (run := system.published(split))]
    for model in config["base_models"].values():
        files += pretrained_files(model)
    files += [encoder["released"] for encoder in config["encoders"].values() if "released" in encoder]
    for section in LEARNERS:
        files += [triples_file(section, config[section][name]) for name in trained_models(config, section)]
    for section in CHANGES:
        files += [config[section][name].get("file") for name in used_by_indexes(config, section)]
    files += [*config["papers"], str(rehearsal.FILE) if rehearsal.is_on() else None]
    return list(dict.fromkeys(filter(None, files)))


def filter_weights(config: Config, wildcards: Wildcards) -> str:
    """Weights of the re-ranker that filters an expander's queries."""
    return Results(config).weights("rerankers", config["expanders"][wildcards.expander]["filter"]["reranker"])


def filter_tokens(config: Config, wildcards: Wildcards) -> str:
    """Token cache of the passages for the re-ranker that filters an expander's queries."""
    return Results(config).tokens(
        "rerankers", config["expanders"][wildcards.expander]["filter"]["reranker"], "passages"
    )


def base_model_files(config: Config, wildcards: Wildcards) -> str | list[str]:
    """Files of a pretrained folder, or the passages on which a new tokenizer is trained."""
    model = config["base_models"][wildcards.base_model]
    return pretrained_files(model) if "pretrained" in model else paths.at(paths.PASSAGES, config)


def of_base_model(config: Config, name: str, file: str) -> str:
    """Return a file of a base model; if it is a released encoder or re-ranker, its card."""
    released = released_model(config, name)
    return paths.at(paths.BASE_MODEL, config, base_model=name) + (
        paths.CARD if released and released[0] in LEARNERS else file
    )


def tokenizer(config: Config, wildcards: Wildcards) -> str:
    """Return the tokenizer of a base model, or the card of the released model that has it."""
    return of_base_model(config, wildcards.base_model, "tokenizer.json")


def released_files(config: Config, section: str, wildcards: Wildcards) -> list[str]:
    """Files in the folder of a released encoder or re-ranker."""
    return pretrained_files(entry_of(config, section, wildcards))


def pretrained_files(model: Config) -> list[str]:
    """Files in a pretrained base model's folder; none for a hub name, which its revision identifies."""
    if "pretrained" not in model:
        return []
    # Modules of sentence-transformers are in subfolders, those of a Router one level below.
    patterns = ("[!.]*", "[!.]*/[!.]*", "[!.]*/[!.]*/[!.]*")
    candidates = (path for pattern in patterns for path in Path(model["pretrained"]).glob(pattern))
    return sorted(str(path) for path in candidates if path.suffix in MODEL_SUFFIXES and path.is_file())


def judgements(config: Config, wildcards: Wildcards) -> list[str]:
    """Judgements of a split, if it has any."""
    return [paths.at(paths.QRELS, config, split=wildcards.split)] if is_judged(config, wildcards.split) else []


def judgements_for_loss(config: Config, split: str, wildcards: Wildcards) -> str | list[str]:
    """Judgements for a loss that needs all relevant passages of a batch, or to choose the best model by a measure."""
    encoder = config["encoders"][wildcards.encoder]
    selects = split == "validation" and encoder["training"]["best_model_metric"] != "loss"
    needed = ENCODER_OBJECTIVES[encoder["loss"]].judgements or selects
    return paths.at(paths.QRELS, config, split=split) if needed else []


def for_selection(config: Config, section: str, path: str, wildcards: Wildcards) -> str | list[str]:
    """Return a file of the validation queries, if the best model is chosen by a measure."""
    model = entry_of(config, section, wildcards)
    system = sources(model[LEARNERS[section]])[0]
    by_measure = model["training"]["best_model_metric"] != "loss"
    return paths.at(path, config, split="validation", system=system) if by_measure else []


def sources_of_negatives(config: Config, section: str, wildcards: Wildcards) -> list[str]:
    """Return the runs from which an encoder or re-ranker takes its negatives."""
    names = sources(entry_of(config, section, wildcards)[LEARNERS[section]])
    return [paths.at(paths.RUN, config, split=wildcards.split, system=name) for name in names]


def teacher_scores(config: Config, split: str, wildcards: Wildcards) -> str | list[str]:
    """Scores of an encoder's triples by its teacher, if it has one."""
    teacher = config["encoders"][wildcards.encoder].get("teacher")
    names = {"encoder": wildcards.encoder, "split": split}
    return paths.at(paths.TRIPLE_SCORES, config, reranker=teacher, **names) if teacher else []


def start(config: Config, wildcards: Wildcards) -> list[str]:
    """Weights of the encoder from which a job's encoder starts, if any."""
    name = config["encoders"][wildcards.encoder].get("start")
    return [Results(config).weights("encoders", name)] if name else []


def all_candidates(config: Config, wildcards: Wildcards) -> list[str]:
    """Return the runs whose candidates a re-ranker scores."""
    names = reranked_by(config, wildcards.reranker, wildcards.split)
    return [paths.at(paths.RUN, config, split=wildcards.split, system=name) for name in names]


def of_system(config: Config, shards: int, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the inputs of a system's run; if it searches, also the results that it may not return."""
    system = system_of(config, wildcards.system, Results(config, shards))
    excluded = excluded_results(config, wildcards)
    return system.inputs(wildcards.split) | ({"exclude": excluded} if excluded and not system.parts() else {})


def searched_exactly(config: Config, wildcards: Wildcards, shards: int = 1) -> System:
    """Return exact search over the vectors of a job's index."""
    name = wildcards.encoder
    return system_of({**config, "systems": {name: {"retrieve": name}}}, name, Results(config, shards))


def of_audit(config: Config, shards: int, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the inputs of exact search that an index is compared with."""
    return searched_exactly(config, wildcards, shards).inputs(wildcards.split)


def for_tuning(config: Config, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the runs and scores of validation queries, or of a split's, for tuning a system's weights."""
    inputs = system_of(config, wildcards.system).inputs(getattr(wildcards, "split", "validation"))
    return {name: files for name, files in inputs.items() if name != "weights"}


def searched(config: Config, shards: int) -> list[str]:
    """List the files that are opened to measure latencies: models, vectors, indexes, passages."""
    results = Results(config, shards)
    names = with_parts(config, config["latency"]["systems"])
    files = dict.fromkeys(file for name in names for file in system_of(config, name, results).files())
    return [results.at(paths.PASSAGES), *files]
