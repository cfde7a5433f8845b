"""Machines one does not have: what a YAML says of one, and the share of its peak that a stage is assumed to reach.

Those of `workflow/planning/machines` go by their names. No share is measured on a GPU.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cort.formats.schemas import shape_mistakes
from cort.formats.yaml_files import read_yaml
from cort.system.errors import InputError, input_error, shorten
from workflow.planning.speed import Machine

ROOT = Path(__file__).parents[2]
EXAMPLES = "workflow/planning/machines"
SHIPPED, SCHEMA = ROOT / EXAMPLES, ROOT / "workflow" / "schemas" / "machine.schema.yaml"
# Part of a GPU's peak that dense products reach, and numbers that a transformer moves between memory and processors for
# each of its operations, times its width: what is no product moves as many for each token, products compute more the
# wider they are. Both follow from NVIDIA's fine-tuning of BERT-large on SQuAD in PyTorch (384 tokens; its
# DeepLearningExamples, release 21.11): 12 sequences a second on a V100 in fp32 and 52 in fp16, 110.5 on an A100 80GB in
# fp16 are 57 %, 31 % and 26 % of the peak by the count of flops.py; these two give 55 %, 31 % and 29 %.
PRODUCTS, MOVED = 0.75, 7
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
# Part of its memory's bandwidth that search reaches, and bytes per second of PCIe 3.0 with 16 lanes.
READING, LINK = 0.8, 12e9
GB, TERA = 1e9, 1e12


@dataclass(frozen=True)
class Gpus:
    """GPUs of a machine, all alike: bytes of memory of one, bytes per second, operations per second by precision."""

    count: int
    memory: float
    bandwidth: float
    peak: Mapping[str, float]

    def computes(self, precision: str) -> str:
        """Name the precision that takes the place of one: single, if the hardware does not have it."""
        return precision if precision in self.peak else "fp32"

    def reached(self, precision: str, width: int) -> float:
        """Operations per second that a transformer of that width is assumed to reach."""
        found = self.computes(precision)
        moving = MOVED * BYTES[found] / width / self.bandwidth
        return 1 / (1 / (PRODUCTS * self.peak[found]) + moving)


@dataclass(frozen=True)
class Hardware:
    """A machine as it is described; bytes of memory and disk."""

    name: str
    cores: int
    memory: float
    disk: float
    gpus: Gpus


@dataclass(frozen=True, kw_only=True)
class AssumedMachine(Machine):
    """A machine with such GPUs."""

    kind: Gpus

    def reached(self, precision: str, width: int) -> float:
        """Operations per second of a transformer on one of them."""
        return self.kind.reached(precision, width)


def machine_of(hardware: Hardware, cores: int) -> AssumedMachine:
    """Return what plans know of a machine of which jobs use so many cores."""
    return AssumedMachine(cores, hardware.gpus.peak, hardware.gpus.count, kind=hardware.gpus)


def shipped() -> list[str]:
    """List the names of the machines that come with the project."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def read_hardware(name: str) -> Hardware:
    """Read the description of a machine: one that comes with the project, by its name, or a YAML file.

    :raises InputError: with a line per mistake.
    """
    path = SHIPPED / f"{name}.yaml"
    if name not in shipped():
        path = Path(name)
        if path.suffix not in (".yaml", ".yml"):
            near = difflib.get_close_matches(name, shipped(), 1)
            fix = f"did you mean {near[0]}?" if near else f"name one of these, or a YAML file like those in {EXAMPLES}"
            raise input_error("--machine", shorten(name), f"one of {', '.join(shipped())}", fix)
    found = read_yaml(path, "a machine")
    if mistakes := shape_mistakes(found, _schema()):
        raise InputError("\n".join(f"{path}: {line}" for line in mistakes))
    gpus = found["gpus"]
    peak = {precision: TERA * amount for precision, amount in gpus["peak"].items()}
    return Hardware(
        found["name"],
        found["cores"],
        GB * found["memory"],
        GB * found["disk"],
        Gpus(gpus["count"], GB * gpus["memory"], GB * gpus["bandwidth"], peak),
    )


@cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))
    return schema
