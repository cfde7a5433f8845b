"""All that this workflow uses of Snakemake beyond what it documents: its graph of jobs, its state on disk, its log.

Another release may change any of it: pyproject.toml bounds the releases, and tests/workflow/test_snakemake_api.py fails
where something is gone. Called as a module, it plans: with a file for the plan, and the arguments of snakemake.
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
#: logged when a workflow begins to execute, and before it looks for locks; not by a dry run or a question
STARTED = "workflow_started"
#: and when its jobs are known, before the first of them begins
PLANNED = "run_info"
#: of a job that begins, of one that failed, which may be tried again, of one that did not, and how many are done then
BEGUN, FAILED, FINISHED, PROGRESS = "job_info", "job_error", "job_finished", "progress"
#: how the error begins that refuses to make files again that are write-protected
PROTECTED = "Write-protected output files"
#: and the one about files that no rule makes and that are not there
MISSING = "Missing input files"
#: how messages begin: of a Ctrl-C; of failed jobs, whose logs say more; and all of the last one after either
INTERRUPTED = "Terminating processes on user request"
ABOUT_FAILURES = "RuleException:\nCalledProcessError", "Exiting because a job execution failed."
SOME_FAILED = "WorkflowError:\nAt least one job did not complete successfully."
#: of all rules, as seen from their files
ENVIRONMENT = "../envs/cort.yaml"


def is_main(workflow: Any) -> bool:
    """Tell whether this process is the one a person called, not one that runs a job for it."""
    return bool(workflow.is_main_process)


def takes_locks(workflow: Any) -> bool:
    """Tell whether files will be locked: not in a dry run, nor with ``--nolock``."""
    return not workflow.output_settings.dryrun and bool(workflow.execution_settings.lock)


def is_on_cluster(workflow: Any) -> bool:
    """Tell whether an executor runs the jobs that is not local: those need ``--jobs``."""
    return workflow.nodes is not None


def cores_of(workflow: Any) -> int | None:
    """Return how many cores all jobs together may use, None for no limit."""
    cores: int | None = workflow.global_resources.get("_cores").value
    return cores


def limit(workflow: Any, resource: str, amount: int) -> int:
    """Limit what all jobs together may use of a resource to `amount`, or to less if the user has; return how much."""
    chosen: int | None = workflow.global_resources.get(resource).value
    if chosen is None and amount:
        workflow.register_resource(resource, amount)
    return amount if chosen is None else min(amount, chosen)


def fix_scatter(workflow: Any, process: str, default: int) -> int:
    """Return how many parts ``--set-scatter`` asks for, else `default`; pass it to all calls that this one makes."""
    settings = workflow.resource_settings
    parts: int = settings.overwrite_scatter.get(process) or default
    settings.overwrite_scatter = {**settings.overwrite_scatter, process: parts}
    return parts


def check_scatter(workflow: Any, processes: Collection[str]) -> None:
    """Refuse what ``--set-scatter`` says of no process there is, or of no parts.

    :raises WorkflowError: in one line.
    """
    for name, parts in workflow.resource_settings.overwrite_scatter.items():
        if name not in processes:
            raise WorkflowError(f"--set-scatter: found {name}, expected one of {', '.join(processes)}; fix the name")
        if parts < 1:
            raise WorkflowError(f"--set-scatter: found {name}={parts}, expected 1 or more; fix it")


def _check_rules(workflow: Any) -> None:
    """Refuse threads and resources of rules that there are not, which Snakemake would ignore."""
    settings, rules = workflow.resource_settings, {rule.name for rule in workflow.rules}
    for option, found in (("threads", settings.overwrite_threads), ("resources", settings.overwrite_resources)):
        for name in found.keys() - rules:
            fix = "fix the name; `snakemake --list-rules` shows them"
            raise WorkflowError(f"--set-{option}: found {name}, expected a rule; {fix}")


def put_first(workflow: Any, first: Container[str], beside: Container[str]) -> None:
    """Let no job begin before those of the rules `first` have ended well, but for what these need and rules `beside`.

    Inputs would do the same, but they are recorded: all that was made without them would be made again.
    """
    if workflow.output_settings.dryrun:
        return
    dag = workflow.dag
    firsts = [job for job in dag.needrun_jobs() if job.rule.name in first]
    before = set(dag.bfs(dag.dependencies, *firsts))
    for job in dag.needrun_jobs():
        new = set(firsts) - dag.dependencies[job].keys()
        if new and job not in before and job.rule.name not in beside:
            for one in new:
                # No file of it is needed.
                dag.dependencies[job][one] = dag.depending[one][job] = set()
            dag._n_until_ready[job] += len(new)
            dag._ready_jobs.discard(job)


def complete_rules(workflow: Any, code_of: Callable[[str], dict[str, str]]) -> None:
    """Give the rules what all have alike: log, benchmark, environment, and the code of their stage as a param.

    Logs and benchmarks are named after the rule and the wildcards of what it makes.
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
    """Lets every message of Snakemake pass, tells of events, and adds to refusals what helps then.

    `hints` has the words of a refusal, and what gives the lines to add.
    """

    events: Mapping[str, Callable[[Any], None]]
    hints: Mapping[str, Callable[[], Sequence[str]]]

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a message pass."""
        if heard := self.events.get(str(getattr(record, "event", ""))):
            heard(record)
        elif record.levelno >= logging.ERROR:
            lines = [line for words, hint in self.hints.items() if words in str(record.msg) for line in hint()]
            record.msg = "\n".join([str(record.msg), *lines]) if lines else record.msg
        return True


def listen(events: Mapping[str, Callable[[Any], None]], hints: Mapping[str, Callable[[], Sequence[str]]]) -> None:
    """Call what `events` has for one, with its record; add the `hints` to what Snakemake refuses."""
    from snakemake.logging import logger

    others = [one for one in logger.filters if not isinstance(one, LogFilter)]
    logger.filters = [*others, LogFilter(events, hints)]


def replace_output(workflow: Any, handler: logging.Handler) -> bool:
    """Let a handler write what Snakemake would write to the terminal; whether it does.

    Not in a dry run, for a question or within a job, nor where a person asked for another output.
    """
    from snakemake.logging import ColorizingTextHandler, logger

    settings = workflow.output_settings
    if not is_main(workflow) or settings.dryrun or settings.verbose or settings.quiet or settings.printshellcmds:
        return False
    plain = [one for one in logger.handlers if isinstance(one, ColorizingTextHandler)]
    for one in plain:
        logger.removeHandler(one)
        logger.addHandler(handler)
    return bool(plain)


def lock_files() -> list[Path]:
    """List Snakemake's locks: files with a path of a locked file in each line."""
    return sorted(LOCKS.glob("*.lock"))


def records() -> Iterator[tuple[Path, str, dict[str, Any] | None]]:
    """Yield the file, the output and the content of every record of a job's output; None if it is unreadable."""
    for path in [path for path in RECORDS.rglob("*") if path.is_file()]:
        # Its name is the output's in base64, in pieces that a file system takes.
        name = "".join(part.removeprefix("@") for part in path.relative_to(RECORDS).parts)
        try:
            output, found = urlsafe_b64decode(name).decode(), None
        except ValueError:
            continue
        with contextlib.suppress(ValueError):
            found = json.loads(path.read_bytes())
        yield path, output, found if isinstance(found, dict) else None


def mark_incomplete(record: Path) -> None:
    """Turn the record of an output into the mark of a job that did not end, so that it runs again."""
    mark = INCOMPLETE / record.relative_to(RECORDS)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text('{"external_jobid": null}', encoding="utf-8")
    record.unlink()


def _plan(arguments: Sequence[str]) -> DryRun:
    """Plan with `snakemake --dry-run` in this process, quietly."""
    from snakemake import cli, workflow

    dags: list[Any] = []

    class Dag(workflow.DAG):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            dags.append(self)

    workflow.DAG = Dag
    errors, said = logging.handlers.BufferingHandler(capacity=1_000), io.StringIO()
    errors.setLevel(logging.ERROR)
    logging.getLogger("snakemake").addHandler(errors)
    options, status, executor = [*arguments, "--dry-run"], 0, None
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            # Of profiles, too.
            executor = cli.parse_args(options)[1].executor
            status = cli.main(options)
    except SystemExit as leaving:
        status = int(bool(leaving.code))
    if status:
        logged = "\n".join(record.getMessage() for record in errors.buffer)
        return DryRun(error=explain_error(logged or said.getvalue()))
    jobs = _jobs(dags[-1]) if dags else []
    planned, done = ([job for job in jobs if job.planned is kind] for kind in (True, False))
    return DryRun(planned, done, executor or "local")


def _jobs(dag: Any) -> list[Job]:
    """List the jobs in an order in which they can run."""
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
    found = Reason(
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
    return found if found != Reason() else Reason(words=str(reason))


def _record(record: Any) -> Record | None:
    """Return inputs and params of the run that made an output, as Snakemake recorded them; None if it never did."""
    if not record or not record.shellcmd:
        return None
    # Since that version, params are recorded in a way that can be compared.
    comparable = record.record_format_version >= 6
    return Record(tuple(record.input or ()), tuple(record.params or ()) if comparable else None)


def explain_error(text: str) -> str:
    """Keep what tells a person what to fix: mistakes of the config in full, of anything else the first lines."""
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
        return f"{files}: found nothing, expected input of the rule {missing[1]}; put it there or fix the config"
    if "Traceback (most recent call last):" in lines:
        return lines[-1]
    return " ".join(lines[:3]) or "found no reason why snakemake failed; call it with --dry-run"


if __name__ == "__main__":
    write_artifact(sys.argv[1], _plan(sys.argv[2:]))
