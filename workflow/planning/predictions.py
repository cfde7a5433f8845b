"""Predict every planned job: from its own benchmark of an earlier run, from one of its rule, or from a cost model.

Benchmarks are scaled by the work: by what the cost model says of the job now and of the job that was measured.
"""

from __future__ import annotations

import csv
import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workflow.experiment.config import Config
from workflow.planning.costs import Cost, Machine, at_rest, cost
from workflow.planning.dryrun import Job
from workflow.planning.facts import Facts
from workflow.planning.quantities import observed, planned
from workflow.planning.work import MB

RECORDED, SCALED, ESTIMATED = "recorded", "scaled", "estimated"
# The index of BM25 is a folder, of which the workflow names one file.
INDEX = "bm25/index/manifest.json"
# Work that differs by less is the same: counts are estimates.
SAME = 0.02


@dataclass(frozen=True)
class Prediction:
    """What a job will cost, and where the numbers come from."""

    job: Job
    cost: Cost
    source: str


@dataclass(frozen=True)
class Record:
    """What was measured of an earlier job; memory NaN where the job was too short for it."""

    path: Path
    seconds: float
    memory: float


def predict(jobs: Sequence[Job], config: Config, facts: Facts, machine: Machine, folder: Path) -> list[Prediction]:
    """Predict all jobs, in their order.

    :param folder: root of the project, with `benchmarks/` and `results/` of earlier runs if there are any.
    """
    records = read_records(folder)
    return [_predict(job, config, facts, machine, folder, records.get(job.rule, [])) for job in jobs]


def read_records(folder: Path) -> dict[str, list[Record]]:
    """Read all benchmark files, by rule."""
    found: dict[str, list[Record]] = {}
    for path in sorted((folder / "benchmarks").glob("*/*/*.tsv")):
        try:
            with open(path, newline="", encoding="utf-8") as file:
                row = list(csv.DictReader(file, delimiter="\t"))[-1]
            record = Record(path, float(row["s"]), _number(row["max_rss"]))
        except (OSError, ValueError, KeyError, IndexError):
            continue
        found.setdefault(path.parent.name, []).append(record)
    return found


def simulate(predictions: Sequence[Prediction], cores: float, gpus: int) -> tuple[float, float]:
    """Run the jobs side by side, each as soon as its input is there and cores and GPUs are free.

    :returns: wall time in seconds, and in MB the largest sum of memory at a time.
    """
    makers = {name: number for number, each in enumerate(predictions) for name in each.job.outputs}
    needed = [{makers[name] for name in each.job.inputs if name in makers} for each in predictions]
    threads = [min(each.job.threads, cores) for each in predictions]
    devices = [min(each.job.gpus, gpus) for each in predictions]
    waiting, running, done = list(range(len(predictions))), list[tuple[float, int]](), set[int]()
    now = peak = 0.0
    while waiting or running:
        for number in list(waiting):
            beside = [other for _, other in running]
            fits = threads[number] + sum(threads[other] for other in beside) <= cores
            fits = fits and devices[number] + sum(devices[other] for other in beside) <= gpus
            if needed[number] <= done and fits:
                waiting.remove(number)
                heapq.heappush(running, (now + predictions[number].cost.seconds, number))
        peak = max(peak, sum(predictions[number].cost.memory for _, number in running))
        now, number = heapq.heappop(running)
        done.add(number)
    return now, peak


def size_of(names: Iterable[str], folder: Path) -> float:
    """MB of files and folders that are there."""
    total = 0
    for path in (folder / name if not name.endswith(INDEX) else (folder / name).parent for name in names):
        parts = path.rglob("*") if path.is_dir() else [path]
        total += sum(part.stat().st_size for part in parts if part.is_file())
    return total / MB


def _predict(
    job: Job, config: Config, facts: Facts, machine: Machine, folder: Path, records: Sequence[Record]
) -> Prediction:
    own = next((record for record in records if record.path == folder / job.benchmark), None)
    now = planned(job, config, facts)
    model = cost(job.rule, now, machine, job.threads, job.gpus)
    there = [own] if own else records
    before = {
        each: cost(job.rule, observed(each.path, job.rule, now, folder), machine, job.threads, job.gpus)
        for each in there
    }
    if not before:
        return Prediction(job, model, ESTIMATED)
    # The most alike.
    record = min(before, key=lambda each: abs(math.log(model.seconds / before[each].seconds)))
    base, then = at_rest(job.rule, machine), before[record]
    found = model._replace(
        seconds=scale(record.seconds, then.seconds, model.seconds, base.seconds),
        memory=_or(scale(record.memory, then.memory, model.memory, base.memory), model.memory),
    )
    if own and all((folder / name).exists() for name in job.outputs):
        found = found._replace(disk=size_of(job.outputs, folder) * (model.disk / then.disk if then.disk else 1))
    same = own and all(abs(new - old) <= SAME * old for new, old in zip(model[:3], then[:3], strict=True))
    return Prediction(job, found, RECORDED if same else SCALED)


def scale(measured: float, then: float, now: float, base: float) -> float:
    """Predict from a measurement what the model says of that job (`then`) and of the new one (`now`).

    How wrong the model was tells of the new job's work as far as the measured one was work, not `base`, which any job
    takes.
    """
    wrong = measured / then
    work = 1 - min(base / then, 1)
    return max(measured + (now - then) * math.pow(wrong, work), wrong * min(now, then))


def _number(text: str) -> float:
    return float(text) if text not in ("-", "NA", "") else math.nan


def _or(value: float, other: float) -> float:
    return other if math.isnan(value) else value


def by_stage(predictions: Sequence[Prediction]) -> Mapping[str, list[Prediction]]:
    """Group the predictions by rule, in their order."""
    stages: dict[str, list[Prediction]] = {}
    for each in predictions:
        stages.setdefault(each.job.rule, []).append(each)
    return stages
