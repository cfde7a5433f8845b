"""Ask Snakemake what it would run and why, as typed jobs. It runs in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class DryRunError(ValueError):
    """Snakemake cannot plan: a target nobody makes, an input that is missing, mistakes of the config, a line each."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a job would run: files that are missing or changed, and what differs from its last run.

    `remade` are inputs that another job makes again; `words` are Snakemake's own where none of the others applies.
    """

    missing: Sequence[str] = ()
    incomplete: Sequence[str] = ()
    updated: Sequence[str] = ()
    remade: Sequence[str] = ()
    inputs: bool = False
    command: bool = False
    params: bool = False
    environment: bool = False
    forced: bool = False
    words: str = ""


@dataclass(frozen=True)
class Record:
    """What Snakemake remembers of a job's last run: inputs, and params as their reprs; None if it cannot compare them.

    Params that Snakemake derives from inputs and outputs are left out.
    """

    inputs: Sequence[str]
    params: Sequence[str] | None


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of the experiment, to run if it is `planned`. `benchmark` is empty for a rule without one."""

    rule: str
    wildcards: Mapping[str, str]
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    threads: int = 1
    resources: Mapping[str, int | str]
    benchmark: str = ""
    planned: bool = True
    reason: Reason = Reason()
    params: Sequence[str] = ()
    record: Record | None = None

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
class DryRun:
    """The jobs that would run, and those that are done, each in an order in which they can run.

    `executor` is what would run them: "local", or the name of a plugin for a cluster.
    """

    jobs: Sequence[Job] = ()
    done: Sequence[Job] = ()
    executor: str = "local"


def part_arguments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part a command line at "--"."""
    cut = words.index("--") if "--" in words else len(words)
    return list(words[:cut]), list(words[cut + 1 :])


def dry_run(arguments: Sequence[str] = (), folder: str | Path = ROOT) -> DryRun:
    """Plan without running anything.

    :param arguments: of snakemake: targets first, then options; `--dry-run` is added.
    :param folder: where snakemake is called, the root of the project or of a copy.
    :raises DryRunError: when Snakemake cannot plan.
    """
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", suffix=".json") as file:
        command = [sys.executable, "-m", "workflow.planning.dryrun", file.name, *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        text = file.read()
    if not text:
        raise DryRunError(done.stderr.strip().rpartition("\n")[2])
    graph = json.loads(text)
    if graph["error"]:
        raise DryRunError(graph["error"])
    jobs = list(map(_job, graph["jobs"]))
    planned, finished = ([job for job in jobs if job.planned is kind] for kind in (True, False))
    return DryRun(planned, finished, graph["executor"])


def _job(values: dict[str, Any]) -> Job:
    record = values["record"] and Record(**values["record"])
    return Job(**{**values, "reason": Reason(**values["reason"]), "record": record})


if __name__ == "__main__":
    # Snakemake takes half a second to load, which the process that asks does without.
    from workflow.snakemake_api import plan_graph

    Path(sys.argv[1]).write_text(json.dumps(plan_graph(sys.argv[2:])), "utf-8")
