"""All use of Snakemake's private interfaces and of the sentences it prints; pyproject.toml bounds its version.

The graph of jobs is read from Snakemake itself, in the process that plans (`workflow.planning.dryrun` starts it).
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

# Params are recorded in a way that can be compared since this version of Snakemake's records.
COMPARABLE_RECORDS = 6
FIRST_LINES_OF_ERROR = 3


def plan_graph(arguments: Sequence[str]) -> dict[str, Any]:
    """Plan with `snakemake --dry-run` in this process, quietly.

    :returns: `jobs`, all of the graph in an order in which they can run; `executor`; `error`, empty if there was none.
    """
    from snakemake import cli, workflow

    dags: list[Any] = []

    class Dag(workflow.DAG):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            dags.append(self)

    workflow.DAG = Dag
    errors, said = _Errors(), io.StringIO()
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
        return {"jobs": [], "executor": "", "error": explain_error("\n".join(errors.messages) or said.getvalue())}
    return {"jobs": list(_jobs(dags[-1])) if dags else [], "executor": executor or "local", "error": ""}


class _Errors(logging.Handler):
    """Keep what Snakemake logs as errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def _jobs(dag: Any) -> Iterator[dict[str, Any]]:
    rules = {rule.name: number for number, rule in enumerate(dag.workflow.rules)}
    for level in dag.toposorted():
        for job in sorted(level, key=lambda job: (rules[job.rule.name], list(job.output))):
            # The target rule makes nothing.
            if job.rule.shellcmd:
                yield _describe(dag, job)


def _describe(dag: Any, job: Any) -> dict[str, Any]:
    planned = dag.needrun(job)
    resources = {name: value if isinstance(value, int) else str(value) for name, value in job.resources.items()}
    return {
        "rule": job.rule.name,
        "wildcards": dict(job.wildcards_dict),
        "inputs": list(map(str, job.input)),
        "outputs": list(map(str, job.output)),
        "threads": int(job.threads),
        "resources": {name: value for name, value in resources.items() if not name.startswith("_")},
        "benchmark": str(job.benchmark or ""),
        "planned": planned,
        "reason": _reason(dag.reason(job)) if planned else {},
        "params": dag.workflow.persistence._params(job),
        "record": _record(dag.workflow.persistence, job),
    }


def _reason(reason: Any) -> dict[str, Any]:
    found = {
        "missing": sorted(map(str, reason.missing_output)),
        "incomplete": sorted(map(str, reason.incomplete_output)),
        "updated": sorted(map(str, reason.updated_input)),
        "remade": sorted(map(str, reason.updated_input_run)),
        "inputs": bool(reason.input_changed),
        "command": bool(reason.code_changed),
        "params": bool(reason.params_changed),
        "environment": bool(reason.software_stack_changed),
        "forced": bool(reason.forced),
    }
    return found if any(found.values()) else {**found, "words": str(reason)}


def _record(persistence: Any, job: Any) -> dict[str, Any] | None:
    """Return inputs and params of the job's last run, as remembered of its outputs; None if it never ran."""
    for path in job.output:
        record = persistence.metadata(path)
        if record and record.shellcmd:
            comparable = record.record_format_version >= COMPARABLE_RECORDS
            return {"inputs": record.input or [], "params": record.params or [] if comparable else None}
    return None


def explain_error(text: str) -> str:
    """Keep what tells a person what to fix: mistakes of the config in full, of anything else the first lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    mistakes = [line for line in lines if re.search(r": found .*, expected ", line)]
    usage = re.search(r"^\S+: error: (.*)", text, re.MULTILINE)
    unknown = re.search(r"No rule to produce (.+?)(?: \(if you use|$)", text, re.MULTILINE)
    missing = re.search(r"Missing input files for rule (\w+):.*?affected files:\s*(.*)", text, re.DOTALL)
    if mistakes:
        return "\n".join(dict.fromkeys(mistakes))
    if usage:
        return f"snakemake: {usage[1]}"
    if unknown:
        return (
            f"{unknown[1].strip()}: found no rule that makes it, expected a rule or a file of this experiment; "
            "`snakemake --list` shows the rules, `snakemake --summary` the files"
        )
    if missing:
        files = ", ".join(missing[2].split())
        return f"{files}: found nothing, expected input of the rule {missing[1]}; put it there or fix the config"
    if "Traceback (most recent call last):" in lines:
        return lines[-1]
    return " ".join(lines[:FIRST_LINES_OF_ERROR]) or "found no reason why snakemake failed; call it with --dry-run"
