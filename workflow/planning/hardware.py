"""Machines one does not have: what a YAML says of one, and the shares of its peak that stages are assumed to reach.

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

SHIPPED = Path(__file__).with_name("machines")
SCHEMA = Path(__file__).parents[1] / "schemas" / "machine.schema.yaml"
# Part of a GPU's peak that a transformer reaches. NVIDIA's fine-tuning of BERT-large on SQuAD in PyTorch (384 tokens;
# DeepLearningExamples, release 21.11: 12 sequences a second on a V100 in fp32, 52 in fp16, 110.5 on an A100 80GB) reaches
# 57 %, 31 % and 26 % by the count of flops.py. A base model is three quarters as wide and so computes three quarters as
# much with each number it moves: 43 %, 23 % and 20 %, rounded down.
SHARES = {"fp32": 0.4, "bf16": 0.2, "fp16": 0.2}
# Part of its memory's bandwidth that reading in order reaches, and bytes per second of PCIe 3.0 with 16 lanes.
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

    def reached(self, precision: str) -> float:
        """Operations per second that a transformer is assumed to reach."""
        return SHARES[self.computes(precision)] * self.peak[self.computes(precision)]


@dataclass(frozen=True)
class Hardware:
    """A machine as it is described; bytes of memory and disk."""

    name: str
    cores: int
    memory: float
    disk: float
    gpus: Gpus


@dataclass(frozen=True)
class AssumedMachine(Machine):
    """A machine whose `flops` are what a transformer reaches, whatever its width."""

    def reached(self, precision: str, width: int) -> float:
        """Operations per second of a transformer."""
        return self.flops.get(precision, self.flops["fp32"])


def machine_of(hardware: Hardware, cores: int) -> AssumedMachine:
    """Return what plans know of a machine of which jobs use so many cores."""
    gpus = hardware.gpus
    return AssumedMachine(cores, {name: gpus.reached(name) for name in SHARES}, gpus.count)


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
            fix = f"did you mean {near[0]}?" if near else "name one of these, or a YAML file like those in " + str(
                SHIPPED.relative_to(SHIPPED.parents[2])
            )
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
