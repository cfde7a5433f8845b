"""All that this workflow uses of Snakemake beyond what it documents: its graph of jobs, its state on disk, its log.

Another release may change any of it: pyproject.toml bounds the releases, and tests/workflow/test_snakemake_api.py fails
where something is gone. Snakemake is imported where it is used: a plan loads it in a process of its own.
"""

from __future__ import annotations

import binascii
import contextlib
import io
import json
import logging
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(".snakemake")
LOCKS = FOLDER / "locks"
RECORDS = FOLDER / "metadata"
INCOMPLETE = FOLDER / "incomplete"
#: logged when a workflow begins to execute, and before it looks for locks; not by a dry run or a question
STARTED = "workflow_started"
#: how the error begins that refuses to make files again that are write-protected
PROTECTED = "Write-protected output files"
# Params are recorded in a way that can be compared since this version of Snakemake's records.
COMPARABLE_RECORDS = 6
FIRST_LINES_OF_ERROR = 3
#: of all rules, as seen from their files
ENVIRONMENT = "../envs/cort.yaml"


def is_main(workflow: Any) -> bool:
    """Tell whether this process is the one a person called, not one that runs a job for it."""
    return bool(workflow.is_main_process)


def is_dry_run(workflow: Any) -> bool:
    """Tell whether nothing will be executed."""
    return bool(workflow.output_settings.dryrun)


def uses_locks(workflow: Any) -> bool:
    """Tell whether locks are wanted: not with ``--nolock``."""
    return bool(workflow.execution_settings.lock)


def is_on_cluster(workflow: Any) -> bool:
    """Tell whether an executor runs the jobs that is not local: those need ``--jobs``."""
    return workflow.nodes is not None


def limit_of(workflow: Any, resource: str) -> int | None:
    """Return how much of a resource all jobs together may use, None for no limit; "_cores" are the cores."""
    limit: int | None = workflow.global_resources.get(resource).value
    return limit


def set_limit(workflow: Any, resource: str, amount: int) -> None:
    """Limit what all jobs together may use of a resource."""
    workflow.register_resource(resource, amount)


def scattered(workflow: Any, process: str) -> int | None:
    """Return the number of parts that ``--set-scatter`` asks for."""
    parts: int | None = workflow.resource_settings.overwrite_scatter.get(process)
    return parts


def set_scattered(workflow: Any, process: str, parts: int) -> None:
    """Set the number of parts, also for every call of Snakemake that this one makes."""
    settings = workflow.resource_settings
    settings.overwrite_scatter = {**settings.overwrite_scatter, process: parts}


def complete_rules(workflow: Any, code_of: Callable[[str], dict[str, str]]) -> None:
    """Give the rules what all have alike: log, benchmark, environment, and the code of their stage as a param.

    Logs and benchmarks are named after the rule and the wildcards of what it makes.
    """
    for rule in workflow.rules:
        # The target rule has no command.
        if rule.shellcmd:
            _, _, module, *_ = rule.shellcmd.split()
            rule.set_params(code=code_of(module.removeprefix("cort.")))
            rule.conda_env = ENVIRONMENT
            rule.log_modifier = rule.benchmark_modifier = rule.output_modifier
            wildcards = dict.fromkeys(re.findall(r"\{(\w+)", rule.output[0]))
            name = ".".join(f"{{{wildcard}}}" for wildcard in wildcards if wildcard != "dataset")
            rule.set_log(f"logs/{{dataset}}/{rule.name}{'/' if name else ''}{name}.log")
            rule.benchmark = f"benchmarks/{{dataset}}/{rule.name}/{name or rule.name}.tsv"


class LogFilter(logging.Filter):
    """Lets every message of Snakemake pass, and tells of the start of a workflow and of refusals of protected files."""

    def __init__(self, at_start: Callable[[], None], hint: str) -> None:
        super().__init__()
        self.at_start, self.hint = at_start, hint

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a message pass."""
        if getattr(record, "event", None) == STARTED:
            self.at_start()
        elif record.levelno >= logging.ERROR and PROTECTED in str(record.msg):
            record.msg = f"{record.msg}\n{self.hint}"
        return True


def listen(at_start: Callable[[], None], hint: str) -> None:
    """Call `at_start` when this workflow begins to execute; say `hint` when it would make protected files again."""
    from snakemake.logging import logger

    for other in [filter_ for filter_ in logger.filters if isinstance(filter_, LogFilter)]:
        logger.removeFilter(other)
    logger.addFilter(LogFilter(at_start, hint))


def say(line: str) -> None:
    """Log a line among those of Snakemake."""
    from snakemake.logging import logger

    logger.info(line)


def lock_files() -> list[Path]:
    """List Snakemake's locks: files with a path of a locked file in each line."""
    return sorted(LOCKS.glob("*.lock"))


def records() -> Iterator[tuple[Path, str, dict[str, Any] | None]]:
    """Yield the file, the output and the content of every record of a job's output; None if it is unreadable."""
    for path in [path for path in RECORDS.rglob("*") if path.is_file()]:
        try:
            # Its name is the output's in base64, in pieces that a file system takes.
            pieces = (part.removeprefix("@") for part in path.relative_to(RECORDS).parts)
            output = urlsafe_b64decode("".join(pieces)).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
        try:
            found = json.loads(path.read_bytes())
        except ValueError:
            found = None
        yield path, output, found if isinstance(found, dict) else None


def mark_incomplete(record: Path) -> None:
    """Turn the record of an output into the mark of a job that did not end, so that it runs again."""
    mark = INCOMPLETE / record.relative_to(RECORDS)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text('{"external_jobid": null}', encoding="utf-8")
    record.unlink()


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
