"""Ask Snakemake what it would run and why, as typed jobs. It runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from cort.formats.artifacts import read_artifact


class DryRunError(ValueError):
    """Snakemake cannot plan: a target nobody makes, an input that is missing, mistakes of the config, a line each."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a job would run: files that are missing or changed, and what differs from its last run.

    `remade` are inputs that another job makes again; `words` are Snakemake's own where none of the others applies.
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
    """What Snakemake remembers of a job's last run: inputs, and params as their reprs; None if it cannot compare them.

    Params that Snakemake derives from inputs and outputs are left out.
    """

    inputs: tuple[str, ...]
    params: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """A job of the experiment, to run if it is `planned`; with those of its resources that are numbers.

    Its `phase` is the file of its rule.
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
        """The rule and what it is about: "retrieve test/cort"."""
        values = [value for key, value in self.wildcards.items() if key != "dataset"]
        return f"{self.rule} {'/'.join(values)}".rstrip()


@dataclass(frozen=True)
class DryRun:
    """The jobs that would run, and those that are done, each in an order in which they can run.

    `executor` is what would run them: "local", or the name of a plugin for a cluster. `error` is why there is no plan.
    """

    jobs: list[Job] = field(default_factory=list)
    done: list[Job] = field(default_factory=list)
    executor: str = "local"
    error: str = ""


def part_arguments(words: list[str]) -> tuple[list[str], list[str]]:
    """Part a command line at "--"."""
    cut = words.index("--") if "--" in words else len(words)
    return words[:cut], words[cut + 1 :]


def dry_run(arguments: list[str], folder: Path) -> DryRun:
    """Plan in a folder what `snakemake` would do with these arguments (targets come first), and do nothing.

    :raises DryRunError: when Snakemake cannot plan.
    """
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "plan.json"
        command = [sys.executable, "-m", "workflow.snakemake_api", str(file), *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        said = done.stderr.strip().rpartition("\n")[2] or f"snakemake ended with status {done.returncode}"
        found = read_artifact(file, DryRun) if file.is_file() else DryRun(error=said)
    if found.error:
        raise DryRunError(found.error)
    return found
