"""Every use of Snakemake's undocumented parts: its graph of jobs, its state on disk, its log.

Other releases may change them: pyproject.toml bounds the releases, and tests/workflow/test_snakemake_api.py fails if
something is gone. As a program, this module plans: its arguments are a file for the plan, and those of snakemake.
"""

from __future__ import annotations

import contextlib
import io
import logging.handlers
import re
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from cort.formats.artifacts import write_artifact
from workflow.planning.dryrun import DryRun, Job, Reason, Record

#: beginning of the commands of stages
STAGE = "python -m cort."


def runs_here(workflow: Any) -> bool:
    """Whether this process, which the user called, runs its jobs on this machine, not on a cluster."""
    return bool(workflow.is_main_process) and workflow.nodes is None


def cores_of(workflow: Any) -> int | None:
    """Cores that all jobs together may use, None for no limit."""
    return workflow.global_resources.get("_cores").value  # type: ignore[no-any-return]


def limit(workflow: Any, resource: str, amount: int) -> int:
    """Limit a resource of all jobs together to `amount`, or to the user's own lower limit; return the limit."""
    chosen: int | None = workflow.global_resources.get(resource).value
    if chosen is None and amount:
        workflow.register_resource(resource, amount)
    return amount if chosen is None else min(amount, chosen)


def complete_rules(workflow: Any, code_of: Callable[[str], dict[str, str]]) -> None:
    """Give the rules of stages a log, a benchmark, and the code of their stage as a param; leave other rules alone.

    Logs and benchmarks are named after the rule and the wildcards of its output.
    """
    for rule in workflow.rules:
        if not (rule.shellcmd or "").startswith(STAGE):
            continue
        # As in "python -m cort.fuse --runs ..." or "python -m cort.encode tokens --model ...".
        command = takewhile(lambda word: not word.startswith(("-", "{")), rule.shellcmd.removeprefix(STAGE).split())
        rule.set_params(code=code_of(" ".join(command)))
        # The stage replaces the shell, so that signals reach it.
        rule.shellcmd = f"exec {rule.shellcmd}"
        rule.log_modifier = rule.benchmark_modifier = rule.output_modifier
        wildcards = dict.fromkeys(re.findall(r"\{(\w+)", rule.output[0]))
        name = ".".join(f"{{{wildcard}}}" for wildcard in wildcards if wildcard != "dataset")
        rule.set_log(f"logs/{{dataset}}/{rule.name}{'/' if name else ''}{name}.log")
        rule.benchmark = f"benchmarks/{{dataset}}/{rule.name}/{name or rule.name}.tsv"


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
