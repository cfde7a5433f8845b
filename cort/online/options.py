"""Options of commands that search an experiment, and how they find and open it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cort.retrieval.options import JavaOptions
from cort.runtime.errors import input_error
from cort.runtime.sections import FolderPath, Maybe, Threads, YamlFile

if TYPE_CHECKING:
    from cort.config.experiment import Experiment
    from cort.online.searcher import Searcher


class LiveOptions(JavaOptions):
    """Options of commands that open systems of an experiment."""

    experiment: Maybe[YamlFile] = None
    """Config of an experiment that was built."""
    results: Maybe[FolderPath] = None
    """Folder of its results, instead of --experiment."""
    threads: Threads = len(os.sched_getaffinity(0))
    device: Literal["cpu", "cuda"] = "cpu"
    """For models and vectors."""


def find_results(options: LiveOptions) -> Experiment:
    """Read the settings of the results that the options name.

    :raises InputError: if there is neither an experiment nor results, or both.
    """
    from cort.config.stored import NAME, read_experiment

    if (options.experiment is None) == (options.results is None):
        found = "neither" if options.results is None else "both"
        raise input_error("--experiment, --results", found, "one of the two", "name what to search")
    folder = Path(options.results) if options.results else folder_of(str(options.experiment))
    return read_experiment(folder / NAME)


def read_results(place: str | Path) -> Experiment:
    """Read the settings of the results in a folder, or of those of a config.

    :raises InputError: if there is neither.
    """
    from cort.config.stored import NAME, read_experiment

    return read_experiment((Path(place) if Path(place).is_dir() else folder_of(place)) / NAME)


def folder_of(experiment: str | Path) -> Path:
    """Find the results of an experiment; only the name of the dataset is read from its config."""
    from cort.formats.yaml_files import read_yaml

    dataset = read_yaml(experiment, "the file of an experiment").get("dataset")
    if not isinstance(dataset, str):
        raise input_error(experiment, "no dataset", "the file of an experiment", "name another")
    return Path("results") / dataset


def open_named(options: LiveOptions, results: Experiment, systems: Sequence[str], **more: bool) -> Searcher:
    """Open systems as `open_searcher` does, which is imported only now."""
    from cort.online.searcher import open_searcher

    return open_searcher(
        results,
        systems,
        devices=[options.device],
        threads=options.threads,
        memory_mb=options.memory_mb,
        **more,
    )
