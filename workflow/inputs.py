"""What the rules that make runs read: the files of a job, from the config and its wildcards alone.

Each function is given the config first and the wildcards last; rules fix all but these with `partial`.
"""

from __future__ import annotations

from pathlib import Path

from cort.downloads import rehearsal
from cort.experiment.config import CHANGES, used_by_indexes, with_parts
from cort.experiment.models import reranked_by, trained_models, triples_file
from cort.experiment.splits import compared_splits as names_of_compared_splits
from cort.settings import paths
from cort.settings.config import LEARNERS, Config, files_of_split, is_judged, one_or_more, ranked_splits, sources
from cort.systems.base import Results
from cort.systems.registry import all_systems, system_of
from cort.training.losses import ENCODER_OBJECTIVES
from workflow.params import Wildcards

MODEL_SUFFIXES = (".json", ".safetensors", ".txt", ".model")


def raw_split(config: Config, kind: str, wildcards: Wildcards) -> str | list[str]:
    """Files of `kind` ("queries" or "qrels") a split is built from; a held-out split is a part of train."""
    if kind == "qrels" and not is_judged(config, wildcards.split):
        return []
    default = paths.at(paths.RAW_SPLIT, config, kind=kind, split=wildcards.split)
    files: str | list[str] = files_of_split(config, wildcards.split).get(kind, default)
    return files


def excluded_queries(config: Config, wildcards: Wildcards) -> list[str]:
    """Return the queries a split must not have: other splits'. A held-out split leaves out what train does."""
    split = files_of_split(config, wildcards.split)
    return [paths.at(paths.QUERIES, config, split=name) for name in one_or_more(split.get("without", []))]


def compared_splits(config: Config, path: str) -> list[str]:
    """Return a file of each split whose queries are compared with another's."""
    return [paths.at(path, config, split=name) for name in names_of_compared_splits(config)]


def raw_inputs(config: Config) -> list[str]:
    """Every file the results of the experiment were made from that the workflow did not make."""
    pydocs = "pydocs" in config["collection"]
    files = ["requirements.lock"] if pydocs else [config["collection"]["passages"]]
    for split in config["splits"].values():
        files += [file for kind in ("queries", "qrels") if kind in split for file in one_or_more(split[kind])]
    systems = all_systems(config).values()
    files += [run[0] for split in ranked_splits(config) for system in systems if (run := system.published(split))]
    for model in config["base_models"].values():
        files += pretrained_files(model)
    files += [encoder["released"] for encoder in config["encoders"].values() if "released" in encoder]
    for section in LEARNERS:
        found = (triples_file(section, config[section][name]) for name in trained_models(config, section))
        files += [file for file in found if file]
    for section in CHANGES:
        files += [
            config[section][name]["file"]
            for name in used_by_indexes(config, section)
            if "file" in config[section][name]
        ]
    # In a rehearsal, what says so.
    switch = [str(rehearsal.FILE)] if rehearsal.is_on() else []
    return list(dict.fromkeys([*files, *config["papers"], *switch]))


def filter_weights(config: Config, wildcards: Wildcards) -> str:
    """Weights of the re-ranker that filters the queries of an expander."""
    return Results(config).weights("rerankers", config["expanders"][wildcards.expander]["filter"]["reranker"])


def filter_tokens(config: Config, wildcards: Wildcards) -> str:
    """Token cache of the passages for the re-ranker that filters the queries of an expander."""
    return Results(config).tokens(
        "rerankers", config["expanders"][wildcards.expander]["filter"]["reranker"], "passages"
    )


def base_model_files(config: Config, wildcards: Wildcards) -> str | list[str]:
    """Files a base model is made from: a pretrained folder's, or the passages its tokenizer is trained on."""
    model = config["base_models"][wildcards.base_model]
    return pretrained_files(model) if "pretrained" in model else paths.at(paths.PASSAGES, config)


def released_files(config: Config, section: str, wildcards: Wildcards) -> list[str]:
    """Files of the folder of a released encoder or re-ranker."""
    return pretrained_files(config[section][getattr(wildcards, section.removesuffix("s"))])


def pretrained_files(model: Config) -> list[str]:
    """Files of a pretrained base model's folder; none for a hub name, whose revision says all."""
    folder = Path(model["pretrained"]) if "pretrained" in model else None
    if folder is None:
        return []
    # Modules of sentence-transformers have folders of their own.
    found = (path for pattern in ("[!.]*", "[!.]*/[!.]*") for path in folder.glob(pattern))
    return sorted(str(path) for path in found if path.suffix in MODEL_SUFFIXES and path.is_file())


def judgements(config: Config, wildcards: Wildcards) -> list[str]:
    """Judgements of a job's split, if it has any."""
    return [paths.at(paths.QRELS, config, split=wildcards.split)] if is_judged(config, wildcards.split) else []


def judgements_for_loss(config: Config, split: str, wildcards: Wildcards) -> str | list[str]:
    """Judgements for a loss that recognises all relevant passages of a batch, or for the choice of the best model."""
    encoder = config["encoders"][wildcards.encoder]
    selects = split == "validation" and encoder["training"]["best_model_metric"] != "loss"
    needed = ENCODER_OBJECTIVES[encoder["loss"]].judgements or selects
    return paths.at(paths.QRELS, config, split=split) if needed else []


def for_selection(config: Config, section: str, path: str, wildcards: Wildcards) -> str | list[str]:
    """Return a file of the validation queries, for a best model that is chosen by a measure."""
    model = config[section][wildcards.encoder if section == "encoders" else wildcards.reranker]
    system = sources(model[LEARNERS[section]])[0]
    by_measure = model["training"]["best_model_metric"] != "loss"
    return paths.at(path, config, split="validation", system=system) if by_measure else []


def sources_of_negatives(config: Config, section: str, wildcards: Wildcards) -> list[str]:
    """Return the runs that provide the negatives of an encoder's or re-ranker's examples."""
    model = config[section][wildcards.encoder if section == "encoders" else wildcards.reranker]
    names = sources(model[LEARNERS[section]])
    return [paths.at(paths.RUN, config, split=wildcards.split, system=name) for name in names]


def teacher_scores(config: Config, split: str, wildcards: Wildcards) -> str | list[str]:
    """Scores that an encoder's teacher gives the pairs of its triples."""
    teacher = config["encoders"][wildcards.encoder].get("teacher")
    names = {"encoder": wildcards.encoder, "split": split}
    return paths.at(paths.TRIPLE_SCORES, config, reranker=teacher, **names) if teacher else []


def start(config: Config, wildcards: Wildcards) -> list[str]:
    """Weights of the encoder that one starts from."""
    name = config["encoders"][wildcards.encoder].get("start")
    return [Results(config).weights("encoders", name)] if name else []


def all_candidates(config: Config, wildcards: Wildcards) -> list[str]:
    """Return runs whose candidates a re-ranker scores."""
    names = reranked_by(config, wildcards.reranker, wildcards.split)
    return [paths.at(paths.RUN, config, split=wildcards.split, system=name) for name in names]


def of_system(config: Config, shards: int, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return what a system's run is made from, as its class says."""
    return system_of(config, wildcards.system, Results(config, shards)).inputs(wildcards.split)


def for_tuning(config: Config, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the runs and scores of validation queries that a system's weights are tuned on."""
    inputs = system_of(config, wildcards.system).inputs("validation")
    return {name: files for name, files in inputs.items() if name != "weights"}


def searched(config: Config, shards: int) -> list[str]:
    """List what is opened to measure latencies: models, vectors, indexes, passages."""
    results = Results(config, shards)
    names = with_parts(config, config["latency"]["systems"])
    files = dict.fromkeys(file for name in names for file in system_of(config, name, results).files())
    return [results.at(paths.PASSAGES), *files]
