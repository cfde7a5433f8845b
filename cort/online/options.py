"""What commands that search an experiment are told, and how they find what it has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cort.retrieval.fusion import FUSIONS
from cort.retrieval.graphs import INDEXES
from cort.retrieval.options import JavaOptions, check_positive
from cort.system.errors import input_error
from cort.system.options import optional, thread_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from cort.online.manifest import Manifest
    from cort.online.searcher import Searcher


@dataclass(frozen=True, kw_only=True)
class SearchOptions(JavaOptions):
    """Of commands that open systems of an experiment."""

    experiment: str | None = optional(None, "its dataset names the manifest in results/", "YAML")
    manifest: str | None = optional(None, "what the stage `manifest` wrote, in the place of --experiment", "JSON")
    threads: int = thread_count(len(os.sched_getaffinity(0)))
    device: Literal["cpu", "cuda"] = optional("cpu", "of models and vectors")


def find_manifest(options: SearchOptions) -> Path:
    """Find the manifest that the options name.

    :raises InputError: neither an experiment nor a manifest, or both.
    """
    if (options.experiment is None) == (options.manifest is None):
        found = "neither" if options.manifest is None else "both"
        raise input_error("--experiment, --manifest", found, "one of the two", "name what is to be searched")
    check_positive(options, "threads")
    return Path(options.manifest) if options.manifest else manifest_of(str(options.experiment))


def manifest_of(experiment: str | Path) -> Path:
    """Find the manifest of an experiment, of whose file nothing but the name of the dataset is read."""
    from cort.formats.yaml_files import read_yaml

    dataset = read_yaml(experiment, "the file of an experiment").get("dataset")
    if not isinstance(dataset, str):
        raise input_error(experiment, "no dataset", "the file of an experiment", "name another")
    return Path("results") / dataset / "manifest.json"


def choose_systems(manifest: Manifest) -> list[str]:
    """Take the first BM25, the first dense and the first fused system, as far as there are such."""
    kinds = {name: system["kind"] for name, system in manifest.systems.items()}
    chosen = []
    for wanted in (("bm25",), ("exact", "late_interaction", *INDEXES), tuple(FUSIONS)):
        chosen += [name for name, kind in kinds.items() if kind in wanted][:1]
    return chosen or list(kinds)[:1]


def opener(options: SearchOptions, manifest: Manifest, systems: Sequence[str], **more: bool) -> Callable[[], Searcher]:
    """Return what opens systems; `more` is for `open_searcher`."""
    from cort.online.opening import open_searcher

    devices, threads, memory_mb = [options.device], options.threads, options.memory_mb
    return partial(open_searcher, manifest, systems, devices=devices, threads=threads, memory_mb=memory_mb, **more)
