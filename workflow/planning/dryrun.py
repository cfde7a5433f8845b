"""Ask Snakemake, in a separate process, what it would run and why, as typed jobs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from cort.formats.artifacts import read_artifact


class DryRunError(ValueError):
    """Snakemake cannot plan: an unknown target, a missing input, or errors in the config, a line each."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a job would run: files that are missing or changed, and differences from its last run.

    `remade` are inputs that another job rebuilds; `words` are Snakemake's own if none of the others applies.
    """

    missing: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    remade: tuple[str, ...] = ()
    inputs: bool = False
    command: bool = False
    params: bool = False
    environment: bool = False
    forced: bool = False
    words: str = ""


@dataclass(frozen=True)
class Record:
    """Inputs and params (as reprs) of a job's last run, as recorded by Snakemake; None if params are not comparable.

    Params that Snakemake derives from inputs and outputs are left out.
    """

    inputs: tuple[str, ...]
    params: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """A job of the experiment, to run if it is `planned`; `phase` is the file of its rule.

    `resources` are those that are numbers.
    """

    rule: str
    phase: str = ""
    wildcards: dict[str, str]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    threads: int = 1
    resources: dict[str, int]
    benchmark: str = ""
    planned: bool = True
    reason: Reason = Reason()
    params: tuple[str, ...] = ()
    record: Record | None = None

    @property
    def gpus(self) -> int:
        """Number of GPUs it gets."""
        return self.resources.get("gpu", 0)

    @property
    def name(self) -> str:
        """The rule and its wildcards: "retrieve test/cort"."""
        values = [value for key, value in self.wildcards.items() if key != "dataset"]
        return f"{self.rule} {'/'.join(values)}".rstrip()


@dataclass(frozen=True)
class DryRun:
    """The jobs that would run, and those that are done, each in a possible order of execution.

    `executor` is "local", or the name of a plugin for a cluster. `error` is why there is no plan.
    """

    jobs: list[Job] = field(default_factory=list)
    done: list[Job] = field(default_factory=list)
    executor: str = "local"
    error: str = ""


def part_arguments(words: list[str]) -> tuple[list[str], list[str]]:
    """Split a command line at "--"."""
    cut = words.index("--") if "--" in words else len(words)
    return words[:cut], words[cut + 1 :]


def dry_run(arguments: list[str], folder: Path) -> DryRun:
    """Plan what `snakemake` would do in a folder with these arguments (targets first).

    :raises DryRunError: if Snakemake cannot plan.
    """
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "plan.json"
        command = [sys.executable, "-m", "workflow.snakemake_api", str(file), *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        message = done.stderr.strip().rpartition("\n")[2] or f"snakemake ended with status {done.returncode}"
        run = read_artifact(file, DryRun) if file.is_file() else DryRun(error=message)
    if run.error:
        raise DryRunError(run.error)
    return run
