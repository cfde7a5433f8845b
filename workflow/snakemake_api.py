"""Every use of Snakemake's undocumented parts: its graph of jobs, its state on disk, its log.

Other releases may change them: pyproject.toml bounds the releases, and tests/workflow/test_snakemake_api.py fails if
something is gone. As a program, this module plans: its arguments are a file for the plan, and those of snakemake.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging.handlers
import re
import sys
from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

from cort.formats.artifacts import write_artifact
from workflow.planning.dryrun import DryRun, Job, Reason, Record

FOLDER = Path(".snakemake")
LOCKS = FOLDER / "locks"
RECORDS = FOLDER / "metadata"
INCOMPLETE = FOLDER / "incomplete"
#: event when execution begins, before locks are checked; not in dry runs and queries
STARTED = "workflow_started"
#: event when the jobs are known, before the first begins
PLANNED = "run_info"
#: events of a job that begins, fails (and may be retried) or succeeds, and of the number of jobs done
BEGUN, FAILED, FINISHED, PROGRESS = "job_info", "job_error", "job_finished", "progress"
#: beginning of the error about write-protected files that would be rebuilt
PROTECTED = "Write-protected output files"
#: beginning of the error about missing files that no rule makes
MISSING = "Missing input files"
#: beginnings of the messages about Ctrl-C and failed jobs, and the whole last message after either
INTERRUPTED = "Terminating processes on user request"
ABOUT_FAILURES = "RuleException:\nCalledProcessError", "Exiting because a job execution failed."
SOME_FAILED = "WorkflowError:\nAt least one job did not complete successfully."
#: conda environment of all rules, relative to their files
ENVIRONMENT = "../envs/cort.yaml"


def is_main(workflow: Any) -> bool:
    """Whether this is the process that the user called, not one that runs a job."""
    return bool(workflow.is_main_process)


def takes_locks(workflow: Any) -> bool:
    """Whether files will be locked: not in a dry run, nor with ``--nolock``."""
    return not workflow.output_settings.dryrun and bool(workflow.execution_settings.lock)


def is_on_cluster(workflow: Any) -> bool:
    """Whether the executor is not local: such executors need ``--jobs``."""
    return workflow.nodes is not None


def cores_of(workflow: Any) -> int | None:
    """Cores that all jobs together may use, None for no limit."""
    return workflow.global_resources.get("_cores").value  # type: ignore[no-any-return]


def limit(workflow: Any, resource: str, amount: int) -> int:
    """Limit a resource of all jobs together to `amount`, or to the user's own lower limit; return the limit."""
    chosen: int | None = workflow.global_resources.get(resource).value
    if chosen is None and amount:
        workflow.register_resource(resource, amount)
    return amount if chosen is None else min(amount, chosen)


def fix_scatter(workflow: Any, process: str, default: int) -> int:
    """Return the number of parts in ``--set-scatter``, else `default`; pass it to calls of Snakemake within jobs."""
    settings = workflow.resource_settings
    parts: int = settings.overwrite_scatter.get(process) or default
    settings.overwrite_scatter = {**settings.overwrite_scatter, process: parts}
    return parts


def check_scatter(workflow: Any, processes: Collection[str]) -> None:
    """Check ``--set-scatter``.

    :raises WorkflowError: if it has an unknown process, or fewer than 1 part.
    """
    for name, parts in workflow.resource_settings.overwrite_scatter.items():
        if name not in processes:
            raise WorkflowError(f"--set-scatter: found {name}, expected one of {', '.join(processes)}; fix the name")
        if parts < 1:
            raise WorkflowError(f"--set-scatter: found {name}={parts}, expected 1 or more; fix it")


def _check_rules(workflow: Any) -> None:
    """Refuse threads and resources of unknown rules, which Snakemake would ignore."""
    settings, rules = workflow.resource_settings, {rule.name for rule in workflow.rules}
    for option, values in (("threads", settings.overwrite_threads), ("resources", settings.overwrite_resources)):
        for name in values.keys() - rules:
            fix = "fix the name; `snakemake --list-rules` shows all rules"
            raise WorkflowError(f"--set-{option}: found {name}, expected a rule; {fix}")


def put_first(workflow: Any, first: Container[str], beside: Container[str]) -> None:
    """Let all jobs wait for those of the rules `first`, except what these need and jobs of the rules `beside`.

    Inputs would do the same, but Snakemake records inputs, and would rerun everything that was made without them.
    """
    if workflow.output_settings.dryrun:
        return
    dag = workflow.dag
    firsts = {job for job in dag.needrun_jobs() if job.rule.name in first}
    before = set(dag.bfs(dag.dependencies, *firsts))
    for job in dag.needrun_jobs():
        new = firsts - dag.dependencies[job].keys()
        if new and job not in before and job.rule.name not in beside:
            for dependency in new:
                # A dependency without files.
                dag.dependencies[job][dependency] = dag.depending[dependency][job] = set()
            dag._n_until_ready[job] += len(new)
            dag._ready_jobs.discard(job)


def complete_rules(workflow: Any, code_of: Callable[[str], dict[str, str]]) -> None:
    """Give all rules a log, a benchmark, an environment, and the code of their stage as a param.

    Logs and benchmarks are named after the rule and the wildcards of its output.
    """
    _check_rules(workflow)
    for rule in workflow.rules:
        # The target rule has no command.
        if rule.shellcmd:
            # As in "python -m cort.fuse --runs ..." or "python -m cort.encode tokens --model ...".
            _, _, *command = takewhile(lambda word: not word.startswith("--"), rule.shellcmd.split())
            rule.set_params(code=code_of(" ".join(command).removeprefix("cort.")))
            rule.conda_env = ENVIRONMENT
            rule.log_modifier = rule.benchmark_modifier = rule.output_modifier
            wildcards = dict.fromkeys(re.findall(r"\{(\w+)", rule.output[0]))
            name = ".".join(f"{{{wildcard}}}" for wildcard in wildcards if wildcard != "dataset")
            rule.set_log(f"logs/{{dataset}}/{rule.name}{'/' if name else ''}{name}.log")
            rule.benchmark = f"benchmarks/{{dataset}}/{rule.name}/{name or rule.name}.tsv"


@dataclass(frozen=True)
class LogFilter:
    """Reports events of Snakemake, and adds hints to its errors; lets every message pass.

    `hints` maps words in an error to a function that returns the lines to add.
    """

    events: Mapping[str, Callable[[Any], None]]
    hints: Mapping[str, Callable[[], Sequence[str]]]

    def filter(self, record: logging.LogRecord) -> bool:
        """Handle a message."""
        if handle := self.events.get(str(getattr(record, "event", ""))):
            handle(record)
        elif record.levelno >= logging.ERROR:
            lines = [line for words, hint in self.hints.items() if words in str(record.msg) for line in hint()]
            record.msg = "\n".join([str(record.msg), *lines]) if lines else record.msg
        return True


def listen(events: Mapping[str, Callable[[Any], None]], hints: Mapping[str, Callable[[], Sequence[str]]]) -> None:
    """Call the function in `events` for each event, with its record; add the `hints` to Snakemake's errors."""
    from snakemake.logging import logger

    others = [other for other in logger.filters if not isinstance(other, LogFilter)]
    logger.filters = [*others, LogFilter(events, hints)]


def replace_output(workflow: Any, handler: logging.Handler) -> bool:
    """Replace Snakemake's output to the terminal by a handler; return whether it was replaced.

    Not in dry runs, queries or jobs, and not if the user chose another output.
    """
    from snakemake.logging import ColorizingTextHandler, logger

    settings = workflow.output_settings
    if not is_main(workflow) or settings.dryrun or settings.verbose or settings.quiet or settings.printshellcmds:
        return False
    replaced = [known for known in logger.handlers if isinstance(known, ColorizingTextHandler)]
    for known in replaced:
        logger.removeHandler(known)
        logger.addHandler(handler)
    return bool(replaced)


def lock_files() -> list[Path]:
    """List Snakemake's locks: files that list locked files, one per line."""
    return sorted(LOCKS.glob("*.lock"))


def records() -> Iterator[tuple[Path, str, dict[str, Any] | None]]:
    """Yield the path, the output and the content (None if unreadable) of every record of an output."""
    for path in [path for path in RECORDS.rglob("*") if path.is_file()]:
        # The path is the output in base64, split into parts that a file system accepts.
        name = "".join(part.removeprefix("@") for part in path.relative_to(RECORDS).parts)
        try:
            output, record = urlsafe_b64decode(name).decode(), None
        except ValueError:
            continue
        with contextlib.suppress(ValueError):
            record = json.loads(path.read_bytes())
        yield path, output, record if isinstance(record, dict) else None


def mark_incomplete(record: Path) -> None:
    """Replace the record of an output by the mark of an incomplete job, so that it runs again."""
    mark = INCOMPLETE / record.relative_to(RECORDS)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text('{"external_jobid": null}', encoding="utf-8")
    record.unlink()


def _plan(arguments: Sequence[str]) -> DryRun:
    """Plan with `snakemake --dry-run` in this process, without output."""
    from snakemake import cli, workflow

    dags: list[Any] = []

    class Dag(workflow.DAG):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            dags.append(self)

    workflow.DAG = Dag
    errors, output = logging.handlers.BufferingHandler(capacity=1_000), io.StringIO()
    errors.setLevel(logging.ERROR)
    logging.getLogger("snakemake").addHandler(errors)
    options, status, executor = [*arguments, "--dry-run"], 0, None
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            # Profiles may set it, too.
            executor = cli.parse_args(options)[1].executor
            status = cli.main(options)
    except SystemExit as leaving:
        status = int(bool(leaving.code))
    if status:
        logged = "\n".join(record.getMessage() for record in errors.buffer)
        return DryRun(error=explain_error(logged or output.getvalue()))
    jobs = _jobs(dags[-1]) if dags else []
    planned, done = [job for job in jobs if job.planned], [job for job in jobs if not job.planned]
    return DryRun(planned, done, executor or "local")


def _jobs(dag: Any) -> list[Job]:
    """List the jobs in a possible order of execution."""
    rules = {rule.name: number for number, rule in enumerate(dag.workflow.rules)}
    levels = (sorted(level, key=lambda job: (rules[job.rule.name], list(job.output))) for level in dag.toposorted())
    # The target rule makes nothing.
    return [_describe(dag, job) for level in levels for job in level if job.rule.shellcmd]


def _describe(dag: Any, job: Any) -> Job:
    planned, persistence = dag.needrun(job), dag.workflow.persistence
    return Job(
        rule=job.rule.name,
        phase=Path(job.rule.snakefile).stem,
        wildcards=dict(job.wildcards_dict),
        inputs=tuple(job.input),
        outputs=tuple(job.output),
        threads=job.threads,
        resources={name: amount for name, amount in job.resources.items() if isinstance(amount, int)},
        benchmark=job.benchmark or "",
        planned=planned,
        reason=_reason(dag.reason(job)) if planned else Reason(),
        params=tuple(persistence._params(job)),
        record=next(filter(None, map(_record, map(persistence.metadata, job.output))), None),
    )


def _reason(reason: Any) -> Reason:
    typed = Reason(
        missing=tuple(sorted(reason.missing_output)),
        incomplete=tuple(sorted(reason.incomplete_output)),
        updated=tuple(sorted(reason.updated_input)),
        remade=tuple(sorted(reason.updated_input_run)),
        inputs=bool(reason.input_changed),
        command=bool(reason.code_changed),
        params=bool(reason.params_changed),
        environment=bool(reason.software_stack_changed),
        forced=bool(reason.forced),
    )
    return typed if typed != Reason() else Reason(words=str(reason))


def _record(record: Any) -> Record | None:
    """Return inputs and params of the run that made an output; None if Snakemake did not record them."""
    if not record or not record.shellcmd:
        return None
    # Older formats of params cannot be compared.
    comparable = record.record_format_version >= 6
    return Record(tuple(record.input or ()), tuple(record.params or ()) if comparable else None)


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


if __name__ == "__main__":
    write_artifact(sys.argv[1], _plan(sys.argv[2:]))
