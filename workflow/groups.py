"""Groups of stages that are one job on a cluster: light ones with those that they follow. Local builds have none.

A group waits for the inputs of all its stages, and others wait until all of them have ended. So a stage joins a group
only if nothing waits longer than its own seconds, and if it needs nothing outside that comes after another stage of
the group, which Snakemake refuses. Within a group, the memory of a stage must not depend on the size of what an
earlier one makes, which nobody knows when the job is submitted. Stages that use GPUs stay alone.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeAlias

from cort.config import paths
from cort.config.experiment import Experiment
from cort.config.lexical import PredictionFile
from workflow.inputs import learner_of

Wildcards: TypeAlias = Any

REPORT = "report"
#: samples of triples and pairs from lexical runs; profiles/slurm puts those of several models into one job
SAMPLES = "samples"
#: rules that make a run without a GPU
ON_CPUS = {"bm25", "retrieve_graph", "retrieve_impacts", "fuse", "rerank", "import_run"}


def of_run(experiment: Experiment, wildcards: Wildcards) -> str | None:
    """Return the group of a run that is made without a GPU, and its measures; none if nothing is measured."""
    split, system = wildcards.split, wildcards.system
    if experiment.measured_run != paths.RUN or (split, system) not in experiment.evaluated_runs:
        return None
    return f"run.{split}.{system}" if experiment.systems[system].rule in ON_CPUS else None


def of_measures(experiment: Experiment, wildcards: Wildcards) -> str | None:
    """Return the group of the measures of a run; that of runs of passages has the run of documents, too."""
    if experiment.measured_run != paths.RUN:
        return f"documents.{wildcards.split}.{wildcards.system}"
    return of_run(experiment, wildcards)


def of_samples(experiment: Experiment, section: str, wildcards: Wildcards) -> str | None:
    """Return the group of the training examples that a model of a section gets from lexical runs only."""
    model = learner_of(experiment, section, wildcards)
    rules = {experiment.systems[name].rule for name in model.examples.systems}
    return SAMPLES if rules == {"bm25"} and not experiment.draws_deeply(model) else None


def gpus_of_negatives(experiment: Experiment, wildcards: Wildcards) -> int:
    """Return 1 if a system, or one that it is merged from, searches on a GPU, or 0."""
    rules = {experiment.systems[name].rule for name in experiment.with_parts([wildcards.system])}
    return 0 if rules <= ON_CPUS else 1


def of_base_model(wildcards: Wildcards) -> str:
    """Return the group of a base model that is made on the cluster, and of the texts that are tokenized for it."""
    return f"tokens.{wildcards.base_model}"


def of_tokens(experiment: Experiment, made: bool, wildcards: Wildcards) -> str | None:
    """Return the group of a tokenized text: that of its base model if that is `made` there.

    Queries that are generated or judged may come after models, which come after tokenized passages.
    """
    late = any(split.is_imported and not split.is_copied for split in experiment.splits.values())
    joins = made and wildcards.base_model not in experiment.released and (wildcards.text == "passages" or not late)
    return of_base_model(wildcards) if joins else None


def of_expansions(experiment: Experiment, wildcards: Wildcards) -> str | None:
    """Return the group of imported expansions: that of the index, if they are for one."""
    names = [name for name, index in experiment.lexical.items() if index.expand == wildcards.expander]
    return f"index.{names[0]}" if len(names) == 1 else None


def of_index(experiment: Experiment, wildcards: Wildcards) -> str | None:
    """Return the group of an index, if it has imported expansions of its own."""
    name = experiment.lexical[wildcards.lexical].expand
    if name is None or not isinstance(experiment.root.expanders[name], PredictionFile):
        return None
    group = of_expansions(experiment, SimpleNamespace(expander=name))
    return group if group == f"index.{wildcards.lexical}" else None
