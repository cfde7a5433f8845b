"""The files that a config names, each with its key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from cort.config.entries import INDEX_ADDITIONS, LEARNERS, files_of, one_or_more
from cort.config.experiment import Experiment
from cort.config.model_facts import triples_file

Files: TypeAlias = Iterator[tuple[str, str | None]]


def named_files(experiment: Experiment) -> list[tuple[str, str]]:
    """List (key in the config, file) of each file that jobs may read; a public one as it is named there.

    Folders are not among them.
    """
    parts = (_of_collection, _of_splits, _of_systems, _of_models, _of_report)
    files = dict.fromkeys(one for part in parts for one in part(experiment))
    return [(place, name) for place, name in files if name]


def _of_collection(experiment: Experiment) -> Files:
    collection = experiment.config["collection"]
    if "pydocs" in collection:
        yield "collection.pydocs", "requirements.lock"
    for key in ("passages", "documents"):
        if key in collection and not isinstance(named := collection[key], dict):
            yield from ((f"collection.{key}", file) for file in files_of(named))


def _of_splits(experiment: Experiment) -> Files:
    for name, split in experiment.config["splits"].items():
        for key in ("queries", "qrels", "exclude"):
            yield from ((f"splits.{name}.{key}", file) for file in one_or_more(split.get(key, [])))


def _of_systems(experiment: Experiment) -> Files:
    for name, system in experiment.systems.items():
        for run in filter(None, map(system.published, experiment.splits_of(name))):
            yield run[1], run[0]
        yield from system.given_files()


def _of_models(experiment: Experiment) -> Files:
    config = experiment.config
    for name, encoder in config["encoders"].items():
        yield f"encoders.{name}.released", encoder.get("released")
    for section, name in experiment.trainings:
        yield f"{section}.{name}.{LEARNERS[section]}.file", triples_file(section, config[section][name])
    for section in INDEX_ADDITIONS:
        for name in experiment.used_additions(section):
            yield f"{section}.{name}.file", config[section][name].get("file")


def _of_report(experiment: Experiment) -> Files:
    for file in experiment.config["papers"]:
        yield "papers", file
