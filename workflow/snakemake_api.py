"""Every use of Snakemake's undocumented parts: its graph of jobs, their reasons, its records.

Other releases may change them; tests/workflow/test_snakemake_api.py then fails, with the newest release of the lock.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging.handlers
import os
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: beginning of an error in the log of a stage
ERROR = re.compile(r"^\d\d:\d\d:\d\d ERROR ", re.MULTILINE)
#: seconds since the epoch; older logs are those of other runs
STARTED = time.time()
#: what Snakemake logs at Ctrl-C, before the errors of the jobs that end by it.
INTERRUPTED = "Terminating processes on user request"


class PlanError(ValueError):
    """Snakemake cannot plan: an unknown target, a missing input, or errors in the config, a line each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """A job of the experiment, to run if it is `planned`.

    :ivar logs: its logs, which are named after the job.
    :ivar benchmark: file of its measurement, which is named after the job, too.
    :ivar reason: of a planned job, Snakemake's object that says why it runs.
    :ivar params: reprs of its params, except those that Snakemake derives from inputs and outputs.
    :ivar record: what Snakemake recorded of its last run, None if it did not.
    """

    rule: str
    wildcards: dict[str, str]
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    logs: Sequence[str] = ()
    benchmark: str = ""
    planned: bool = True
    reason: Any = None
    params: Sequence[str] = ()
    record: Any = None

    @property
    def name(self) -> str:
        """The rule and its wildcards: "retrieve test/cort"."""
        values = [value for key, value in self.wildcards.items() if key != "dataset"]
        return f"{self.rule} {'/'.join(values)}".rstrip()


def runs_here(workflow: Any) -> bool:
    """Whether this process, which the user called, runs its jobs on this machine, not on a cluster."""
    return bool(workflow.is_main_process) and workflow.nodes is None


def planned_files(workflow: Any) -> set[str]:
    """Return what the jobs will make that are about to run; nothing if they only get new times (`--touch`)."""
    if workflow.touch:
        return set()
    return {str(file) for job in workflow.dag.needrun_jobs() for file in job.output}


def cores_of(workflow: Any) -> int | None:
    """Cores that all jobs together may use, None for no limit."""
    return workflow.global_resources.get("_cores").value  # type: ignore[no-any-return]


def limit(workflow: Any, resource: str, amount: int) -> int:
    """Limit a resource of all jobs together to `amount`, or to the user's own lower limit; return the limit."""
    chosen: int | None = workflow.global_resources.get(resource).value
    if chosen is None and amount:
        workflow.register_resource(resource, amount)
    return amount if chosen is None else min(amount, chosen)


def retry_no_mistakes(refused: Collection[int] = ()) -> None:
    """Let Snakemake (`retries`) try no job again that SLURM refused, or whose stage logged an error, but for memory.

    What a signal ends logs no error: too little memory, the end of the time, a node that is needed for others.

    :param refused: numbers of the jobs that SLURM refused until now.
    """
    from snakemake.jobs import GroupJob, Job

    def restart_times(job: Job) -> int:
        mistaken = job.jobid in refused or any(map(_has_mistake, job.log))
        return 0 if mistaken else int(job.rule.restart_times)

    Job.restart_times = property(restart_times)
    GroupJob.restart_times = property(lambda group: min(job.restart_times for job in group.jobs))


def explain_locks(advice: Callable[[], Exception]) -> None:
    """Let Snakemake's error about a lock be one line, which says whose it is and what to do."""
    from snakemake.exceptions import LockException, WorkflowError

    def explain(error: LockException) -> None:
        WorkflowError.__init__(error, str(advice()))

    LockException.__init__ = explain


def keep_outputs_in_jobs(check: Callable[[Sequence[str]], None]) -> None:
    """Keep outputs from processes of Snakemake in jobs on a cluster, which may outlive their build.

    Only the main process of a build deletes the outputs of a failed job, and not what its group has finished: if a
    stage fails because a later build has started it again, they are those of the later one. They are whole if they are
    there. And before a job deletes them, to make them anew:

    :param check: gets the outputs of a job, and raises an error with a line if another build makes them.
    """
    from snakemake.exceptions import WorkflowError
    from snakemake.jobs import Job

    if hasattr(Job, "cleanup_of_main"):
        return

    async def cleanup(job: Job, skip_outputs: Sequence[Any]) -> None:
        if job.dag.workflow.is_main_process and not (job.dag.get_job_group(job) and is_finished(job)):
            await job.cleanup_of_main(skip_outputs)

    async def prepare(job: Job) -> None:
        if not job.dag.workflow.is_main_process:
            try:
                check(list(map(str, job.output)))
            except ValueError as error:
                raise WorkflowError(str(error)) from None
        await job.prepare_unchecked()

    Job.cleanup_of_main, Job.cleanup = Job.cleanup, cleanup
    Job.prepare_unchecked, Job.prepare = Job.prepare, prepare


def is_finished(job: Any) -> bool:
    """Tell whether all outputs of a job are there, which Snakemake deletes before it begins."""
    return all(Path(output).exists() for output in job.output)


def limit_groups() -> None:
    """Let the time of a group, the sum of those of its jobs, keep to the limit that the user sets for each job."""
    from snakemake.resources import GroupResources

    if hasattr(GroupResources, "unlimited"):
        return

    def basic_layered(**options: Any) -> dict[str, Any]:
        amounts, limit = GroupResources.unlimited(**options), options["constraints"].get("runtime").value
        if limit is not None and isinstance(amounts.get("runtime"), int):
            amounts["runtime"] = min(amounts["runtime"], limit)
        return dict(amounts)

    GroupResources.unlimited, GroupResources.basic_layered = GroupResources.basic_layered, basic_layered


def set_missing_defaults(workflow: Any, **amounts: int | str) -> None:
    """Add to the default resources of rules that follow, and of jobs, what the profile or user has not set."""
    from snakemake.resources import Resource

    defaults = workflow.resource_settings._parsed_default_resources
    for name, amount in amounts.items():
        if name not in defaults:
            defaults[name] = Resource.from_cli_expression(name, str(amount), with_threads_arg=True)


def partitions_of(workflow: Any) -> Path | None:
    """Return the file of the SLURM plugin's partitions, None if there is none."""
    chosen = getattr(workflow.executor_settings, "partition_config", None) or os.getenv("SNAKEMAKE_SLURM_PARTITIONS")
    return Path(chosen) if chosen else None


def submits_to_slurm(workflow: Any) -> bool:
    """Whether the jobs of this process go to SLURM."""
    return workflow.executor_plugin is not None and workflow.executor_plugin.name == "slurm"


def longest_runtime(workflow: Any) -> int | None:
    """Limit of the time of a job, in minutes, None for no limit."""
    return workflow.global_resources.get("runtime").value  # type: ignore[no-any-return]


def is_new(workflow: Any, file: str) -> bool:
    """Tell whether a file was made since this process began, not only got a new time (`--touch`)."""
    path = Path(file)
    return not workflow.touch and path.is_file() and path.stat().st_mtime >= STARTED


def _has_mistake(log: str) -> bool:
    file = Path(log)
    if not file.is_file() or file.stat().st_mtime < STARTED:
        return False
    _, *error = ERROR.split(file.read_text("utf-8", errors="replace"), maxsplit=1)
    return bool(error) and "memory" not in error[0].lower()


def failures(logs: Sequence[str], others: Collection[int] = ()) -> list[str]:
    """Name the jobs that failed in the end with their logs, from the logs of Snakemake, which may be long.

    Those that Ctrl-C ended did not fail.

    :param others: numbers of jobs to leave out.
    """
    text = "".join(Path(log).read_text("utf-8", "replace").partition(INTERRUPTED)[0] for log in logs)
    error = r"^Error in rule (\w+):\n(?: .*\n)*? +jobid: (\d+)\n(?: .*\n)*? +log: ([^\s,]+)"
    jobs = re.findall(error, text, re.MULTILINE)
    left_out = {*re.findall(r"^Finished jobid: (\d+) ", text, re.MULTILINE), *map(str, others)}
    return list(dict.fromkeys(f"{rule} failed; its log is {file}" for rule, job, file in jobs if job not in left_out))


def plan(arguments: Sequence[str]) -> tuple[list[Job], bool]:
    """Ask Snakemake for all jobs of a command line, in an order in which they could run; it prints nothing.

    :returns: the jobs, and whether they run on this machine, not on a cluster.
    :raises PlanError: if Snakemake cannot plan.
    """
    from snakemake import cli, workflow

    dags: list[Any] = []

    class Dag(workflow.DAG):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            dags.append(self)

    errors, output, status = logging.handlers.BufferingHandler(capacity=1_000), io.StringIO(), 0
    errors.setLevel(logging.ERROR)
    logging.getLogger("snakemake").addHandler(errors)
    workflow.DAG = Dag
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = cli.main([*arguments, "--dry-run"])
    except SystemExit as leaving:
        status = int(bool(leaving.code))
    if status or not dags:
        logged = "\n".join(record.getMessage() for record in errors.buffer)
        raise PlanError(explain_error(logged or output.getvalue()))
    dag = dags[-1]
    rules = {rule.name: number for number, rule in enumerate(dag.workflow.rules)}
    levels = (sorted(level, key=lambda job: (rules[job.rule.name], list(job.output))) for level in dag.toposorted())
    # The target rule makes nothing.
    jobs = [_describe(dag, job) for level in levels for job in level if job.rule.shellcmd]
    return jobs, runs_here(dag.workflow)


def _describe(dag: Any, job: Any) -> Job:
    persistence, planned = dag.workflow.persistence, dag.needrun(job)
    records = filter(None, map(persistence.metadata, job.output))
    return Job(
        rule=job.rule.name,
        wildcards=dict(job.wildcards_dict),
        inputs=tuple(job.input),
        outputs=tuple(job.output),
        logs=tuple(job.log),
        benchmark=job.benchmark or "",
        planned=planned,
        reason=dag.reason(job) if planned else None,
        params=tuple(persistence._params(job)),
        record=next((record for record in records if record.shellcmd), None),
    )


def made_files(folder: Path) -> dict[str, list[str]]:
    """Read from Snakemake's records in a folder which files it has made there: path -> logs of its job.

    They may be gone, or of other experiments. A record that is damaged or being written is left out.
    """
    records, made = folder / ".snakemake" / "metadata", {}
    for record in filter(Path.is_file, sorted(records.rglob("*"))):
        # A long path is divided into folders, which begin with @.
        parts = (part.removeprefix("@") for part in record.relative_to(records).parts)
        with contextlib.suppress(ValueError):
            path = urlsafe_b64decode("".join(parts)).decode()
            made[path] = [str(log) for log in json.loads(record.read_text("utf-8")).get("log") or []]
    return made


def explain_error(text: str) -> str:
    """Shorten Snakemake's error to what the user must fix: all mistakes in the config, or else the first lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if mistakes := [line for line in lines if re.search(r": found .*, expected ", line)]:
        return "\n".join(dict.fromkeys(mistakes))
    if usage := re.search(r"^\S+: error: (.*)", text, re.MULTILINE):
        return f"snakemake: {usage[1]}"
    if unknown := re.search(r"No rule to produce (.+?)(?: \(if you use|$)", text, re.MULTILINE):
        return (
            f"{unknown[1].strip()}: found no rule that makes it, expected a rule or a file of this experiment; "
            "`snakemake --list` shows the rules, `snakemake --summary` the files"
        )
    if missing := re.search(r"Missing input files for rule (\w+):.*?affected files:\s*(.*)", text, re.DOTALL):
        files = ", ".join(missing[2].split())
        return f"{files}: found no file, expected input of the rule {missing[1]}; put it there or fix the config"
    if "Traceback (most recent call last):" in lines:
        return lines[-1]
    return " ".join(lines[:3]) or "snakemake failed without a message; call it with --dry-run"
