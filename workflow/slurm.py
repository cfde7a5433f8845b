"""SLURM: what a build asks the cluster before its first job, and what it adds to Snakemake's plugin.

`mend_plugin` is for release 2.8 of the plugin. What upstream should change: `check_active_jobs` forgets all jobs if the
status command fails in all attempts of one check (`if status_of_jobs is not None` has no else, which must yield the
jobs), so that Snakemake waits for ever after an outage of the controller, as it does for jobs that SLURM has forgotten
(`MinJobAge`), and if it asks `sacct` where nothing accounts; `run_job` takes an outage for a refusal of the job;
`GroupJob.log_error` drops the message of an error.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
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
# What the plugin takes for the end of a job; SLURM itself has the first one only.
COMPLETED, FORGOTTEN = "COMPLETED", "ERROR"
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
    """Compare the longest time of a job, in minutes, with that of the partitions; of those with GPUs, if any has."""
    entries = read_partitions(partitions).values() if partitions else []
    limits = [entry.get("max_runtime") for entry in entries if entry.get("max_gpu")]
    where = f"partitions with GPUs in {partitions}" if limits else partitions
    limits = limits or [entry.get("max_runtime") for entry in entries]
    numbers = [number for number in limits if isinstance(number, int)]
    if not numbers or len(numbers) < len(limits) or (limit is not None and limit <= max(numbers)):
        return []
    found = f"no runtime of at most {max(numbers)}" if limit is None else f"runtime: {limit}"
    expected = f"at most {max(numbers)} minutes, the longest max_runtime of {where}"
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
        jobs, key = jobs_of(job), key_of(job)
        # Those of a group that began and did not end, or else all that did not.
        unfinished = [part for part in jobs if not is_finished(part)] or jobs
        failed = [part for part in unfinished if own_logs(logs_of([part]), since)] or unfinished
        names = " and ".join(sorted({part.rule.name for part in failed}))
        self._lines[key] = (names, reason, logs_of(failed), log)
        if final:
            self.refused.update(key)

    def drop(self, job: Any) -> None:
        """Forget a job that ended well."""
        self._lines.pop(key_of(job), None)

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


class Forgotten:
    """Jobs that SLURM does not know any more, as it forgets a job some time after its end (`MinJobAge`).

    :ivar run: the name by which SLURM knows the jobs of this build.
    :ivar active: what is to be known of jobs at present.
    :ivar patience: seconds until files that were written on a node must be visible here.
    """

    def __init__(self) -> None:
        self.run, self.active, self.patience = "", list[Any](), 0.0
        self._before: dict[tuple[int, ...], Sequence[tuple[int, int] | None]] = {}
        self._since: dict[str, float] = {}

    def begin(self, job: Any) -> None:
        """Look at the outputs of a job before it is submitted."""
        self._before[key_of(job)] = self._outputs(job)

    def ends(self, known: Collection[str]) -> Mapping[str, str]:
        """Guess how the jobs ended that are not `known`: well, if all of their outputs are there and new."""
        now = time.monotonic()
        # Waiting tasks of an array have no line of their own.
        numbers = [(info.external_jobid, info.job) for info in self.active if "_" not in info.external_jobid]
        missing = {number: job for number, job in numbers if number not in known}
        self._since = {number: self._since.get(number, now) for number in missing}
        return {
            number: COMPLETED if self._has_made_all(job) else FORGOTTEN
            for number, job in missing.items()
            if now - self._since[number] >= self.patience
        }

    def _has_made_all(self, job: Any) -> bool:
        pairs = zip(self._outputs(job), self._before[key_of(job)], strict=True)
        return all(new is not None and new != old for new, old in pairs)

    def _outputs(self, job: Any) -> list[tuple[int, int] | None]:
        paths = [Path(output) for part in jobs_of(job) for output in part.output]
        return [(path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None for path in paths]


def jobs_of(job: Any) -> Sequence[Any]:
    """List the jobs of a group, or the one that it is."""
    return list(job.jobs) if job.is_group() else [job]


def key_of(job: Any) -> tuple[int, ...]:
    """Return Snakemake's numbers of a job, or of those of a group."""
    return tuple(sorted(part.jobid for part in jobs_of(job)))


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
    if status == FORGOTTEN:
        return f"SLURM has forgotten the job {number}, which did not make all of its outputs", False
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
        forgotten = Forgotten()
        _mend_submission(plugin, forgotten)
        _mend_status(plugin, forgotten)
        _mend_reports(plugin, since)
    if plugin is not None:
        plugin.mended_for = dataset


def ignore_early_warnings() -> None:
    """Let Snakemake in a job ignore SLURM's warning of the time limit (SIGUSR1) also while it starts."""
    if jobstep := sys.modules.get(f"{PLUGIN}_jobstep"):
        call = f"""sh -c 'trap "" USR1; exec "$0" "$@"' {shlex.quote(sys.executable)}"""
        jobstep.Executor.get_python_executable = lambda _: call


def _mend_submission(plugin: Any, forgotten: Forgotten) -> None:
    executor = plugin.Executor
    begin, submit = executor.__post_init__, executor.run_job

    def begin_with_name(self: Any, *args: Any, **options: Any) -> None:
        settings = self.workflow.executor_settings
        # The user's own prefix comes after it.
        parts = [prefix_of(plugin.mended_for), settings.jobname_prefix or ""]
        settings.jobname_prefix = "_".join(filter(None, parts))[:50]
        begin(self, *args, **options)
        forgotten.run, forgotten.patience = self.run_uuid, self.workflow.execution_settings.latency_wait

    def submit_in_time(self: Any, job: Any) -> None:
        wait_for_controller(self.logger)
        # As a stage does when it begins; else Snakemake would show what an earlier one said.
        for log in logs_of(jobs_of(job)):
            Path(log).unlink(missing_ok=True)
        forgotten.begin(job)
        try:
            submit(self, job)
        except AttributeError as error:
            # The plugin asks a group for its rule when it reports an error.
            cause = error.__context__ or error
            self._report_job_error_threadsafe(plugin.SubmittedJobInfo(job), f"{FAILED_SUBMISSION}: {cause}")

    executor.__post_init__, executor.run_job = begin_with_name, submit_in_time


def _mend_status(plugin: Any, forgotten: Forgotten) -> None:
    check, query = plugin.Executor.check_active_jobs, plugin.query_job_status

    async def check_all(self: Any, active_jobs: Sequence[Any]) -> AsyncIterator[Any]:
        # The plugin's thread begins to look before the executor has begun; an error here would end it in silence.
        forgotten.active = list(active_jobs)
        async for job_info in check(self, active_jobs):
            yield job_info

    async def query_patiently(command: str, logger: Any) -> tuple[dict[str, str], float]:
        status, seconds = await query(command, logger)
        of_queue = plugin.query_job_status_squeue(forgotten.run)
        if status is None and command != of_queue:
            # Where nothing accounts, `sacct` always fails.
            command = of_queue
            status, seconds = await query(command, logger)
        if status is None:
            return {}, 0.0
        return ({**status, **forgotten.ends(status)} if command == of_queue else status), seconds

    plugin.Executor.check_active_jobs, plugin.query_job_status = check_all, query_patiently


def _mend_reports(plugin: Any, since: float) -> None:
    executor = plugin.Executor
    error, success = executor.print_job_error, executor.report_job_success

    def print_error(self: Any, job_info: Any, msg: str | None = None, **options: Any) -> None:
        logs = [str(log) for log in options.get("aux_logs") or () if log]
        log = logs[0] if logs else ""
        reason, final = why(msg or "", jobs_of(job_info.job), log, since)
        failures.note(job_info.job, reason, log, since, final)
        error(self, job_info, msg=f"{reason}. ", **options)

    def report_success(self: Any, job_info: Any) -> None:
        failures.drop(job_info.job)
        success(self, job_info)

    executor.print_job_error, executor.report_job_success = print_error, report_success
