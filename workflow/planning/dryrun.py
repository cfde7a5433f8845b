"""Ask Snakemake what it would run and why, as typed jobs.

Snakemake runs in a process of its own. Its structured log events are read, not the text it prints for people; a handler
on the logger above Snakemake's own receives them, so no plugin is needed.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Notes that Snakemake adds to the names of special files.
NOTE = re.compile(r" \((pipe|service|nodelocal|update|before update|cached|access: [^()]*)\)$")
FIRST_LINES_OF_ERROR = 3


class DryRunError(ValueError):
    """Snakemake cannot plan: a target nobody makes, an input that is missing, mistakes of the config, a line each."""


@dataclass(frozen=True)
class Job:
    """A job that would run. `reason` and `shell` are Snakemake's words; `benchmark` is empty for a rule without one."""

    number: int
    rule: str
    wildcards: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    threads: int
    resources: Mapping[str, int | str]
    reason: str
    benchmark: str
    shell: str

    @property
    def gpus(self) -> int:
        """Number of GPUs it gets."""
        asked = self.resources.get("gpu", 0)
        return asked if isinstance(asked, int) else 0

    @property
    def name(self) -> str:
        """The rule and what it is about: "retrieve test/cort"."""
        values = [value for key, value in self.wildcards.items() if key != "dataset"]
        return " ".join([self.rule, *filter(None, ["/".join(values)])])


@dataclass(frozen=True)
class Made:
    """What Snakemake remembers of one output: inputs and command of its last run; `command` is empty if unknown."""

    inputs: tuple[str, ...]
    command: str
    exists: bool


@dataclass(frozen=True)
class DryRun:
    """The jobs in an order in which they can run, and, if asked for, every output of the whole graph.

    `executor` is what would run them: "local", or the name of a plugin for a cluster.
    """

    jobs: tuple[Job, ...]
    made: Mapping[str, Made] = field(default_factory=dict)
    executor: str = "local"


def part_arguments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part a command line at "--"."""
    cut = words.index("--") if "--" in words else len(words)
    return list(words[:cut]), list(words[cut + 1 :])


def dry_run(arguments: Sequence[str] = (), folder: str | Path = ROOT, history: bool = False) -> DryRun:
    """Plan without running anything.

    :param arguments: of snakemake: targets first, then options; `--dry-run` is added.
    :param folder: where snakemake is called, the root of the project or of a copy.
    :param history: also what is remembered of the outputs; this takes a second planning.
    :raises DryRunError: when Snakemake cannot plan.
    """
    with tempfile.TemporaryDirectory() as temporary:
        events = Path(temporary) / "events.jsonl"
        command = [
            sys.executable,
            "-m",
            "workflow.planning.dryrun",
            str(events),
            "history" if history else "",
            *arguments,
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        lines = events.read_text(encoding="utf-8").splitlines() if events.exists() else []
    found = [json.loads(line) for line in lines]
    if done.returncode:
        errors = [event["error"] for event in found if "error" in event]
        raise DryRunError(explain_error("\n".join(errors) or done.stderr.strip() or done.stdout.strip()))
    jobs = [_job(event) for event in found if "rule" in event]
    # The target rule makes nothing.
    made = {name: row for event in found for name, row in _history(event.get("history", ""))}
    executor = next((event["executor"] for event in found if "executor" in event), "local")
    return DryRun(tuple(job for job in jobs if job.shell), made, executor)


def _job(event: dict[str, Any]) -> Job:
    fields = {key: tuple(NOTE.sub("", name) for name in event[key]) for key in ("inputs", "outputs")}
    return Job(**{**event, **fields})


def _history(table: str) -> list[tuple[str, Made]]:
    """Read the table of `snakemake --detailed-summary`."""
    rows = [line.split("\t") for line in table.splitlines()]
    if not rows:
        return []
    made = []
    for row in rows[1:]:
        if len(row) == len(rows[0]):
            cells = dict(zip(rows[0], ("" if cell == "-" else cell for cell in row), strict=True))
            inputs = tuple(filter(None, cells["input-file(s)"].split(",")))
            made.append((cells["output_file"], Made(inputs, cells["shellcmd"], bool(cells["date"]))))
    return made


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


class _Events(logging.Handler):
    """Write jobs and errors as JSON lines."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.write({"error": record.getMessage()})
        elif str(getattr(record, "event", "")) == "job_info":
            self.write(_describe(record.__dict__))

    def write(self, event: dict[str, Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


def _describe(event: Mapping[str, Any]) -> dict[str, Any]:
    resources = {name: value if isinstance(value, int) else str(value) for name, value in event["resources"].items()}
    return {
        "number": event["jobid"],
        "rule": event["rule_name"],
        "wildcards": dict(event["wildcards"]),
        "inputs": list(map(str, event["input"])),
        "outputs": list(map(str, event["output"])),
        "threads": int(event["threads"]),
        "resources": {name: value for name, value in resources.items() if not name.startswith("_")},
        "reason": event["reason"],
        "benchmark": str(event["benchmark"] or ""),
        "shell": event["shellcmd"] or "",
    }


def _child(path: str, history: str, *arguments: str) -> int:
    """Run in the process that `dry_run` starts; the exit status of Snakemake."""
    from snakemake.cli import main, parse_args

    events = _Events(path)
    logging.getLogger("snakemake").addHandler(events)
    for option in ["--dry-run", *["--detailed-summary"][: len(history)]]:
        printed = io.StringIO()
        status: object = 0
        executor: str | None = None
        try:
            with contextlib.redirect_stdout(printed):
                # Of profiles, too.
                executor = parse_args([*arguments, option])[1].executor
                status = main([*arguments, option])
        except SystemExit as leaving:
            status = leaving.code
        if status:
            return 1
        events.write({"executor": executor or "local"} if option == "--dry-run" else {"history": printed.getvalue()})
    return 0


if __name__ == "__main__":
    sys.exit(_child(*sys.argv[1:]))
