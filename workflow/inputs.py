"""Inputs of rules, and the outputs of an experiment.

Each function takes the experiment first and a job's wildcards, if it needs them, last; rules bind all other arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from cort.config import paths
from cort.config.collection import HubCollection, HubSplit
from cort.config.deployment import checked_split, deployed_parts
from cort.config.entries import INDEX_ADDITIONS, LEARNERS, paths_named, released_name
from cort.config.experiment import Experiment
from cort.config.files import named_files
from cort.config.learners import Learner
from cort.config.lexical import PredictionFile
from cort.config.models import BaseModel, Learning, PretrainedBase
from cort.reporting import results as reports
from cort.systems.registry import exact_search
from cort.training.losses import ENCODER_OBJECTIVES

Wildcards: TypeAlias = Any

MODEL_SUFFIXES = (".json", ".safetensors", ".txt", ".model", ".jinja", ".metadata")
SUFFIXES = {"msmarco": "tsv", "trec": "trec"}
# Sections of what changes the texts of an index -> a shard of a model's output.
ADDITIONS = {"expanders": paths.EXPANSION_SHARD, "weighers": paths.TERM_WEIGHTS_SHARD}


def name_of(section: str, wildcards: Wildcards) -> str:
    """Return the name of a job's model, which is of a section such as "encoders"."""
    return str(getattr(wildcards, section.removesuffix("s")))


def learner_of(experiment: Experiment, section: str, wildcards: Wildcards) -> Learner:
    """Return the encoder or re-ranker that a job trains."""
    model = experiment.models[section][name_of(section, wildcards)]
    if not isinstance(model, Learner):
        raise LookupError(f"{section}: found no training of {name_of(section, wildcards)}")
    return model


# Collection and splits.


def origin_of_collection(experiment: Experiment) -> list[str]:
    """Files that a collection is read from, as far as they are here; those of a folder are a param."""
    source, collection = experiment.source or "passages", experiment.collection
    if source in ("documents", "passages"):
        return paths_named(getattr(collection, source, None) or experiment.at(paths.RAW_COLLECTION))
    return local_files(collection.hf) if isinstance(collection, HubCollection) else []


def origin_of_split(experiment: Experiment, wildcards: Wildcards) -> list[str]:
    """Files of local folders that a split is copied from; `SOURCE#SPLIT` has its judgements in another one."""
    split, collection = experiment.splits[wildcards.split], experiment.collection
    if not isinstance(split, HubSplit) or not isinstance(collection, HubCollection):
        return []
    folders = [collection.hf, split.hf] if "#" in split.hf else [collection.hf]
    return [path for folder in folders for path in local_files(folder)]


def local_files(folder: str) -> list[str]:
    """Return the files of a collection in a local folder; none for a hub name, which its commit identifies."""
    name = folder if Path(folder).is_dir() else folder.partition("#")[0]
    return sorted(str(path) for path in Path(name).glob("**/[!.]*") if path.is_file())


def raw_split(experiment: Experiment, table: str, wildcards: Wildcards) -> list[str]:
    """Files of a table ("queries" or "qrels") of a split; a held-out split has those of train."""
    if table == "qrels" and not experiment.is_judged(wildcards.split):
        return []
    name = experiment.files_of_split(wildcards.split)
    split = experiment.splits[name]
    imported = {"queries": paths.IMPORTED_QUERIES, "qrels": paths.IMPORTED_QRELS}[table]
    path = imported if split.is_imported else paths.RAW_SPLIT
    return split.files(table) or [experiment.at(path, table=table, split=name)]


def excluded_queries(experiment: Experiment, wildcards: Wildcards) -> list[str]:
    """Return the queries of the splits under `without`; a held-out split has those of train."""
    split = experiment.splits[experiment.files_of_split(wildcards.split)]
    return [experiment.at(paths.QUERIES, split=name) for name in split.left_out]


def excluded_results(experiment: Experiment, wildcards: Wildcards) -> str | list[str]:
    """Return the file of results that are dropped from the runs of a split, if there is one."""
    return experiment.splits[wildcards.split].exclude or []


def of_systems(experiment: Experiment, path: str, split: str, systems: Iterable[str]) -> list[str]:
    """Return a file of each of some systems."""
    return [experiment.at(path, split=split, system=name) for name in systems]


def of_splits(experiment: Experiment, path: str) -> list[str]:
    """Return a file of each split."""
    return [experiment.at(path, split=name) for name in experiment.splits]


def candidates_of_splits(experiment: Experiment) -> str | list[str]:
    """Return the queries from which splits are generated: of documents and passages, or predicted ones."""
    section, _, name = (experiment.generated_from or "").partition(".")
    return additions_of(experiment, section, name) if name else paths.CANDIDATES


def judged(experiment: Experiment, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the queries of the split that a job judges, and the runs of all systems on it."""
    split = experiment.judging[wildcards.split].split
    runs = of_systems(experiment, paths.RUN, split, experiment.on_split(split))
    return {"queries": experiment.at(paths.QUERIES, split=split), "runs": runs}


def judgements(experiment: Experiment, wildcards: Wildcards) -> list[str]:
    """Judgements of a split, if it has any."""
    return [experiment.at(paths.QRELS, split=wildcards.split)] if experiment.is_judged(wildcards.split) else []


def raw_inputs(experiment: Experiment) -> list[str]:
    """Every file that the workflow reads but does not make; those of an imported collection have descriptions."""
    described = {"collection.passages", "collection.documents"} if experiment.source else set()
    files = [file for place, file in named_files(experiment) if place not in described]
    for model in experiment.base_models.values():
        files += pretrained_files(model)
    return list(dict.fromkeys(files))


def described_sources(experiment: Experiment) -> list[str]:
    """Descriptions of the files that an imported collection and imported splits are from."""
    files = [experiment.at(paths.IMPORT_SOURCES)] if experiment.source else []
    return files + [
        experiment.at(paths.SPLIT_SOURCES, split=name) for name, split in experiment.splits.items() if split.is_copied
    ]


# Models and what they compute for the passages.


def base_model_files(experiment: Experiment, wildcards: Wildcards) -> str | list[str]:
    """Files of a pretrained folder, or the passages on which a new tokenizer is trained."""
    model = experiment.base_models[wildcards.base_model]
    return pretrained_files(model) if isinstance(model, PretrainedBase) else experiment.at(paths.PASSAGES)


def released_files(experiment: Experiment, section: str, wildcards: Wildcards) -> list[str]:
    """Files in the folder of a released model."""
    return pretrained_files(experiment.base_models[released_name(section, name_of(section, wildcards))])


def pretrained_files(model: BaseModel) -> list[str]:
    """Files in a pretrained base model's folder; none for a hub name, which its revision identifies."""
    if not isinstance(model, PretrainedBase):
        return []
    # Modules of sentence-transformers are in subfolders, those of a Router one level below.
    patterns = ("[!.]*", "[!.]*/[!.]*", "[!.]*/[!.]*/[!.]*")
    candidates = (path for pattern in patterns for path in Path(model.pretrained).glob(pattern))
    return sorted(str(path) for path in candidates if path.suffix in MODEL_SUFFIXES and path.is_file())


def of_base_model(experiment: Experiment, name: str, file: str) -> str:
    """Return a file of a base model; if it is a released encoder or re-ranker, its card."""
    released = experiment.released.get(name)
    return experiment.at(paths.BASE_MODEL, base_model=name) + (
        paths.CARD if released and released[0] in LEARNERS else file
    )


def base_model(experiment: Experiment, section: str, wildcards: Wildcards) -> str:
    """Weights of the base model of a job's encoder or re-ranker; the card of one that is released as such a model."""
    name = experiment.base_model_of(section, name_of(section, wildcards))
    return of_base_model(experiment, name, "model.safetensors")


def tokenizer(experiment: Experiment, wildcards: Wildcards) -> str:
    """Return the tokenizer of a base model, or the card of the released model that has it."""
    return of_base_model(experiment, wildcards.base_model, "tokenizer.json")


def weights(experiment: Experiment, section: str, wildcards: Wildcards) -> str:
    """Return the weights of a job's model."""
    return experiment.weights(section, name_of(section, wildcards))


def start(experiment: Experiment, wildcards: Wildcards) -> list[str]:
    """Weights of the encoder from which a job's encoder starts, if any."""
    encoder = experiment.encoders[wildcards.encoder]
    name = encoder.start if isinstance(encoder, Learning) else None
    return [experiment.weights("encoders", name)] if name else []


def judgements_for_loss(experiment: Experiment, split: str, wildcards: Wildcards) -> str | list[str]:
    """Judgements for a loss that needs all relevant passages of a batch, or to choose the best model by a measure."""
    encoder = learner_of(experiment, "encoders", wildcards)
    selects = split == "validation" and encoder.training.best_model_metric != "loss"
    needed = ENCODER_OBJECTIVES[encoder.loss].judgements or selects
    return experiment.at(paths.QRELS, split=split) if needed else []


def for_selection(experiment: Experiment, section: str, path: str, wildcards: Wildcards) -> str | list[str]:
    """Return a file of the validation queries, if the best model is chosen by a measure."""
    model = learner_of(experiment, section, wildcards)
    system = model.examples.systems[0]
    by_measure = model.training.best_model_metric != "loss"
    return experiment.at(path, split="validation", system=system) if by_measure else []


def sources_of_negatives(experiment: Experiment, section: str, wildcards: Wildcards) -> list[str]:
    """Return the runs from which a model takes its negatives: whole ones, or what it draws of deeper ones."""
    model, name = learner_of(experiment, section, wildcards), name_of(section, wildcards)
    path = paths.NEGATIVES.replace("{model}", name) if experiment.draws_deeply(model) else paths.RUN
    return of_systems(experiment, path, wildcards.split, model.examples.systems)


def searched_for_negatives(experiment: Experiment, wildcards: Wildcards) -> list[str]:
    """Return what a system searches for training queries, and its parts, but no run."""
    found: dict[str, None] = {}
    for name in experiment.with_parts([wildcards.system]):
        given = {**experiment.systems[name].inputs(wildcards.split), "runs": []}
        found |= dict.fromkeys(
            file for value in given.values() for file in ([value] if isinstance(value, str) else value)
        )
    excluded = excluded_results(experiment, wildcards)
    return [*found, excluded] if isinstance(excluded, str) else [*found]


def teacher_scores(experiment: Experiment, split: str, wildcards: Wildcards) -> str | list[str]:
    """Scores of an encoder's triples by its teacher, if it has one."""
    encoder = experiment.encoders[wildcards.encoder]
    teacher = encoder.teacher if isinstance(encoder, Learning) else None
    names = {"encoder": wildcards.encoder, "split": split}
    return experiment.at(paths.TRIPLE_SCORES, reranker=teacher, **names) if teacher else []


def all_candidates(experiment: Experiment, wildcards: Wildcards) -> list[str]:
    """Return the runs whose candidates a re-ranker scores."""
    systems = experiment.reranked_by(wildcards.reranker, wildcards.split)
    return of_systems(experiment, paths.RUN, wildcards.split, [*systems])


def shards(experiment: Experiment, path: str, wildcards: Wildcards) -> list[str]:
    """Return all shards of a file for a job's model."""
    return experiment.shards(path, **{name: value for name, value in wildcards.items() if name != "dataset"})


def shard_of_passages(experiment: Experiment, wildcards: Wildcards) -> str | list[str]:
    """Return a shard of the passages whose precision a job's queries get, if the first machine chooses it."""
    is_open = experiment.encoders[wildcards.encoder].precision == "auto"
    return experiment.vectors("encoders", wildcards.encoder)[0] if is_open else []


def additions_of(experiment: Experiment, section: str, name: str) -> list[str]:
    """Output of an expander or weigher: one imported file, or the shards of a model."""
    named = {section.removesuffix("s"): name}
    if isinstance(getattr(experiment.root, section)[name], PredictionFile):
        return [experiment.at(paths.EXPANSIONS, **named)]
    return experiment.shards(ADDITIONS[section], **named)


def index_additions(experiment: Experiment, section: str, wildcards: Wildcards) -> list[str]:
    """Return the expansions or term weights of an index, if it has any."""
    name = getattr(experiment.lexical[wildcards.lexical], INDEX_ADDITIONS[section])
    return [] if name is None else additions_of(experiment, section, name)


# Runs.


def of_system(experiment: Experiment, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the inputs of a system's run; if it searches, also the results that it may not return."""
    system = experiment.systems[wildcards.system]
    excluded = excluded_results(experiment, wildcards)
    return system.inputs(wildcards.split) | ({"exclude": excluded} if excluded and not system.parts() else {})


def for_tuning(experiment: Experiment, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the runs that weights are tuned for, of validation or another split, and the scores of a re-ranker."""
    inputs = experiment.systems[wildcards.system].inputs(getattr(wildcards, "split", "validation"))
    return {"runs": inputs.get("candidates") or inputs["runs"], "scores": inputs.get("scores", [])}


def of_audit(experiment: Experiment, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the inputs of exact search that an index is compared with."""
    return exact_search(experiment, wildcards.encoder).inputs(wildcards.split)


def vectors_of_index(experiment: Experiment, wildcards: Wildcards) -> list[str]:
    """Return all shards of the vectors that a job's index is built from."""
    return experiment.vectors(*exact_search(experiment, wildcards.encoder).models()[0])


# Evaluation.


def files_per_run(experiment: Experiment, path: str) -> list[str]:
    """Return a file of each evaluated run."""
    return [experiment.at(path, split=split, system=name) for split, name in experiment.evaluated_runs]


def of_split(experiment: Experiment, path: str, wildcards: Wildcards) -> list[str]:
    """Return a file of each system that has a run for a split."""
    return of_systems(experiment, path, wildcards.split, experiment.on_split(wildcards.split))


def of_compared(experiment: Experiment, path: str, wildcards: Wildcards) -> list[str]:
    """Return a file of each system that is compared with the baseline."""
    return of_systems(experiment, path, wildcards.split, experiment.compared(wildcards.split))


def measured_of_split(experiment: Experiment, wildcards: Wildcards) -> list[str]:
    """Measures per query of each system on a split, if it has judgements."""
    return of_split(experiment, paths.PER_QUERY, wildcards) if experiment.is_judged(wildcards.split) else []


def measured_on_both(experiment: Experiment, split: str, wildcards: Wildcards) -> list[str]:
    """Values per query on `split` or `other`, which a job compares, of the systems with runs for both."""
    names = [name for name in experiment.on_split(wildcards.split) if wildcards.other in experiment.splits_of(name)]
    return of_systems(experiment, paths.PER_QUERY, getattr(wildcards, split), names)


# What people see.


def explorers(experiment: Experiment) -> list[str]:
    """Pages of the explorer, one per ranked split."""
    return [*dict.fromkeys(experiment.at(paths.EXPLORER, split=split) for split, _ in experiment.ranked_runs)]


def reported(experiment: Experiment, *kinds: str) -> list[str]:
    """Return the files that the report reads, of all kinds or some."""
    files = reports.files_of(experiment)
    return [file for kind in kinds or files for file in files[kind].values()]


def searched(experiment: Experiment) -> list[str]:
    """List the files that are opened to measure latencies: models, vectors, indexes, passages."""
    latency = experiment.root.latency
    names = experiment.with_parts(latency.systems if latency else [])
    files = dict.fromkeys(file for name in names for file in experiment.systems[name].files())
    return [experiment.at(paths.PASSAGES), *files]


def computed_in_auto(experiment: Experiment) -> list[str]:
    """Return a shard of the vectors, or the scores, of each model whose precision a machine chooses."""
    files = []
    for split, run in experiment.ranked_runs:
        system = experiment.systems[run]
        for section, name in system.models():
            scores = experiment.at(paths.SCORES, reranker=name, split=split)
            if experiment.models[section][name].precision == "auto":
                files.append(scores if system.reranker() else experiment.vectors(section, name)[0])
    return list(dict.fromkeys(files))


def submissions(experiment: Experiment) -> list[str]:
    """Submissions to leaderboards and TREC."""
    return [
        experiment.at(paths.SUBMISSION, submission=name, suffix=SUFFIXES[submission.form])
        for name, submission in experiment.root.submissions.items()
    ]


def deployments(experiment: Experiment) -> list[str]:
    """Deployed systems; a file stands for the folder of each."""
    return [f"{experiment.at(paths.DEPLOYMENT, deployment=name)}check.json" for name in experiment.root.deploy]


def deployed(experiment: Experiment, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the runs of a deployed system's parts on the split that checks it, and what each part needs."""
    name = experiment.root.deploy[wildcards.deployment].system
    split, system = checked_split(experiment, name), experiment.systems[name]
    files: dict[str, str | list[str]] = {"runs": [], "bm25": [], "vectors": [], "query_vectors": []}
    for part in deployed_parts(experiment, name):
        run = experiment.run(split, part.name)
        files["runs"] = [*files["runs"], run]
        if part.lexical_index():
            files |= {"bm25": run, "parameters": part.tuned_files()}
        else:
            own = part.inputs(split)
            files |= {"vectors": own["passages"], "query_vectors": own["queries"]}
    weights = system.tuned_files() if system.parts() else []
    return {**files, "queries": experiment.at(paths.QUERIES, split=split), "weights": weights}


def targets(experiment: Experiment) -> list[str]:
    """Return what an experiment makes; everything else is made for these."""
    files = files_per_run(experiment, paths.MEASURES) + submissions(experiment) + deployments(experiment)
    files += [*reported(experiment, "latencies"), *explorers(experiment), experiment.at(paths.EXPERIMENT)]
    return [*files, f"{experiment.at(paths.REPORT)}index.html"]
