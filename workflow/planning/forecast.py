"""Forecast a run: what its jobs cost, and all that stands in its way on this machine."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cort.system.devices import visible_devices
from workflow.experiment.config import Config
from workflow.planning import downloads, preflight
from workflow.planning.costs import Machine, Prediction, predict, simulate, size_of
from workflow.planning.dryrun import DryRun
from workflow.planning.facts import gather
from workflow.planning.flops import HEAVY, settings_of
from workflow.planning.probe import measure
from workflow.planning.units import in_time, in_units

LONG = 24 * 3600
# Half precision that is slower than single precision is done by software.
WORTH_IT = 0.5


@dataclass(frozen=True)
class Forecast:
    """All that is said about a planned run: its wall time in seconds, and in MB its memory and disk, and what there is.

    `disk` is what results/ will grow by at most, `peak` the memory of jobs side by side.
    """

    predictions: list[Prediction]
    executor: str
    machine: Machine
    seconds: float
    peak: float
    disk: float
    free_disk: float
    memory: float
    problems: list[str]
    notes: list[str]

    @property
    def largest(self) -> Prediction:
        """The job with the most memory."""
        return max(self.predictions, key=lambda each: each.cost.memory)


def make_forecast(planned: DryRun, config: Config, cores: int, folder: Path) -> Forecast:
    """Predict the jobs and check the machine for them; on a cluster only what its nodes share with this one.

    :param config: with defaults.
    """
    jobs, local = planned.jobs, planned.executor == "local"
    listed = len(visible_devices())
    machine = measure({settings_of(job, config)["precision"] for job in jobs if job.rule in HEAVY}, cores, listed)
    predictions = predict(planned, config, gather(config, folder), machine, folder)
    seconds, peak = simulate(predictions, *((cores, machine.gpus) if local else (math.inf, math.inf)))
    fetched = downloads.missing_files(jobs, config, folder)
    disk = sum(_growth(each, folder) for each in predictions) + downloads.room_for_archives(fetched)
    largest = max(predictions, key=lambda each: each.cost.memory)
    memory = preflight.available_memory()
    problems = [
        *preflight.check_disk(folder, disk),
        *preflight.check_hub(jobs, config, folder),
        *downloads.check_folder(config, folder),
        *downloads.check_mirrors(fetched),
        *preflight.check_writable(folder),
    ]
    notes = list(_notes_on_jobs(predictions, machine, config))
    if local:
        problems += preflight.check_memory(largest.job.name, largest.cost.memory, memory)
        problems += preflight.check_java(jobs)
        problems += preflight.check_gpus(jobs, config, machine.gpus)
        notes += _notes_on_machine(machine, listed, peak, memory)
    else:
        notes.append("times are for machines like this one; memory, GPUs and Java of the others are not checked")
    free = preflight.free_disk(folder)
    return Forecast(predictions, planned.executor, machine, seconds, peak, disk, free, memory, problems, notes)


def _growth(prediction: Prediction, folder: Path) -> float:
    """MB a job adds to the disk at most: what it makes again takes the place of what is there."""
    cost = prediction.cost
    return max(cost.disk - size_of(prediction.job.outputs, folder), 0) + cost.temporary


def _notes_on_jobs(predictions: Sequence[Prediction], machine: Machine, config: Config) -> Iterator[str]:
    for each in predictions:
        if each.job.rule not in HEAVY:
            continue
        precision = settings_of(each.job, config)["precision"]
        single = machine.flops["fp32"]
        half = machine.flops.get(precision, single)
        if half < WORTH_IT * single:
            speeds = f"{precision} runs at {half / 1e9:.1f} GFLOP/s on this machine, fp32 at {single / 1e9:.1f}"
            yield f"{each.job.name}: {speeds}; set precision to fp32"
        if each.cost.seconds > LONG and not machine.gpus:
            needed = in_time(each.cost.seconds)
            yield f"{each.job.name}: {needed} without a GPU; use one, or a smaller model or collection"


def _notes_on_machine(machine: Machine, listed: int, peak: float, memory: float) -> Iterator[str]:
    if machine.gpus:
        yield "GPUs were not measured when the estimates were made: expect less speed than they say"
    elif listed:
        yield f"torch cannot use the {listed} GPUs that nvidia-smi lists: all runs on the CPU"
    if peak > memory:
        yield f"jobs side by side may need {in_units(peak)} of {in_units(memory)} memory; fewer --cores run fewer"
    elif peak > preflight.unused_memory():
        yield f"other programs leave {in_units(preflight.unused_memory())} of memory for {in_units(peak)}; end some"
    busy = os.getloadavg()[0]
    if busy > machine.cores:
        yield f"this machine is busy (load {busy:.1f} on {machine.cores} cores): all will take longer"
