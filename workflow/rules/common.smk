"""The config, wildcard constraints, and functions for the inputs, params and resources of rules."""

import math
import os
import signal
import sys
from functools import partial
from pathlib import Path

from snakemake.exceptions import WorkflowError

from cort.experiment.checks import ConfigError, complete, read
from cort.experiment.config import CHANGES, on_split, ranked_runs, splits_of, used_by_indexes
from cort.experiment.models import (
    encoders_pattern,
    on_released_triples,
    pretrained_pattern,
    released_model,
    used_models,
)
from cort.experiment.splits import labelled_twice
from cort.retrieval.graphs import GRAPHS, INDEXES, TOKEN_INDEXES
from cort.settings import paths
from cort.settings.config import (
    any_of,
    copied_from,
    generated_from,
    is_copied,
    names_with_file,
    source_of,
    splits_with,
    title_of_split,
    token_encoders,
)
from cort.system.program import ROOT
from cort.systems.base import Results
from cort.systems.registry import KINDS, all_systems, made_by, system_of
from workflow import inputs, report_inputs, report_settings, settings, sizes
from workflow.lock import guard
from workflow.machine import fix_shards, survey
from workflow.params import all_of, among, code_of, join, look_up, optional
from workflow.snakemake_api import check_scatter, complete_rules

# Jobs run the Python that runs Snakemake, even if its environment is not activated, and the stages of this project, even
# in another folder.
os.environ.update(
    PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]),
    PYTHONPATH=os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(os.pathsep),
)

# SLURM sends this signal to all processes of a job before its time limit (profiles/slurm); by default it would kill them.
# Stages inherit this; those that can save their work handle the signal.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)

# `exec` replaces the shell, so that signals reach the stage. So each rule must be a single command.
shell.prefix("set -euo pipefail; exec ")

try:
    for file in workflow.configfiles:
        read(file)
    completed = complete(config, str(workflow.configfiles[-1]) if workflow.configfiles else "config")
    # Removes the key `extends`, and sections that the experiment leaves out of the one it extends.
    config.clear()
    config.update(completed)
    report_inputs.check_papers(config["papers"])
except ConfigError as error:
    raise WorkflowError(str(error)) from None

guard(workflow, config)

MODEL_FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")
TABLES = (".csv", ".md", ".tex")

check_scatter(workflow, ("encode", *CHANGES.values(), "retrieve", "tokenize"))
MACHINE = survey(workflow)
SHARDS = fix_shards(
    workflow,
    "encode",
    folders=[
        *(paths.at(paths.VECTORS_FOLDER, config, encoder=name) for name in used_models(config, "encoders")),
        *(paths.at(paths.LATE_VECTORS_FOLDER, config, reranker=name) for name in token_encoders(config)),
    ],
    default=max(MACHINE.gpus or 0, 1),
)


def shards_of_changes(section, *folders):
    """Number of shards of the models of a section (expanders or weighers)."""
    names = used_by_indexes(config, section)
    folders = [paths.at(path, config, **{section.removesuffix("s"): name}) for path in folders for name in names]
    return fix_shards(workflow, CHANGES[section], folders, default=max(MACHINE.gpus or 0, 1))


EXPANSION_SHARDS = shards_of_changes("expanders", paths.EXPANSIONS_FOLDER, paths.EXPANSION_SCORES_FOLDER)
WEIGHING_SHARDS = shards_of_changes("weighers", paths.TERM_WEIGHTS_FOLDER)
RETRIEVAL_PARTS = fix_shards(
    workflow,
    "retrieve",
    folders=[
        paths.at(paths.RANKINGS_FOLDER, config, split=split, system=name)
        for split in config["splits"]
        for name, system in all_systems(config).items()
        if "retrieve_part" in system.rules
    ],
    default=1,
)
TOKENIZATION_SHARDS = fix_shards(
    workflow,
    "tokenize",
    folders=[paths.at(paths.TOKENS_FOLDER, config, base_model=name) for name in config["base_models"]],
    default=1,
)
GPU_THREADS = MACHINE.threads


wildcard_constraints:
    dataset=config["dataset"],
    split="|".join(config["splits"]),
    other="|".join(config["splits"]),
    system="[^/]+",
    encoder="[^/]+",
    reranker="[^/]+",
    model="[^/]+",
    weigher="[^/]+",
    expander="[^/]+",
    lexical=any_of(config["lexical"]),
    source="[^/]+",
    index="|".join(INDEXES),
    deployment="[^/]+",
    base_model="[^/]+",
    text=r"passages|queries\.[^/]+",


def training_threads(section):
    """Threads of a training: half of the machine for a model without layers, which gains nothing from more."""

    def get(wildcards):
        model = config["base_models"][setting(f"{section}.base_model")(wildcards)]
        return MACHINE.half if (model.get("architecture") or {}).get("num_hidden_layers") == 0 else 8

    return get


def graph_files(kind):
    """Files of a graph index: its description, its ids, and those of the library."""
    return multiext(paths.GRAPH.replace("{index}", kind), "meta.json", "ids.arrow", *GRAPHS[kind].files)


def table(name):
    """A table of the report in all formats."""
    return report(multiext(f"{paths.REPORT}tables/{name}", *TABLES), category="Tables")


def setting(path):
    """Value at a path of the config such as "encoders.{encoder}.training.gpus"."""
    return lambda wildcards: look_up(config, path, wildcards)[1]


def chosen(path, **names):
    """The file of a job at a path; `names` are wildcards whose values are in the config, as "systems.{system}.rerank"."""

    def get(wildcards):
        return path.format(**{**wildcards, **{name: setting(place)(wildcards) for name, place in names.items()}})

    return get


def weights(section):
    """Weights of a job's encoder or re-ranker."""
    return lambda wildcards: Results(config).weights(section, getattr(wildcards, section.removesuffix("s")))


def base_model(model, file="model.safetensors"):
    """A file of the base model of the model at a path in the config; the card of one that is released as such a model."""
    return lambda wildcards: inputs.of_base_model(config, setting(f"{model}.base_model")(wildcards), file)


def tokens(model, text):
    """Token cache of a text for the encoder or re-ranker at a path in the config."""
    return chosen(paths.TOKENS.replace("{text}", text), base_model=f"{model}.base_model")


def options(*parts, **renamed):
    """Options of a stage for settings: paths in the config and parts of workflow/params.py and workflow/settings.py."""
    return partial(join(*parts, **renamed), config)


def guarded(files):
    """Files of trained models, write-protected unless the config has `protect: false`."""
    return protected(files) if config["protect"] else files


def shards_of(section, name):
    """All passage shards of an encoder's vectors, or of the token vectors of a re-ranker."""
    return Results(config, SHARDS).vectors(section, name)


def vectors_of_index(wildcards):
    """All shards of the vectors that a job's index is built from."""
    return Results(config, SHARDS).vectors(*inputs.searched_exactly(config, wildcards).models()[0])


def folder_of_model(wildcards, input):
    """Folder of a job's re-ranker, if it has one."""
    return os.path.dirname(input.model) if "model" in input.keys() else []


def shard_of_passages(wildcards):
    """A shard of the passages whose precision a job's queries get, if the first machine chooses it."""
    is_open = setting("encoders.{encoder}.precision")(wildcards) == "auto"
    return shards_of("encoders", wildcards.encoder)[0] if is_open else []


def input_options(wildcards, input):
    """Inputs of a job as options of the same names; the file that stands for an index gives its folder."""
    words = []
    for name, files in input.items():
        files = [files] if isinstance(files, str) else files
        words += [f"--{name}", *(os.path.dirname(file) if name == "index" else file for file in files)]
    return words


def run_inputs(wildcards):
    """Inputs of the run of a job's system."""
    return inputs.of_system(config, SHARDS, wildcards)


def made_of_passages(section, name, whole, shard):
    """Output of an expander or weigher: one imported file, or the shards of a model."""
    named = {section.removesuffix("s"): name}
    if "file" in config[section][name]:
        return [paths.at(whole, config, **named)]
    gathered = getattr(gather, CHANGES[section])
    return gathered(paths.at(shard, config, **named, scatteritem="{scatteritem}"))


def candidates_of_splits(wildcards):
    """Queries from which splits are generated: of documents and passages, or predicted ones."""
    section, _, name = generated_from(config).partition(".")
    return made_of_passages(section, name, paths.EXPANSIONS, paths.EXPANSION_SHARD) if name else paths.CANDIDATES


def judged(wildcards):
    """Queries of the split that a job judges, and the runs of all systems on it."""
    split = config["splits"][wildcards.split]["judge"]["split"]
    runs = [paths.at(paths.RUN, config, split=split, system=name) for name in on_split(config, split)]
    return {"queries": paths.at(paths.QUERIES, config, split=split), "runs": runs}


def changes(section, whole, shard):
    """The expansions or term weights of an index, if it has any; filtered if the config asks for it."""

    def get(wildcards):
        name = config["lexical"][wildcards.lexical].get(CHANGES[section])
        if name is None:
            return []
        if "filter" in config[section][name]:
            return [paths.at(paths.FILTERED_EXPANSIONS, config, expander=name)]
        return made_of_passages(section, name, whole, shard)

    return get


def queries_to_filter(wildcards):
    """Unfiltered predicted queries of a job's expander."""
    return made_of_passages("expanders", wildcards.expander, paths.EXPANSIONS, paths.EXPANSION_SHARD)


def scores_of_predicted(wildcards):
    """All shards of the scores of an expander's queries."""
    names = {"expander": wildcards.expander, "scatteritem": "{scatteritem}"}
    return gather.expand(paths.at(paths.EXPANSION_SCORES, config, **names))


def measured_on_both(split):
    """Values per query, on one of the splits that a job compares (`split` or `other`), of each system with runs for both."""

    def get(wildcards):
        names = [name for name in on_split(config, wildcards.split) if wildcards.other in splits_of(config, name)]
        return [paths.at(paths.PER_QUERY, config, split=getattr(wildcards, split), system=name) for name in names]

    return get


def growing(base, per_mb=0):
    """Amount of a resource: `base` plus `per_mb` per megabyte of input, times the number of the attempt."""

    def get(wildcards, input, attempt):
        return round(attempt * (base + per_mb * (input.size_mb if per_mb else 0)))

    return get


def disk(size, times=1):
    """MB of files that a job writes: a size of workflow/sizes.py times a factor, at least 1."""
    return lambda wildcards: math.ceil(times * size(config, wildcards)) or 1


def times(amount, path):
    """Amount of a resource times the number at a path of the config."""
    return lambda wildcards: amount * setting(path)(wildcards)


def gpus(requested):
    """GPUs of a job that requests a number, or the number at a path of the config."""
    return lambda wildcards: MACHINE.gpus_for(
        requested if isinstance(requested, int) else setting(requested)(wildcards)
    )
