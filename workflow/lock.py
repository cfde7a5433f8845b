"""One live workflow per dataset, and no lock that a dead one left.

Snakemake locks files by listing them in ``.snakemake/locks``. When it is killed with SIGKILL, by an operator, for want
of memory or with the machine, the lists stay and every later call refuses to run until somebody says ``--unlock``.
Here the lock is the kernel's: flock on ``.snakemake/owners/<dataset>``, held from when a workflow begins to execute
until its process ends. Whoever gets it knows that nobody else executes this dataset, and removes what Snakemake has
locked of it: a dead workflow's. Who does not get it says who has it, and stops. Where files cannot be locked, and with
``--nolock``, all is as Snakemake has it.

Why this does not race:

- The kernel gives the lock to one open file at a time and takes it back when that is closed, at the latest with the
  process, however it dies. No process id is compared, so none can be mistaken for one that was reused.
- Python's files are not passed on to other programs, so jobs never hold the lock. Between fork and exec they do for an
  instant, which is why who does not get the lock tries again for a while.
- Snakemake reads and writes its lists while this lock is held, so nobody of the same dataset is between the two. A list
  that names other datasets too, for this one's runs may be their input, goes only if these have no live owner. Should
  one begin at that instant, its list is another file: that of the dead was there before.
- Were a live workflow's list lost all the same, as Snakemake itself does when one of two workflows in a folder ends,
  flock still keeps a second one off the same dataset.
- A file of owners that was deleted protects nobody: after locking it must still be the one at its path.

The process of a dead workflow may be gone and its jobs not, if only it was killed. They bear its token in their
environment; those on this host are ended, because Snakemake recomputes their output in any case. Jobs of SLURM belong
to it and go on: whoever wants to end them knows how, and two writers of one file are harmless.

A power failure may leave an unreadable record of a finished job: Snakemake then knows neither its parameters nor its
inputs, and no change of them makes it run again. Such a job is marked as unfinished.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from cort.settings import paths
from cort.system.cli import CONSOLE
from cort.system.files import DISK_IS_FULL
from cort.system.locks import acquire
from workflow import snakemake_api, terminal

OWNERS = snakemake_api.FOLDER / "owners"
# Of what Snakemake writes beside the results.
OTHER_FOLDERS = ("logs", "benchmarks")
# Rules that check queries and judgements, and those that may run before them.
CHECKS, BESIDE = ("split", "leakage"), ("download", "extract")
HINT = "`make why` says what changed; docs/reruns.md says how to keep these models, and how to replace them."
#: Environment variable by which jobs are known: the token of the workflow that began them.
VARIABLE = "CORT_WORKFLOW"
SLURM_JOB = "SLURM_JOB_ID"
# Seconds to wait for a lock held between fork and exec or by a process that is dying, and for jobs to end.
PATIENCE, GRACE = 2.0, 30.0
LOCKED = re.compile("^" + paths.DATASET.format(dataset=r"([^/\n]+)") + "/", re.MULTILINE)

_held: dict[Path, FileLock] = {}


def guard(workflow: Any, config: dict[str, Any]) -> None:
    """Claim the dataset when this workflow begins to execute; for the Snakefile.

    Where Snakemake misses input, the keys of the config that name it are said, too. Nothing is claimed by single jobs,
    in dry runs, nor for questions (``--lint``, ``--summary``, ``--unlock``).

    :raises WorkflowError: where folders should be is something else.
    """
    if not snakemake_api.is_main(workflow):
        return
    dataset = config["dataset"]
    folder = Path(paths.at(paths.DATASET, config))
    if any(os.path.lexists(name) and not os.path.isdir(name) for name in (paths.ROOT, folder, *OTHER_FOLDERS)):
        # Takes half a second to load.
        from workflow.planning.preflight import check_writable

        raise WorkflowError("\n".join(check_writable(Path.cwd(), str(folder))))

    failures = terminal.Failures()

    def begin(_: Any) -> None:
        if snakemake_api.replace_output(workflow, terminal.JobLines(failures)):
            # Details of the stages are in their logs.
            os.environ.setdefault(CONSOLE, "WARNING")
        if snakemake_api.takes_locks(workflow):
            try:
                claim(dataset)
            except WorkflowError as error:
                # Raised here, Snakemake would show where, too.
                logger.error(str(error))
                sys.exit(1)

    def missing() -> list[str]:
        # Takes half a second to load.
        from workflow.planning.preflight import check_inputs

        return check_inputs(config, Path.cwd())

    events = {
        snakemake_api.STARTED: begin,
        # A mistake in queries or judgements, or splits that share queries, are found before hours of work.
        snakemake_api.PLANNED: lambda _: snakemake_api.put_first(workflow, CHECKS, BESIDE),
        snakemake_api.FAILED: failures.add,
        snakemake_api.FINISHED: failures.remove,
    }
    snakemake_api.listen(events, {snakemake_api.PROTECTED: lambda: [HINT], snakemake_api.MISSING: missing})


def claim(dataset: str) -> None:
    """Become the one live owner of a dataset in this folder until the process ends; clear up after a dead one.

    :raises WorkflowError: when another process is at work on it, or the disk is full.
    """
    path = (OWNERS / dataset).absolute()
    if path in _held:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock(path)
        if lock is None:
            return
        _held[path] = lock
        _clear_up(dataset, _read(path))
        os.environ[VARIABLE] = token = secrets.token_hex(8)
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "token": token, "since": f"{datetime.now():%F %T}"}
        path.write_text(json.dumps(owner), encoding="utf-8")
    except OSError as error:
        # Whatever else is wrong with this folder, Snakemake says it next.
        if error.errno in DISK_IS_FULL:
            raise WorkflowError(f"{snakemake_api.FOLDER}: {error.strerror}; free space and call again") from None


def is_owned(dataset: str) -> bool:
    """Whether another process holds a dataset, or files cannot be locked so that nobody knows."""
    path = OWNERS / dataset
    try:
        return path.exists() and acquire(path) is None
    except Timeout:
        return True


def processes_with(variable: str, value: str) -> list[int]:
    """Process ids of this host, as far as we may look, that were begun with a variable in their environment.

    What another job of SLURM runs is left out.
    """
    # Of a process that we may not look at, it is None.
    processes = ((process.pid, process.info["environ"] or {}) for process in psutil.process_iter(["environ"]))
    ours = (None, os.environ.get(SLURM_JOB))
    return [pid for pid, words in processes if words.get(variable) == value and words.get(SLURM_JOB) in ours]


def _lock(path: Path) -> FileLock | None:
    """Lock the file of owners; None where files cannot be locked.

    :raises WorkflowError: when another process keeps it.
    """
    try:
        return acquire(path, PATIENCE)
    except Timeout:
        owner = _read(path)
        who = f"process {owner['pid']} on {owner['host']} since {owner['since']}" if owner else "an unnamed process"
        folder = paths.DATASET.format(dataset=path.name)
        raise WorkflowError(
            f"{folder}: found a workflow at work on it ({who}), expected none; wait for it, or end it"
        ) from None


def _read(path: Path) -> dict[str, Any]:
    """Read what an owner wrote of itself; nothing if it died before or while it did."""
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
        return {name: owner[name] for name in ("host", "pid", "token", "since")}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _clear_up(dataset: str, last: dict[str, Any]) -> None:
    """Remove what a dead owner left, and say so in a line each."""
    if last and last["host"] == socket.gethostname() and (ended := _end_jobs(last["token"])):
        logger.warning(f"Ended {ended} processes of a workflow that was killed (process {last['pid']}).")
    if removed := _remove_dead_locks(dataset):
        who = f"process {last['pid']} on {last['host']}, since {last['since']}" if last else "unknown"
        logger.warning(f"Removed {removed} locks of a workflow that was killed ({who}).")
    for output in _mark_damaged(dataset):
        logger.warning(f"The record of {output} is damaged; it is made again.")


def _end_jobs(token: str) -> int:
    """End the processes of a dead workflow, gently at first; their number."""
    seen: set[int] = set()
    end = time.monotonic() + GRACE
    while (pids := processes_with(VARIABLE, token)) and time.monotonic() < end + PATIENCE:
        late = time.monotonic() > end
        for pid in pids if late else set(pids) - seen:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        seen.update(pids)
        time.sleep(0.1)
    return len(seen)


def _remove_dead_locks(dataset: str) -> int:
    """Remove Snakemake's locks that name this dataset and none that is somebody else's; their number."""
    removed = 0
    for path in snakemake_api.lock_files():
        with suppress(FileNotFoundError):
            named = set(LOCKED.findall(path.read_text(encoding="utf-8", errors="replace")))
            if dataset in named and not any(map(is_owned, named - {dataset})):
                path.unlink()
                removed += 1
    return removed


def _mark_damaged(dataset: str) -> Iterator[str]:
    """Turn unreadable records of the dataset into marks of unfinished jobs; yield the outputs."""
    for path, output, record in snakemake_api.records():
        if record is None and LOCKED.findall(output) == [dataset]:
            snakemake_api.mark_incomplete(path)
            yield output
