"""The files that a config names, each with its key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from cort.config.collection import Docstrings
from cort.config.entries import LEARNERS, paths_named
from cort.config.experiment import Experiment
from cort.config.learners import ImportedDense
from cort.config.lexical import PredictionFile
from cort.config.models import FilePairs, FileTriples

Files: TypeAlias = Iterator[tuple[str, str]]


def check_braces(experiment: Experiment) -> Iterator[str]:
    """Refuse files of the collection and the splits in whose names Snakemake would see wildcards."""
    for place, name in (*_of_collection(experiment), *_of_splits(experiment)):
        if name and not {*"{}"}.isdisjoint(name):
            found, expected = f"found {name!r}", "expected a name without braces, which Snakemake takes for wildcards"
            yield f"{place}: {found}, {expected}; rename the file, or link to it"


def named_files(experiment: Experiment) -> list[tuple[str, str]]:
    """List (key in the config, file) of each file that jobs may read; a public one as it is named there.

    Folders are not among them.
    """
    parts = (_of_collection, _of_splits, _of_systems, _of_models, _of_report)
    return [*dict.fromkeys(one for part in parts for one in part(experiment))]


def _of_collection(experiment: Experiment) -> Files:
    collection = experiment.collection
    if isinstance(collection, Docstrings):
        yield "collection.pydocs", "requirements.lock"
    for key in ("passages", "documents"):
        named = getattr(collection, key, None)
        if named and named is not collection.division:
            yield from ((f"collection.{key}", file) for file in paths_named(named))


def _of_splits(experiment: Experiment) -> Files:
    for name, split in experiment.splits.items():
        for key in ("queries", "qrels", "exclude"):
            yield from ((f"splits.{name}.{key}", file) for file in split.files(key))


def _of_systems(experiment: Experiment) -> Files:
    for name, system in experiment.systems.items():
        for run in filter(None, map(system.published, experiment.splits_of(name))):
            yield run[1], run[0]
        yield from system.given_files()


def _of_models(experiment: Experiment) -> Files:
    for name, encoder in experiment.encoders.items():
        if isinstance(encoder, ImportedDense):
            yield f"encoders.{name}.released", encoder.released
    for (section, name), model in experiment.learners.items():
        if isinstance(model.examples, FileTriples | FilePairs):
            yield f"{section}.{name}.{LEARNERS[section]}.file", model.examples.file
    for name in experiment.used_additions("expanders"):
        if isinstance(expander := experiment.root.expanders[name], PredictionFile):
            yield f"expanders.{name}.file", expander.file


def _of_report(experiment: Experiment) -> Files:
    for file in experiment.root.papers:
        yield "papers", file
