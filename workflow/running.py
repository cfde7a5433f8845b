"""Who else builds an experiment: Snakemake's locks, the processes of Snakemake in its folder, and later builds.

A job of a build that was killed may wait on a cluster until a later build, with other settings, has made what it would
make. So each build leaves a list of the files that it makes, and a job looks for lists of later builds when it begins.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import Timeout

from cort.config import paths
from cort.config.load import ConfigError, read
from cort.runtime.errors import InputError, input_error
from cort.runtime.files import write_text
from cort.runtime.locks import acquire

LOCKS = Path(".snakemake/locks")
#: lists of the files that builds make, named after the time at which they began
LISTS = Path(".snakemake/builds")
#: environment variable of the jobs of a build: the name of its list
BUILD = "CORT_BUILD"
#: environment variable of a build by `make`, which prints the summary afterwards
SUMMARY_FOLLOWS = "CORT_SUMMARY_FOLLOWS"
#: options of Snakemake that build nothing, and of the processes that it starts for its jobs
OTHERS = {"-n", "--dry-run", "--dryrun", "--unlock", "--mode", "--target-jobs"}


def check_lock(dataset: str, configfile: str, folder: Path) -> None:
    """Refuse to build an experiment of which a build in this folder has locked files.

    Snakemake itself decides; this says beforehand who it is, or what to do after a build that was killed.

    :raises InputError: as `explain_lock` says.
    """
    if is_locked(dataset, folder):
        raise explain_lock(dataset, configfile, folder)


def explain_lock(dataset: str, configfile: str, folder: Path) -> InputError:
    """Name the processes that may hold a lock and their configs, or the command that removes the locks."""
    # One of another experiment makes files of this one, too, if none of them is of this one.
    builds = [*builds_in(folder)]
    own = [build for build in builds if _dataset_of(folder / build[1]) in (dataset, None)]
    if running := own or (not is_locked(dataset, folder) and builds):
        found = f"the lock of a build that runs: process {', '.join(f'{pid} ({config})' for pid, config in running)}"
        return input_error(str(LOCKS), found, "none", "wait for its end, or end it")
    command = shlex.join([_program("snakemake"), "--unlock", "--configfile", configfile])
    found = f"the lock of a build of {dataset} that no process here runs"
    return input_error(str(LOCKS), found, "none", f"if it was killed, call `{command}`, then build again")


def is_locked(dataset: str, folder: Path) -> bool:
    """Tell whether a build has locked results of an experiment."""
    beginning = f"{paths.ROOT}/{dataset}/"
    for lock in (folder / LOCKS).glob("*.lock"):
        try:
            if any(name.startswith(beginning) for name in lock.read_text("utf-8", "replace").splitlines()):
                return True
        except FileNotFoundError:
            # That build has just ended.
            pass
    return False


def builds_in(folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the other processes of this machine that build in a folder: id, and the experiment."""
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words, place = process.info["cmdline"] or [], process.info["cwd"]
        is_build = _is_snakemake(words) and OTHERS.isdisjoint(words)
        if is_build and place == str(folder.resolve()) and process.pid != os.getpid():
            yield process.pid, _config_of(words)


@contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Refuse to do something while another process here does, which ends with that process, however it ends.

    :param path: a file that is locked.
    :raises InputError: names the process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = acquire(path)
    except Timeout:
        found = f"{what} that runs: process {path.read_text('utf-8')}"
        raise input_error(path, found, "none", "wait for its end, or end it") from None
    try:
        path.write_text(str(os.getpid()), "utf-8")
        yield
    finally:
        if lock:
            lock.release()


def begin_build(files: Iterable[str]) -> None:
    """Leave a list of the files that this build, which begins, makes in this folder, and tell its jobs."""
    os.environ[BUILD], wanted = f"{time.time_ns():020}", set(files)
    for file in LISTS.glob("[0-9]*"):
        if wanted.issuperset(_lines(file)):
            file.unlink(missing_ok=True)
    if wanted:
        write_text(LISTS / os.environ[BUILD], "\n".join(sorted(wanted)))


def check_newest(files: Iterable[str]) -> None:
    """Refuse to make files in a job, if a later build makes one of them.

    :raises InputError: names the file.
    """
    own = os.environ.get(BUILD)
    later = [file for file in LISTS.glob("[0-9]*") if own and file.name > own]
    if others := set(files).intersection(line for file in later for line in _lines(file)):
        fix = "so this job ends, and nothing was overwritten"
        raise input_error(min(others), "a later build that makes it", "none", fix)


def _lines(file: Path) -> list[str]:
    """Read a list; a later build may have removed it."""
    try:
        return file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []


def _is_snakemake(words: Sequence[str]) -> bool:
    """Tell whether a command line is that of `make`, `python -m snakemake ...` or `python .../bin/snakemake ...`."""
    return words[1:3] in (["-m", "workflow.build"], ["-m", "snakemake"]) or any(
        Path(word).name == "snakemake" for word in words[:2]
    )


def _config_of(words: Sequence[str]) -> str:
    for option in ("--configfile", "--configfiles"):
        if option in words[:-1]:
            return words[words.index(option) + 1]
        if given := [word for word in words if word.startswith(f"{option}=")]:
            return given[-1].partition("=")[2]
    return "config/pydocs.yaml"


def _dataset_of(configfile: Path) -> object:
    """Return the name of an experiment; None if its file cannot be read any more."""
    try:
        return read(configfile).get("dataset")
    except ConfigError:
        return None


def _program(name: str) -> str:
    """Return the path of a program beside this Python, from here if it is below this folder."""
    path = Path(sys.executable).with_name(name)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
