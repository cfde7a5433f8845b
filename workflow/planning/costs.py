"""Predict time, memory and disk of a job from the work it is and the speed of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from workflow.planning.work import MB, WORK, Quantities, Work, constants


class Cost(NamedTuple):
    """Wall time in seconds; in MB the largest resident set, the files written, and those needed meanwhile besides."""

    seconds: float
    memory: float
    disk: float
    temporary: float = 0


@dataclass(frozen=True)
class Machine:
    """Where jobs run.

    `flops` are those of a matrix product per second, by precision: of one core, or of a GPU if there are `gpus`. `loop`
    is the time of a loop in Python, in seconds.
    """

    cores: int
    flops: Mapping[str, float]
    loop: float
    gpus: int = 0


def cost(rule: str, quantities: Quantities, machine: Machine, threads: int, gpus: int = 0) -> Cost:
    """Predict a job.

    :param threads: what the job gets; `gpus` likewise.
    :raises KeyError: for a rule without constants.
    """
    rule_constants, checkpoints = constants()["rules"][rule], constants()["checkpoints"]
    work, base = WORK[rule](quantities), at_rest(rule, machine)
    slower = machine.loop / constants()["reference"]["loop"]
    parallel = 0.0 if rule_constants["unit_is"] == "transformer" else rule_constants["unit"] * work.units * slower
    workers = max(1, min(threads, rule_constants["threads"], machine.cores))
    passes = _passes(work, machine.flops.get(quantities.precision, machine.flops["fp32"]), machine.flops["fp32"])
    seconds = base.seconds + parallel / workers + passes / (gpus or workers)
    temporary = work.temporary + (work.checkpoints if seconds > checkpoints["seconds"] else 0)
    return Cost(seconds, base.memory + work.memory / MB, work.disk / MB, temporary / MB)


def _passes(work: Work, flops: float, single: float) -> float:
    """Seconds of a transformer on one core or GPU: its products, and all else, which is faster where `single` is."""
    transformer = constants()["transformer"]
    rest = constants()["reference"]["flops"] / single
    return float(
        work.flops / (transformer["efficiency"] * flops)
        + rest
        * (
            transformer["inference"] * work.forward
            + transformer["training"] * work.backward
            + transformer["update"] * work.updates
        )
    )


def at_rest(rule: str, machine: Machine) -> Cost:
    """Predict a job of a rule that has nothing to do."""
    known = constants()["rules"][rule]
    return Cost(known["fixed"] * machine.loop / constants()["reference"]["loop"], known["memory"], 0)
