"""Allow one live workflow per dataset, and remove the locks of dead ones.

Snakemake locks files by listing them in ``.snakemake/locks``. If it is killed (SIGKILL, out of memory, power), the
lists stay, and later calls refuse to run until ``--unlock``. So this module uses a lock of the kernel: flock on
``.snakemake/owners/<dataset>``, held from the start of execution until the process ends. A workflow that gets it
removes Snakemake's locks of the dataset, since they must be a dead workflow's; one that does not names the owner and
stops. Where files cannot be locked, and with ``--nolock``, Snakemake behaves as usual.

Why there is no race:

- The kernel gives the lock to one open file at a time, and takes it back at the latest when the process ends. Process
  ids, which may be reused, are not compared.
- Jobs do not inherit the lock, except between fork and exec; so a workflow that does not get it retries for a while.
- Snakemake reads and writes its lists while this lock is held. A list that also names other datasets, whose runs may be
  inputs, is removed only if these have no live owner. A workflow that starts at that moment writes another list.
- If a live workflow's list is lost (Snakemake removes it when another workflow in the folder ends), flock still
  protects the dataset.
- A deleted file protects nothing, so after locking, it must still be the file at its path.

Jobs may outlive a killed workflow. They have its token in their environment; those on this host are ended, because
Snakemake recomputes their output anyway. Jobs of SLURM continue: two writers of one file are harmless.

After a power failure, the record of a finished job may be unreadable. Snakemake would then never rerun it after a
change, so the job is marked as incomplete.
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
# Snakemake writes here, too.
OTHER_FOLDERS = ("logs", "benchmarks")
# The rule that checks queries and judgements, and rules that need not wait for it.
CHECKS, BESIDE = ("split",), ("download",)
HINT = "`make why` shows what changed; docs/reruns.md explains how to keep these models, and how to replace them."
#: Environment variable of jobs with the token of their workflow.
VARIABLE = "CORT_WORKFLOW"
SLURM_JOB = "SLURM_JOB_ID"
# Seconds to wait for a lock held between fork and exec or by a dying process, and for jobs to end.
PATIENCE, GRACE = 2.0, 30.0
LOCKED = re.compile("^" + paths.DATASET.format(dataset=r"([^/\n]+)") + "/", re.MULTILINE)

_held: dict[Path, FileLock] = {}


def guard(workflow: Any, config: dict[str, Any]) -> None:
    """Claim the dataset when this workflow begins to execute, and improve Snakemake's messages; for the Snakefile.

    Single jobs, dry runs and queries (``--lint``, ``--summary``, ``--unlock``) claim nothing.

    :raises WorkflowError: if the path of an output folder is no folder.
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
            # The logs of the stages have the details.
            os.environ.setdefault(CONSOLE, "WARNING")
        if snakemake_api.takes_locks(workflow):
            try:
                claim(dataset)
            except WorkflowError as error:
                # If raised here, Snakemake would show a traceback.
                logger.error(str(error))
                sys.exit(1)

    def missing() -> list[str]:
        # Takes half a second to load.
        from workflow.planning.preflight import check_inputs

        return check_inputs(config, Path.cwd())

    events = {
        snakemake_api.STARTED: begin,
        # Errors in queries or judgements should show before hours of work.
        snakemake_api.PLANNED: lambda _: snakemake_api.put_first(workflow, CHECKS, BESIDE),
        snakemake_api.FAILED: failures.add,
        snakemake_api.FINISHED: failures.remove,
    }
    snakemake_api.listen(events, {snakemake_api.PROTECTED: lambda: [HINT], snakemake_api.MISSING: missing})


def claim(dataset: str) -> None:
    """Become the owner of a dataset in this folder until the process ends; clean up after a dead one.

    :raises WorkflowError: if another process owns it, or the disk is full.
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
        # Other problems with this folder are reported by Snakemake.
        if error.errno in DISK_IS_FULL:
            raise WorkflowError(f"{snakemake_api.FOLDER}: {error.strerror}; free space and call again") from None


def is_owned(dataset: str) -> bool:
    """Whether another process owns a dataset, or may own it because files cannot be locked."""
    path = OWNERS / dataset
    try:
        return path.exists() and acquire(path) is None
    except Timeout:
        return True


def processes_with(variable: str, value: str) -> list[int]:
    """Ids of readable processes on this host with a variable in their environment, except those of other SLURM jobs."""
    # Unreadable environments are None.
    processes = ((process.pid, process.info["environ"] or {}) for process in psutil.process_iter(["environ"]))
    ours = (None, os.environ.get(SLURM_JOB))
    return [pid for pid, words in processes if words.get(variable) == value and words.get(SLURM_JOB) in ours]


def _lock(path: Path) -> FileLock | None:
    """Lock a file of owners; None where files cannot be locked.

    :raises WorkflowError: if another process holds the lock.
    """
    try:
        return acquire(path, PATIENCE)
    except Timeout:
        owner = _read(path)
        who = f"process {owner['pid']} on {owner['host']} since {owner['since']}" if owner else "an unnamed process"
        folder = paths.DATASET.format(dataset=path.name)
        raise WorkflowError(
            f"{folder}: found a running workflow ({who}), expected none; wait for it, or end it"
        ) from None


def _read(path: Path) -> dict[str, Any]:
    """Read the description of an owner; empty if it died before writing it."""
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
        return {name: owner[name] for name in ("host", "pid", "token", "since")}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _clear_up(dataset: str, last: dict[str, Any]) -> None:
    """Remove what a dead owner left, with a warning each."""
    if last and last["host"] == socket.gethostname() and (ended := _end_jobs(last["token"])):
        logger.warning(f"Ended {ended} processes of a workflow that was killed (process {last['pid']}).")
    if removed := _remove_dead_locks(dataset):
        who = f"process {last['pid']} on {last['host']}, since {last['since']}" if last else "unknown"
        logger.warning(f"Removed {removed} locks of a workflow that was killed ({who}).")
    for output in _mark_damaged(dataset):
        logger.warning(f"The record of {output} is damaged; it is rebuilt.")


def _end_jobs(token: str) -> int:
    """End the processes of a dead workflow, first by SIGTERM, later by SIGKILL; return their number."""
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
    """Remove Snakemake's locks of this dataset unless they name a dataset of another owner; return their number."""
    removed = 0
    for path in snakemake_api.lock_files():
        with suppress(FileNotFoundError):
            named = set(LOCKED.findall(path.read_text(encoding="utf-8", errors="replace")))
            if dataset in named and not any(map(is_owned, named - {dataset})):
                path.unlink()
                removed += 1
    return removed


def _mark_damaged(dataset: str) -> Iterator[str]:
    """Turn unreadable records of the dataset into marks of incomplete jobs; yield the outputs."""
    for path, output, record in snakemake_api.records():
        if record is None and LOCKED.findall(output) == [dataset]:
            snakemake_api.mark_incomplete(path)
            yield output
