"""Options of commands that search an experiment, and how they find and open it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cort.retrieval.options import JavaOptions
from cort.system.errors import input_error
from cort.system.options import optional, thread_count

if TYPE_CHECKING:
    from cort.online.manifest import Manifest
    from cort.online.searcher import Searcher


@dataclass(frozen=True, kw_only=True)
class SearchOptions(JavaOptions):
    """Options of commands that open systems of an experiment."""

    experiment: str | None = optional(None, "config of an experiment that was built", "YAML")
    manifest: str | None = optional(None, "manifest of its results, instead of --experiment", "JSON")
    threads: int = thread_count(len(os.sched_getaffinity(0)))
    device: Literal["cpu", "cuda"] = optional("cpu", "for models and vectors")


def find_manifest(options: SearchOptions) -> Path:
    """Find the manifest that the options name.

    :raises InputError: if there is neither an experiment nor a manifest, or both.
    """
    if (options.experiment is None) == (options.manifest is None):
        found = "neither" if options.manifest is None else "both"
        raise input_error("--experiment, --manifest", found, "one of the two", "name what to search")
    return Path(options.manifest) if options.manifest else manifest_of(str(options.experiment))


def manifest_of(experiment: str | Path) -> Path:
    """Find the manifest of an experiment; only the name of the dataset is read from its config."""
    from cort.formats.yaml_files import read_yaml

    dataset = read_yaml(experiment, "the file of an experiment").get("dataset")
    if not isinstance(dataset, str):
        raise input_error(experiment, "no dataset", "the file of an experiment", "name another")
    return Path("results") / dataset / "manifest.json"


def open_systems(
    options: SearchOptions, manifest: Manifest, systems: Sequence[str], *, models_later: bool = False
) -> Searcher:
    """Open systems as `open_searcher` does, which is imported only now."""
    from cort.online.searcher import open_searcher

    return open_searcher(
        manifest,
        systems,
        devices=[options.device],
        threads=options.threads,
        memory_mb=options.memory_mb,
        models_later=models_later,
    )
