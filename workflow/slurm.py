"""SLURM: what a build asks the cluster before its first job, and what it adds to Snakemake's plugin.

`mend_plugin` is for release 2.8 of the plugin. What upstream should change: `check_active_jobs` forgets all jobs if the
status command fails in all attempts of one check (`if status_of_jobs is not None` has no else, which must yield the
jobs), so that Snakemake waits for ever after an outage of the controller; `run_job` takes an outage for a refusal of
the job; `GroupJob.log_error` drops the message of an error.
"""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cort.runtime.errors import input_error
from workflow.snakemake_api import is_finished

#: environment variables for the processes of Snakemake in jobs: GPUs of the largest node, and CPUs per GPU; or nothing
NODE_GPUS, CPUS_PER_GPU = "CORT_NODE_GPUS", "CORT_CPUS_PER_GPU"
PLUGIN = "snakemake_executor_plugin_slurm"
# Seconds: of a question, and of an outage of the controller while jobs are submitted.
QUESTION, OUTAGE, PAUSE = 30, 300, 5
ALIVE = "PENDING,CONFIGURING,RUNNING,SUSPENDED"
UNREACHABLE = re.compile(r"contact slurm controller|timed out|Connection refused|[Cc]ommunication|Zero Bytes")
REFUSED = re.compile(r"SLURM sbatch failed\. The error message was '(.*?)'\.\n {4}sbatch call", re.DOTALL)
FAILED_SUBMISSION = "Job submission failed with exception"
EXCEPTION = re.compile(rf"{FAILED_SUBMISSION}: (.*)", re.DOTALL)
ENDED = re.compile(r"SLURM-job '(\w+)' failed.*SLURM status is: '(\w+)'", re.DOTALL)
INACCESSIBLE = re.compile(r"^.*(?:Permission denied|Read-only file system|couldn't chdir to).*$", re.MULTILINE)


# Questions.


def ask(*command: str) -> str | None:
    """Return what a command of SLURM prints, None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=QUESTION, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def ask_for_gpus() -> None:
    """Set the variables about GPUs, also for the jobs of this build; not where `sinfo` says nothing."""
    if NODE_GPUS in os.environ:
        return
    text = ask("sinfo", "--noheader", "--format=%c %G") or ""
    nodes = [
        (int(cpus), sum(map(int, re.findall(r"\bgpu(?::[A-Za-z][\w.-]*)?:(\d+)", gres))))
        for cpus, gres in re.findall(r"^(\d+)\+? (\S+)", text, re.MULTILINE)
    ]
    if not nodes:
        return
    with_gpus = [(cpus, gpus) for cpus, gpus in nodes if gpus]
    os.environ[NODE_GPUS] = str(max((gpus for _, gpus in with_gpus), default=0))
    if with_gpus:
        os.environ[CPUS_PER_GPU] = str(max(1, min(cpus // gpus for cpus, gpus in with_gpus)))


def has_gpus(partitions: Path | None) -> bool:
    """Tell whether jobs can have GPUs: not if no node or no partition of the file has any."""
    if partitions and not any(limits.get("max_gpu") for limits in read_partitions(partitions).values()):
        os.environ[NODE_GPUS] = "0"
    return os.environ.get(NODE_GPUS) != "0"


def cpus_per_gpu() -> int | None:
    """Return the CPUs of a node divided by its GPUs, None if nothing says that."""
    return int(text) if (text := os.environ.get(CPUS_PER_GPU)) else None


@cache
def read_partitions(file: Path) -> Mapping[str, Mapping[str, Any]]:
    """Read name -> limits; nothing of a file that is not as the plugin wants it, of which it tells."""
    try:
        content = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    found = content.get("partitions") if isinstance(content, dict) else None
    return {name: limits or {} for name, limits in found.items()} if isinstance(found, dict) else {}


# Checks before the first job.


def check_runtime(limit: int | None, partitions: Path | None) -> list[str]:
    """Compare the longest time of a job, in minutes, with that of the partitions."""
    limits = [entry.get("max_runtime") for entry in read_partitions(partitions).values()] if partitions else []
    numbers = [number for number in limits if isinstance(number, int)]
    if not numbers or len(numbers) < len(limits) or (limit is not None and limit <= max(numbers)):
        return []
    found = f"no runtime of at most {max(numbers)}" if limit is None else f"runtime: {limit}"
    expected = f"at most {max(numbers)} minutes, the longest max_runtime of {partitions}"
    return [str(input_error("resources", found, expected, "change it in profile.yaml, or max_runtime"))]


def check_earlier_jobs(dataset: str, folder: Path) -> list[str]:
    """Name the jobs of earlier builds of an experiment in a folder: they would write what this build writes."""
    text = ask("squeue", f"--user={getpass.getuser()}", "--noheader", f"--states={ALIVE}", "--format=%i|%j|%Z") or ""
    runs = dict[str, list[str]]()
    for line in text.splitlines():
        job, name, place = line.split("|", maxsplit=2)
        if name.startswith(f"{prefix_of(dataset)}_") and Path(place) == folder:
            runs.setdefault(name, []).append(job)
    jobs = ", ".join(job for ids in runs.values() for job in ids)
    cancel = " and ".join(f"`scancel --name {name}`" for name in runs)
    fix = f"wait for their end, or call {cancel}, then build again"
    return [str(input_error("SLURM", f"jobs of an earlier build in this folder: {jobs}", "none", fix))] if runs else []


def prefix_of(dataset: str) -> str:
    """Return the beginning of the names of an experiment's jobs, with characters that the plugin allows."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", dataset)[:50]


# The plugin.


class Failures:
    """What is known of failed jobs; a job that is tried again and ends well did not fail."""

    def __init__(self) -> None:
        #: jobs that have no further attempt
        self.refused: set[int] = set()
        self._lines: dict[tuple[int, ...], tuple[str, str, Sequence[str], str]] = {}

    def note(self, job: Any, reason: str, log: str, since: float, final: bool) -> None:
        """Keep why a job, or a part of a group, failed, and SLURM's log of it; before outputs are cleaned up."""
        jobs = jobs_of(job)
        key = tuple(sorted(part.jobid for part in jobs))
        # Those of a group that began and did not end, or else all that did not.
        unfinished = [part for part in jobs if not is_finished(part)] or jobs
        failed = [part for part in unfinished if own_logs(logs_of([part]), since)] or unfinished
        names = " and ".join(sorted({part.rule.name for part in failed}))
        self._lines[key] = (names, reason, logs_of(failed), log)
        if final:
            self.refused.update(key)

    def drop(self, job: Any) -> None:
        """Forget a job that ended well."""
        self._lines.pop(tuple(sorted(part.jobid for part in jobs_of(job))), None)

    @property
    def ids(self) -> set[int]:
        """Snakemake's numbers of the jobs."""
        return {number for key in self._lines for number in key}

    def lines(self, since: float) -> list[str]:
        """Name each job with its reason; its logs are those that were written since a time, else SLURM's."""
        return [
            f"{name} failed: {reason}" + "".join(f"; its log is {path}" for path in own_logs(logs, since) or known(log))
            for name, reason, logs, log in self._lines.values()
        ]


#: of this process
failures = Failures()


def jobs_of(job: Any) -> Sequence[Any]:
    """List the jobs of a group, or the one that it is."""
    return list(job.jobs) if job.is_group() else [job]


def logs_of(jobs: Sequence[Any]) -> list[str]:
    """List the logs of the stages of some jobs."""
    return [str(log) for job in jobs for log in job.log]


def known(log: str) -> list[str]:
    """Name a log if it is there."""
    return [log] if Path(log).is_file() else []


def own_logs(logs: Sequence[str], since: float) -> list[str]:
    """Choose the logs that were written since a time (seconds since the epoch)."""
    states = ((log, os.stat(log)) for log in logs if Path(log).is_file())
    return [log for log, state in states if state.st_size and state.st_mtime >= since]


def why(message: str, jobs: Sequence[Any], log: str, since: float) -> tuple[str, bool]:
    """Shorten the plugin's message to a reason; tell whether another attempt would fail in the same way."""
    if match := REFUSED.search(message) or EXCEPTION.search(message):
        reason = " ".join(match[1].split())[:500]
        return f"SLURM did not take the job: {reason}", not UNREACHABLE.search(reason)
    if not (match := ENDED.search(message)):
        return message.partition("\n")[0].strip()[:500] or "SLURM gives no reason", False
    number, status = match.groups()
    if status != "FAILED" or own_logs(logs_of(jobs), since):
        return f"SLURM job {number} has the status {status}", False
    node = (ask("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%N") or "").strip() or "its node"
    if not Path(log).is_file():
        # SLURM writes nothing into a folder that is not there.
        return f"SLURM job {number} could not write {log} on {node}; is {Path.cwd()} visible and writable there?", True
    if line := INACCESSIBLE.search(Path(log).read_text("utf-8", "replace")):
        return f"SLURM job {number} on {node}: {line[0].strip()[-500:]}", True
    return f"SLURM job {number} on {node} has the status {status}", False


def wait_for_controller(log: Any) -> None:
    """Return when the controller answers, or has been away for five minutes."""
    deadline, told = time.monotonic() + OUTAGE, False
    while ask("scontrol", "ping") is None and time.monotonic() < deadline:
        if not told:
            log.warning(f"SLURM's controller does not answer; waiting up to {OUTAGE} s before jobs are submitted")
            told = True
        time.sleep(PAUSE)


def mend_plugin(dataset: str, since: float) -> None:
    """Let the plugin outlast outages, say in a line why a job failed, and name jobs after their experiment.

    :param since: seconds since the epoch; older logs are those of other builds.
    """
    plugin: Any = sys.modules.get(PLUGIN)
    if plugin is not None and not hasattr(plugin, "mended_for"):
        _wrap(plugin, since)
    if plugin is not None:
        plugin.mended_for = dataset


def _wrap(plugin: Any, since: float) -> None:
    executor, query = plugin.Executor, plugin.query_job_status
    begin, submit, error, success = (
        getattr(executor, name) for name in ("__post_init__", "run_job", "print_job_error", "report_job_success")
    )

    def begin_with_name(self: Any, *args: Any, **options: Any) -> None:
        settings = self.workflow.executor_settings
        # The user's own prefix comes after it.
        parts = [prefix_of(plugin.mended_for), settings.jobname_prefix or ""]
        settings.jobname_prefix = "_".join(filter(None, parts))[:50]
        begin(self, *args, **options)

    def submit_in_time(self: Any, job: Any) -> None:
        wait_for_controller(self.logger)
        # As a stage does when it begins; else Snakemake would show what an earlier one said.
        for log in logs_of(jobs_of(job)):
            Path(log).unlink(missing_ok=True)
        try:
            submit(self, job)
        except AttributeError as error:
            # The plugin asks a group for its rule when it reports an error.
            cause = error.__context__ or error
            self._report_job_error_threadsafe(plugin.SubmittedJobInfo(job), f"{FAILED_SUBMISSION}: {cause}")

    def print_error(self: Any, job_info: Any, msg: str | None = None, **options: Any) -> None:
        logs = [str(log) for log in options.get("aux_logs") or () if log]
        log = logs[0] if logs else ""
        reason, final = why(msg or "", jobs_of(job_info.job), log, since)
        failures.note(job_info.job, reason, log, since, final)
        error(self, job_info, msg=f"{reason}. ", **options)

    def report_success(self: Any, job_info: Any) -> None:
        failures.drop(job_info.job)
        success(self, job_info)

    async def query_patiently(command: str, logger: Any) -> tuple[dict[str, str], float]:
        status, seconds = await query(command, logger)
        return ({}, 0.0) if status is None else (status, seconds)

    executor.__post_init__, executor.run_job = begin_with_name, submit_in_time
    executor.print_job_error, executor.report_job_success = print_error, report_success
    plugin.query_job_status = query_patiently
