"""Inputs of rules, and the outputs of an experiment, from its config.

Each function takes the config first and a job's wildcards, if it needs them, last; rules bind all other arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cort.downloads import rehearsal
from cort.experiment.checks import ConfigError
from cort.experiment.config import (
    INDEX_ADDITIONS,
    compared,
    evaluated_runs,
    has_curve,
    on_split,
    ranked_runs,
    splits_of,
    tuned_systems,
    used_by_indexes,
    with_parts,
)
from cort.experiment.deployment import checked_split, deployed_parts
from cort.experiment.models import (
    indexes_of,
    released_model,
    reranked_by,
    trained_models,
    trainings,
    triples_file,
    used_models,
)
from cort.experiment.splits import labelled_twice
from cort.reporting.reproduction.paper import find_mistakes, read_paper
from cort.settings import paths
from cort.settings.config import (
    LEARNERS,
    Config,
    copied_from,
    evaluated_splits,
    files_of,
    files_of_split,
    generated_from,
    is_copied,
    is_imported,
    is_judged,
    is_sparse,
    one_or_more,
    ranked_splits,
    source_of,
    sources,
    splits_with,
    title_of_split,
    unjudged_splits,
)
from cort.systems.base import Results, System
from cort.systems.registry import all_systems, system_of
from cort.training.losses import ENCODER_OBJECTIVES

Wildcards: TypeAlias = Any

MODEL_SUFFIXES = (".json", ".safetensors", ".txt", ".model", ".jinja", ".metadata")
TABLES = ("csv", "md", "tex")
SUFFIXES = {"msmarco": "tsv", "trec": "trec"}
# Sections of what changes the texts of an index -> one imported file, and a shard of a model's output.
ADDITIONS = {
    "expanders": (paths.EXPANSIONS, paths.EXPANSION_SHARD),
    "weighers": (paths.TERM_WEIGHTS, paths.TERM_WEIGHTS_SHARD),
}


def entry_of(config: Config, section: str, wildcards: Wildcards) -> Config:
    """Return the entry of a section such as "encoders" that a job's wildcard names."""
    entry: Config = config[section][getattr(wildcards, section.removesuffix("s"))]
    return entry


# Collection and splits.


def origin_of_collection(config: Config) -> list[str]:
    """Files that a collection is read from, as far as they are here; those of a folder are a param."""
    source, collection = source_of(config) or "passages", config["collection"]
    if source in ("documents", "passages"):
        return files_of(collection.get(source, paths.at(paths.RAW_COLLECTION, config)))
    return local_files(collection[source]) if source == "hf" else []


def origin_of_split(config: Config, wildcards: Wildcards) -> list[str]:
    """Files of local folders that a split is copied from; `SOURCE#SPLIT` has its judgements in another one."""
    part = config["splits"][wildcards.split].get("hf")
    judged = [part] if part and "#" in part else []
    return [path for name in (config["collection"]["hf"], *judged) for path in local_files(name)] if part else []


def local_files(folder: str) -> list[str]:
    """Return the files of a collection in a local folder; none for a hub name, which its commit identifies."""
    name = folder if Path(folder).is_dir() else folder.partition("#")[0]
    return sorted(str(path) for path in Path(name).glob("**/[!.]*") if path.is_file())


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


def candidates_of_splits(config: Config) -> str | list[str]:
    """Return the queries from which splits are generated: of documents and passages, or predicted ones."""
    section, _, name = (generated_from(config) or "").partition(".")
    return additions_of(config, section, name) if name else paths.CANDIDATES


def judged(config: Config, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the queries of the split that a job judges, and the runs of all systems on it."""
    split = config["splits"][wildcards.split]["judge"]["split"]
    runs = [paths.at(paths.RUN, config, split=split, system=name) for name in on_split(config, split)]
    return {"queries": paths.at(paths.QUERIES, config, split=split), "runs": runs}


def judgements(config: Config, wildcards: Wildcards) -> list[str]:
    """Judgements of a split, if it has any."""
    return [paths.at(paths.QRELS, config, split=wildcards.split)] if is_judged(config, wildcards.split) else []


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
    for section in INDEX_ADDITIONS:
        files += [config[section][name].get("file") for name in used_by_indexes(config, section)]
    files += [*config["papers"], str(rehearsal.FILE) if rehearsal.is_on() else None]
    return list(dict.fromkeys(filter(None, files)))


def described_sources(config: Config) -> list[str]:
    """Descriptions of the files that an imported collection and imported splits are from."""
    files = [paths.at(paths.IMPORT_SOURCES, config)] if source_of(config) else []
    return files + [
        paths.at(paths.SPLIT_SOURCES, config, split=name)
        for name, split in config["splits"].items()
        if is_copied(split)
    ]


# Models and what they compute for the passages.


def base_model_files(config: Config, wildcards: Wildcards) -> str | list[str]:
    """Files of a pretrained folder, or the passages on which a new tokenizer is trained."""
    model = config["base_models"][wildcards.base_model]
    return pretrained_files(model) if "pretrained" in model else paths.at(paths.PASSAGES, config)


def released_files(config: Config, section: str, wildcards: Wildcards) -> list[str]:
    """Files in the folder of a released model."""
    return pretrained_files(entry_of(config, section, wildcards))


def pretrained_files(model: Config) -> list[str]:
    """Files in a pretrained base model's folder; none for a hub name, which its revision identifies."""
    if "pretrained" not in model:
        return []
    # Modules of sentence-transformers are in subfolders, those of a Router one level below.
    patterns = ("[!.]*", "[!.]*/[!.]*", "[!.]*/[!.]*/[!.]*")
    candidates = (path for pattern in patterns for path in Path(model["pretrained"]).glob(pattern))
    return sorted(str(path) for path in candidates if path.suffix in MODEL_SUFFIXES and path.is_file())


def of_base_model(config: Config, name: str, file: str) -> str:
    """Return a file of a base model; if it is a released encoder or re-ranker, its card."""
    released = released_model(config, name)
    return paths.at(paths.BASE_MODEL, config, base_model=name) + (
        paths.CARD if released and released[0] in LEARNERS else file
    )


def base_model(config: Config, section: str, wildcards: Wildcards) -> str:
    """Weights of the base model of a job's encoder or re-ranker; the card of one that is released as such a model."""
    return of_base_model(config, entry_of(config, section, wildcards)["base_model"], "model.safetensors")


def tokenizer(config: Config, wildcards: Wildcards) -> str:
    """Return the tokenizer of a base model, or the card of the released model that has it."""
    return of_base_model(config, wildcards.base_model, "tokenizer.json")


def weights(config: Config, section: str, wildcards: Wildcards) -> str:
    """Return the weights of a job's model."""
    return Results(config).weights(section, getattr(wildcards, section.removesuffix("s")))


def start(config: Config, wildcards: Wildcards) -> list[str]:
    """Weights of the encoder from which a job's encoder starts, if any."""
    name = config["encoders"][wildcards.encoder].get("start")
    return [Results(config).weights("encoders", name)] if name else []


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


def all_candidates(config: Config, wildcards: Wildcards) -> list[str]:
    """Return the runs whose candidates a re-ranker scores."""
    names = reranked_by(config, wildcards.reranker, wildcards.split)
    return [paths.at(paths.RUN, config, split=wildcards.split, system=name) for name in names]


def shards(config: Config, path: str, wildcards: Wildcards) -> list[str]:
    """Return all shards of a file for a job's model."""
    return Results(config).shards(path, **{name: value for name, value in wildcards.items() if name != "dataset"})


def shard_of_passages(config: Config, wildcards: Wildcards) -> str | list[str]:
    """Return a shard of the passages whose precision a job's queries get, if the first machine chooses it."""
    is_open = config["encoders"][wildcards.encoder]["precision"] == "auto"
    return Results(config).vectors("encoders", wildcards.encoder)[0] if is_open else []


def additions_of(config: Config, section: str, name: str) -> list[str]:
    """Output of an expander or weigher: one imported file, or the shards of a model."""
    whole, shard = ADDITIONS[section]
    named = {section.removesuffix("s"): name}
    if "file" in config[section][name]:
        return [paths.at(whole, config, **named)]
    return Results(config).shards(shard, **named)


def index_additions(config: Config, section: str, wildcards: Wildcards) -> list[str]:
    """Return the expansions or term weights of an index, if it has any; filtered if the config asks for it."""
    name = config["lexical"][wildcards.lexical].get(INDEX_ADDITIONS[section])
    if name is None:
        return []
    if "filter" in config[section][name]:
        return [paths.at(paths.FILTERED_EXPANSIONS, config, expander=name)]
    return additions_of(config, section, name)


def queries_to_filter(config: Config, wildcards: Wildcards) -> list[str]:
    """Return the unfiltered predicted queries of a job's expander."""
    return additions_of(config, "expanders", wildcards.expander)


def filter_weights(config: Config, wildcards: Wildcards) -> str:
    """Weights of the re-ranker that filters an expander's queries."""
    return Results(config).weights("rerankers", config["expanders"][wildcards.expander]["filter"]["reranker"])


def filter_tokens(config: Config, wildcards: Wildcards) -> str:
    """Token cache of the passages for the re-ranker that filters an expander's queries."""
    name = config["expanders"][wildcards.expander]["filter"]["reranker"]
    return Results(config).tokens("rerankers", name, "passages")


# Runs.


def of_system(config: Config, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the inputs of a system's run; if it searches, also the results that it may not return."""
    system = system_of(config, wildcards.system)
    excluded = excluded_results(config, wildcards)
    return system.inputs(wildcards.split) | ({"exclude": excluded} if excluded and not system.parts() else {})


def for_tuning(config: Config, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the runs that weights are tuned for, of validation or another split, and the scores of a re-ranker."""
    inputs = system_of(config, wildcards.system).inputs(getattr(wildcards, "split", "validation"))
    return {"runs": inputs.get("candidates") or inputs["runs"], "scores": inputs.get("scores", [])}


def searched_exactly(config: Config, wildcards: Wildcards) -> System:
    """Return exact search over the vectors of a job's index."""
    name = wildcards.encoder
    return system_of({**config, "systems": {name: {"retrieve": name}}}, name)


def of_audit(config: Config, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the inputs of exact search that an index is compared with."""
    return searched_exactly(config, wildcards).inputs(wildcards.split)


def vectors_of_index(config: Config, wildcards: Wildcards) -> list[str]:
    """Return all shards of the vectors that a job's index is built from."""
    return Results(config).vectors(*searched_exactly(config, wildcards).models()[0])


# Evaluation.


def files_per_run(config: Config, path: str) -> list[str]:
    """Return a file of each evaluated run."""
    return [paths.at(path, config, split=split, system=name) for split, name in evaluated_runs(config)]


def of_split(config: Config, path: str, wildcards: Wildcards) -> list[str]:
    """Return a file of each system that has a run for a split."""
    return [paths.at(path, config, split=wildcards.split, system=name) for name in on_split(config, wildcards.split)]


def of_compared(config: Config, path: str, wildcards: Wildcards) -> list[str]:
    """Return a file of each system that is compared with the baseline."""
    names = compared(config, wildcards.split)
    return [paths.at(path, config, split=wildcards.split, system=name) for name in names]


def measured_of_split(config: Config, wildcards: Wildcards) -> list[str]:
    """Measures per query of each system on a split, if it has judgements."""
    return of_split(config, paths.PER_QUERY, wildcards) if is_judged(config, wildcards.split) else []


def measured_on_both(config: Config, split: str, wildcards: Wildcards) -> list[str]:
    """Values per query on `split` or `other`, which a job compares, of the systems with runs for both."""
    names = [name for name in on_split(config, wildcards.split) if wildcards.other in splits_of(config, name)]
    return [paths.at(paths.PER_QUERY, config, split=getattr(wildcards, split), system=name) for name in names]


def disagreeing_run(config: Config, position: int, wildcards: Wildcards) -> str:
    """Run of the first or second of the disagreeing systems."""
    name = config["evaluation"]["disagreements"][position]
    return paths.at(paths.RUN, config, split=wildcards.split, system=name)


def depths(config: Config) -> list[str]:
    """Curves by the number of re-ranked candidates, of all evaluated runs that have one."""
    pairs = [(split, name) for split, name in evaluated_runs(config) if has_curve(config, name)]
    return [paths.at(paths.DEPTHS, config, split=split, system=name) for split, name in pairs]


def overlaps(config: Config) -> list[str]:
    """Overlaps of systems on the splits without judgements."""
    splits = [split for split in unjudged_splits(config) if on_split(config, split)]
    return [paths.at(paths.OVERLAP, config, split=split) for split in splits]


def comparisons(config: Config) -> list[str]:
    """Comparisons on every evaluated split with runs of the baseline and another system."""
    splits = [split for split in evaluated_splits(config) if len(compared(config, split)) > 1]
    return [paths.at(paths.COMPARISON, config, split=split) + ".json" for split in splits]


def agreements(config: Config) -> list[str]:
    """Comparisons of the labels of splits that have the same queries."""
    return [paths.at(paths.AGREEMENT, config, split=split, other=other) for split, other in labelled_twice(config)]


def audits(config: Config) -> list[str]:
    """Audits of every index on every evaluated split on which it is searched."""
    return [
        paths.at(paths.AUDIT, config, split=split, encoder=encoder, index=kind)
        for split in evaluated_splits(config)
        for encoder, kind in indexes_of(config, split)
    ]


def sparsities(config: Config) -> list[str]:
    """Return the numbers of terms of each sparse encoder on the splits that systems with it are evaluated on."""
    sparse = [name for name in used_models(config, "encoders") if is_sparse(config["encoders"][name])]
    return [
        paths.at(paths.SPARSITY, config, split=split, encoder=name)
        for split in evaluated_splits(config)
        for name in sparse
        if split in splits_with_model(config, "encoders", name)
    ]


def splits_with_model(config: Config, section: str, name: str) -> list[str]:
    """List the evaluated splits with runs of systems that retrieve or re-rank with a model."""
    own = [system.name for system in all_systems(config).values() if (section, name) in system.models()]
    return [split for split in evaluated_splits(config) if any(split in splits_of(config, system) for system in own)]


def disagreements(config: Config) -> list[str]:
    """Disagreements on every evaluated split with runs of both systems."""
    both = config["evaluation"]["disagreements"]
    splits = [split for split in evaluated_splits(config) if all(split in splits_of(config, name) for name in both)]
    return [paths.at(paths.DISAGREEMENTS, config, split=split) for split in splits] if both else []


def consistency(config: Config) -> list[str]:
    """Consistency factors, one file per system and split with a run of the reference."""
    if (settings := config["evaluation"].get("consistency")) is None:
        return []
    return [
        paths.at(paths.CONSISTENCY, config, split=split, system=name)
        for split in splits_of(config, settings["reference"])
        for name in settings["systems"]
        if split in splits_of(config, name)
    ]


# What people see.


def explorers(config: Config) -> list[str]:
    """Pages of the explorer, one per ranked split."""
    return [*dict.fromkeys(paths.at(paths.EXPLORER, config, split=split) for split, _ in ranked_runs(config))]


def searched(config: Config) -> list[str]:
    """List the files that are opened to measure latencies: models, vectors, indexes, passages."""
    names = with_parts(config, config["latency"]["systems"])
    files = dict.fromkeys(file for name in names for file in system_of(config, name).files())
    return [paths.at(paths.PASSAGES, config), *files]


def latencies(config: Config) -> list[str]:
    """Latencies that the workflow measures, if the config has a section for them."""
    return [paths.at(paths.LATENCY, config, split=config["latency"]["split"])] if "latency" in config else []


def all_latencies(config: Config) -> list[str]:
    """Latencies that the workflow measures, and those that users put beside them."""
    files = Path(paths.at(paths.LATENCY, config, split="")).parent.glob("*.json")
    return sorted({*latencies(config), *map(str, files)})


def computed_in_auto(config: Config) -> list[str]:
    """Return a shard of the vectors, or the scores, of each model whose precision a machine chooses."""
    files = []
    for split, run in ranked_runs(config):
        system = system_of(config, run)
        for section, name in system.models():
            scores = paths.at(paths.SCORES, config, reranker=name, split=split)
            if config[section][name]["precision"] == "auto":
                files.append(scores if system.reranker() else system.results.vectors(section, name)[0])
    return list(dict.fromkeys(files))


def filters(config: Config) -> dict[str, str]:
    """Return counts of dropped examples, by title."""
    files = {"docstrings": paths.at(paths.RAW_FILTERS, config)} if "pydocs" in config["collection"] else {}
    files |= {"documents": paths.at(paths.IMPORT_COUNTS, config)} if source_of(config) else {}
    for split in splits_with(config, "generate"):
        source = f"{generated_from(config)}{' of documents' if copied_from(config) else ''}"
        title = f"{source} as queries of {title_of_split(config, split)}"
        files[title] = paths.at(paths.GENERATED_COUNTS, config, split=split)
    for split in splits_with(config, "judge"):
        files[f"grades of {title_of_split(config, split)}"] = paths.at(paths.GENERATED_COUNTS, config, split=split)
    for split in config["splits"]:
        files[f"judgements of {title_of_split(config, split)}"] = paths.at(paths.JUDGEMENT_COUNTS, config, split=split)
    for section, name in trainings(config):
        source = LEARNERS[section]
        files[f"{source} of {name}"] = paths.at(paths.EXAMPLE_COUNTS, config, source=source, model=name, split="train")
    return files


def tuned_weights(config: Config) -> dict[str, str]:
    """Tuned weights, by system; those that are tuned by folds, by system and split."""
    files = {name: paths.at(paths.WEIGHTS, config, system=name) for name in tuned_systems(config)}
    for split, name in evaluated_runs(config):
        system = system_of(config, name)
        if system.folds() and system.parts():
            files[f"{name} on {split}"] = system.tuned_files(split)[0]
    return files


def of_report(config: Config) -> dict[str, list[str] | dict[str, str]]:
    """Return the files that the report reads, by its options; those of a mapping are given as NAME=FILE."""
    models = [(section, name) for section in LEARNERS for name in used_models(config, section)]
    lengths = {}
    for section, name in models:
        base = config[section][name]["base_model"]
        for text in ("passages", *(f"queries.{split}" for split in splits_with_model(config, section, name))):
            lengths[f"{name} {text}"] = paths.at(paths.LENGTHS, config, base_model=base, text=text)

    def of_trainings(path: str) -> dict[str, str]:
        return {name: paths.at(path, config, section=section, model=name) for section, name in trainings(config)}

    return {
        "measures_files": files_per_run(config, paths.MEASURES),
        "overlaps": overlaps(config),
        "comparisons": comparisons(config),
        "depths_files": depths(config),
        "audits": audits(config),
        "disagreements": disagreements(config),
        "sparsities": sparsities(config),
        "curves": of_trainings(paths.CURVE),
        "selections": of_trainings(paths.SELECTION),
        "filters": filters(config),
        "tuned": tuned_weights(config),
        "models": {name: Results(config).weights(section, name) for section, name in models},
        "lengths": lengths,
        "latency_files": latencies(config),
        "agreements": agreements(config),
        "reproduction": [paths.at(paths.REPRODUCTION, config) + "reproduction.json"] if config["papers"] else [],
    }


def files_in(files: list[str] | dict[str, str]) -> Iterable[str]:
    """Yield the files of a list, or those with titles."""
    return files.values() if isinstance(files, dict) else files


def reproduced(config: Config) -> list[str]:
    """Tables and figures for all papers, as outputs of a rule."""
    files = []
    for path in config["papers"]:
        paper, name = read_paper(path), Path(path).stem
        files += [f"tables/{name}.{table.name}.{ending}" for table in paper.tables for ending in TABLES]
        files += [f"figures/{name}.{figure.name}.svg" for figure in paper.figures]
    return [paths.REPRODUCTION + file for file in files]


def submissions(config: Config) -> list[str]:
    """Submissions to leaderboards and TREC."""
    return [
        paths.at(paths.SUBMISSION, config, submission=name, suffix=SUFFIXES[submission["form"]])
        for name, submission in config["submissions"].items()
    ]


def deployments(config: Config) -> list[str]:
    """Deployed systems; a file stands for the folder of each."""
    return [f"{paths.at(paths.DEPLOYMENT, config, deployment=name)}check.json" for name in config["deploy"]]


def deployed(config: Config, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the runs of a deployed system's parts on the split that checks it, and what each part needs."""
    name, results = config["deploy"][wildcards.deployment]["system"], Results(config)
    split, system = checked_split(config, name), system_of(config, name)
    files: dict[str, str | list[str]] = {"runs": [], "bm25": [], "vectors": [], "query_vectors": []}
    for part in deployed_parts(config, name, results):
        run = results.run(split, part.name)
        files["runs"] = [*files["runs"], run]
        if part.lexical_index():
            files |= {"bm25": run, "parameters": part.tuned_files()}
        else:
            own = part.inputs(split)
            files |= {"vectors": own["passages"], "query_vectors": own["queries"]}
    weights = system.tuned_files() if system.parts() else []
    return {**files, "queries": results.at(paths.QUERIES, split=split), "weights": weights}


def targets(config: Config) -> list[str]:
    """Return what an experiment makes; everything else is made for these."""
    files = files_per_run(config, paths.MEASURES) + submissions(config) + deployments(config)
    files += [*latencies(config), *explorers(config), paths.at(paths.EXPERIMENT, config)]
    return [*files, f"{paths.at(paths.REPORT, config)}index.html"]


def check_papers(files: Sequence[str]) -> None:
    """Check all files of published numbers; those with equal names would overwrite each other's outputs.

    :raises ConfigError: with a line per mistake.
    """
    lines = [
        f"papers: found the name {name} {times} times, expected each once; rename a file"
        for name, times in Counter(Path(path).stem for path in files).items()
        if times > 1
    ]
    lines += [line for path in dict.fromkeys(files) for line in find_mistakes(path)]
    if lines:
        raise ConfigError("\n".join(lines))
