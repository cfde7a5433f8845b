"""The config, wildcard constraints, and functions for the inputs, params and resources of rules.

Settings and the code of a stage are params, so that a change of either runs its rules again; Snakemake compares them.
Logs and benchmarks are named after the rule and the wildcards of its output. A rule beside its stage, `cort/mean.py`:

    rule mean:
        input:
            runs=of(inputs.of_split, paths.RUN),
        output:
            paths.MEAN,
        log:
            "logs/{dataset}/mean/{split}.log",
        benchmark:
            "benchmarks/{dataset}/mean/{split}.tsv"
        resources:
            mem_mb=growing(1000, per_mb=2),
            runtime=growing(60),
        params:
            code=code_of("mean"),
            options=options(("splits.{split}", "measures"), "seed"),
        message:
            "Average the runs of {wildcards.split}"
        shell:
            "exec python -m cort.mean --runs {input.runs:q} {params.options:q} --output {output:q} --log {log:q}"
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path

from snakemake.exceptions import WorkflowError

from cort.config.load import ConfigError, complete, read
from cort.config.collection import RequestLimits
from cort.config.downloads import file_pattern, resolve
from cort.config.experiment import Experiment
from cort.reporting.written import files_of_report
from cort.retrieval.indexes import GRAPHS, INDEXES
from cort.config import paths
from cort.config.entries import any_of
from cort.runtime.command_line import words_of
from cort.runtime.devices import visible_devices
from cort.runtime.interruption import ATTACHED
from cort.runtime.program import ROOT
from cort.runtime.progress import CONSOLE
from cort.runtime.sections import keys_of
from workflow import groups, inputs, params, slurm
from workflow.params import code_of, look_up
from workflow.running import SUMMARY_FOLLOWS, begin_build, check_newest, explain_lock
from workflow.snakemake_api import (
    STARTED,
    cores_of,
    explain_locks,
    failures,
    is_new,
    keep_outputs_in_jobs,
    limit,
    limit_groups,
    longest_runtime,
    partitions_of,
    planned_files,
    retry_no_mistakes,
    runs_here,
    set_missing_defaults,
    submits_to_slurm,
)

# Jobs run the Python that runs Snakemake, even if its environment is not activated, and the stages of this project, even
# in another folder.
os.environ.update(
    PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]),
    PYTHONPATH=os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(os.pathsep),
)

# Threads that wait for each other give their core away after some microseconds. By default they wait a hundred times as
# long, and beside other work on the machine a stage takes several times the CPU time.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")

# The logs of the stages have the details. Stages end with Snakemake, even if it is killed.
os.environ.setdefault(CONSOLE, "WARNING")
os.environ[ATTACHED] = "1"

# SLURM sends this signal to all processes of a job before its time limit (profiles/slurm); by default it would kill them.
# Stages inherit this; those that can save their work handle the signal.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
slurm.ignore_early_warnings()

retry_no_mistakes(slurm.failures.refused)
keep_outputs_in_jobs(check_newest)
limit_groups()

try:
    for file in workflow.configfiles:
        read(file)
    CONFIGFILE = str(workflow.configfiles[-1]) if workflow.configfiles else "config"
    written = complete(config, CONFIGFILE)
except ConfigError as error:
    raise WorkflowError(str(error)) from None

experiment = Experiment(resolve(written.root))
# Removes the key `extends`, and sections that the experiment leaves out of the one it extends.
config.clear()
config.update(experiment.config)
explain_locks(partial(explain_lock, config["dataset"], CONFIGFILE, Path.cwd()))

MODEL_FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")
# Limits on what is asked of servers, which affect no result.
ASKED = {name: value for name, value in config.get("endpoint", {}).items() if name != "model"}
LIMITS = {
    "answers": words_of({name: value for name, value in ASKED.items() if name in keys_of(RequestLimits)}),
    "texts": words_of(ASKED),
}
# More threads per job help little.
MOST_THREADS = 8
# Limits of this machine for all jobs together; None on a cluster, which chooses machines.
CORES = cores_of(workflow) if runs_here(workflow) else None
GPUS = limit(workflow, "gpu", len(visible_devices())) if runs_here(workflow) else None
if not runs_here(workflow):
    slurm.ask_for_gpus()
    slurm.mend_plugin(config["dataset"], STARTED)
    # All GPUs of a job are on one node. Jobs are warned 300 s before their time limit; training then saves its state, and
    # the next attempt resumes.
    set_missing_defaults(workflow, nodes=1, slurm_extra="'--signal=USR1@300'")
# Threads of a job with a GPU, so that as many jobs as GPUs can run, and of one that leaves half of the cores to others.
CPUS_PER_GPU = CORES // GPUS if CORES and GPUS else slurm.cpus_per_gpu() or MOST_THREADS
GPU_THREADS = max(1, min(MOST_THREADS, CPUS_PER_GPU))
HALF = max(1, min(MOST_THREADS, CORES // 2)) if CORES else MOST_THREADS

if not runs_here(workflow):
    # Rules of a group, which run in one job on one node of a cluster (`nodes` of profiles/slurm), run in turn.
    limit(workflow, "nodes", 1)


resource_scopes:
    nodes="local",


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
    shard=r"\d+-of-\d+",


# Names.


def having(section, path, wanted=True):
    """Pattern of the names of a section's entries that have a value at a path such as "triples.file", or have none."""

    def has(entry):
        for key in path.split("."):
            if key not in entry:
                return False
            entry = entry[key]
        return True

    return any_of(name for name, entry in config[section].items() if has(entry) == wanted)


def made_by(rule):
    """Pattern of the names of systems whose runs a rule makes."""
    return any_of(name for name, system in experiment.systems.items() if system.rule == rule)


# Inputs.


def whole_experiment(wildcards):
    """All results, if the files that the config names are there: Snakemake's own message would not name their keys."""
    from workflow.preflight import check_inputs

    if problems := check_inputs(written, Path.cwd()):
        raise WorkflowError("\n".join(problems))
    return inputs.targets(experiment)


def of(function, *arguments):
    """A function of workflow/inputs.py as the input of a rule: it gets the experiment, these arguments, and wildcards."""
    return partial(function, experiment, *arguments)


def setting(path):
    """Value at a path of the config such as "encoders.{encoder}.training.gpus"."""
    return lambda wildcards: look_up(experiment, path, wildcards)


def chosen(path, **names):
    """The file of a job at a path; `names` are wildcards whose values are in the config, as "systems.{system}.rerank"."""

    def get(wildcards):
        return path.format(**{**wildcards, **{name: setting(place)(wildcards) for name, place in names.items()}})

    return get


def tokens(model, text):
    """Token cache of a text for the encoder or re-ranker at a path in the config."""
    return chosen(paths.TOKENS.replace("{text}", text), base_model=f"{model}.base_model")


def shards(path):
    """All shards of a file for the model of a job."""
    return of(inputs.shards, path)


# Outputs.


def guarded(files):
    """Files of trained models, write-protected unless the config has `protect: false`."""
    return protected(files) if config["protect"] else files


def index_files(kind):
    """Files of an approximate index: its description, and what it consists of."""
    return multiext(paths.GRAPH.replace("{index}", kind), "meta.json", *INDEXES[kind].files)


def reported_in(folder):
    """Tables or figures of the report."""
    files = [name for name in files_of_report(experiment) if name.startswith(folder)]
    return report([paths.REPORT + name for name in files], category=folder.strip("/").capitalize())


# Params.


def options(*parts, **renamed):
    """Options of a stage by paths in the config, and functions of workflow/params.py."""
    return params.options(experiment, *parts, **renamed)


def folder_of_model(wildcards, input):
    """Folder of a job's re-ranker, if it has one."""
    return os.path.dirname(input.model) if "model" in input.keys() else []


# Resources.


def growing(base, per_mb=0, of=None):
    """Amount of a resource: `base` plus `per_mb` per megabyte of input, times the number of the attempt.

    If other inputs are made in the same job on a cluster (workflow/groups.py), `of` names the one whose size counts. The
    limit of `resources` in profiles/slurm holds for the amount.
    """

    def get(wildcards, input, attempt):
        size = (os.stat(input[of]).st_size / 1e6 if of else input.size_mb) if per_mb else 0
        return round(attempt * (base + per_mb * size))

    return get


def times(amount, path):
    """Amount of a resource times the number at a path of the config."""
    return lambda wildcards: amount * setting(path)(wildcards)


def gpus(requested):
    """GPUs of a job that requests a number, that of a function, or that at a path of the config: at most those here.

    None on a cluster without any.
    """
    of_job = setting(requested) if isinstance(requested, str) else requested

    def get(wildcards):
        number = of_job(wildcards) if callable(of_job) else of_job
        if GPUS is None:
            return number if slurm.has_gpus(partitions_of(workflow)) else 0
        return min(number, GPUS)

    return get


def run_threads(wildcards):
    """Threads of a run: all cores for the queries of the training split, many more than others, as training waits."""
    return MOST_THREADS if wildcards.split == "train" else HALF


def training_threads(section):
    """Threads of a training: half of the machine for a model without layers, which gains nothing from more."""

    def get(wildcards):
        model = config["base_models"][setting(f"{section}.base_model")(wildcards)]
        return HALF if (model.get("architecture") or {}).get("num_hidden_layers") == 0 else MOST_THREADS

    return get
