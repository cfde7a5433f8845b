"""Forecast the time, memory and disk of a run by phase, and its problems on this machine.

Time and memory come from Snakemake's records of earlier runs, else from the limits that the rules request on a cluster.
"""

from __future__ import annotations

import csv
import heapq
import math
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from cort.experiment.models import named_models
from cort.models.tokenizer import load_template
from cort.models.truncation import limits_for, measure_texts, read_limits
from cort.reporting.labels import duration
from cort.reporting.labels import memory as memory_text
from cort.settings import paths
from cort.settings.config import Config
from cort.system.devices import visible_devices
from cort.system.errors import InputError
from cort.systems.registry import all_systems
from workflow.command_line import columns
from workflow.planning import preflight
from workflow.planning.dryrun import DryRun, Job
from workflow.report_inputs import read_texts
from workflow.sizes import MB

# Measurements of shipped experiments; the first line names the machine.
RECORDED = Path(__file__).with_name("recorded.tsv")
COLUMNS = columns(110)
# Seconds and MB of a job that requests no resources.
LIGHT, SMALL = 5.0, 300.0
# A BM25 index is a folder, of which the workflow names only this file.
INDEX = "/index/manifest.json"
EXPLANATION = """\
time: sum over all jobs; memory: of the largest job; disk: of new files. A limit
is what the rules request on a cluster, shown if nothing is recorded yet: most
jobs take a small part of it, but large models without a GPU take longer.
"""


class Cost(NamedTuple):
    """Wall time in seconds and memory in MB of a job, `recorded` or a limit."""

    seconds: float
    memory: float
    recorded: bool = True


class Forecast(NamedTuple):
    """A planned run as a table of its phases or as one line, and its problems."""

    table: str
    line: str
    problems: list[str]


def make_forecast(planned: DryRun, config: Config, cores: int, folder: Path) -> Forecast:
    """Add up the jobs and check the machine; for a cluster, only what its nodes share with this machine."""
    jobs, local = planned.jobs, planned.executor == "local"
    gpus = len(visible_devices())
    costs = costs_of(planned, config["dataset"], folder)
    seconds = finish([*zip(jobs, costs, strict=True)], *((cores, gpus) if local else (math.inf, math.inf)))
    # Rebuilt files replace existing ones.
    disk = sum(max(job.resources.get("disk_mb", 0) - size_of(job.outputs, folder), 0) for job in jobs)
    problems = preflight.check_all(jobs, config, folder, disk)
    largest = max(range(len(jobs)), key=lambda number: costs[number].memory)
    if local:
        memory = costs[largest].memory if costs[largest].recorded else 0
        problems += preflight.check_machine(jobs, config, gpus, jobs[largest].name, memory)
    count = f"{len(jobs)} job{'s' * (len(jobs) > 1)}"
    about = "about" if all(cost.recorded for cost in costs) else "limit"
    time = f"{about} {duration(seconds)}"
    places = f"{cores} cores" + (f" and {gpus} GPU{'s' * (gpus > 1)}" if gpus else "") if local else planned.executor
    room = f"{memory_text(disk)} of disk ({memory_text(preflight.free_disk(folder))} are free)"
    needed = f"{memory_text(costs[largest].memory)} of memory for {jobs[largest].name}"
    available = memory_text(preflight.available_memory())
    total = f"In all {time} on {places}, {room}.\nThe largest job: {needed} ({available} available)."
    parts = f"{config['dataset']}: {count} would run.\n", phases_table(jobs, costs), f"{total}\n{EXPLANATION}"
    table = "\n".join(parts) + languages(config) + truncations(config, folder)
    return Forecast(table, f"{count}, {time}, {memory_text(disk)} of disk, {needed}\n", problems)


def costs_of(planned: DryRun, dataset: str, folder: Path) -> list[Cost]:
    """Estimate the planned jobs in order: as recorded for the job, its rule or shipped experiments, else limits."""
    recorded = {job: read_benchmark(folder / job.benchmark) for job in (*planned.done, *planned.jobs)}
    by_rule = defaultdict[str, list[Cost]](list)
    for job, cost in recorded.items():
        by_rule[job.rule] += [cost] if cost else []
    means = {
        rule: Cost(fmean(cost.seconds for cost in costs), max(cost.memory for cost in costs))
        for rule, costs in by_rule.items()
        if costs
    }
    return [
        recorded[job] or means.get(job.rule) or shipped().get((dataset, job.rule)) or limit(job) for job in planned.jobs
    ]


def read_benchmark(path: Path) -> Cost | None:
    """Read Snakemake's measurement of a job's last run, if any; it has no memory for short runs, which is 0 here."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            row = list(csv.DictReader(file, delimiter="\t"))[-1]
        memory = row["max_rss"]
        return Cost(float(row["s"]), float(memory) if memory not in ("-", "NA", "") else 0.0)
    except (OSError, ValueError, KeyError, IndexError):
        return None


@cache
def shipped() -> dict[tuple[str, str], Cost]:
    """Read the mean cost of a job in shipped experiments, by experiment and rule."""
    with open(RECORDED, encoding="utf-8") as file:
        rows = csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t")
        return {(row["dataset"], row["rule"]): Cost(float(row["seconds"]), float(row["mb"])) for row in rows}


def limit(job: Job) -> Cost:
    """Limits of a job by the resources of its rule; a job without any is light."""
    if "runtime" not in job.resources:
        return Cost(LIGHT, SMALL)
    return Cost(60.0 * job.resources["runtime"], job.resources.get("mem_mb", SMALL), recorded=False)


def finish(jobs: Sequence[tuple[Job, Cost]], cores: float, gpus: float) -> float:
    """Simulate jobs that start as soon as inputs, cores and GPUs are available; the seconds until all are done."""
    makers = {name: number for number, (job, _) in enumerate(jobs) for name in job.outputs}
    needed = [{makers[name] for name in job.inputs if name in makers} for job, _ in jobs]
    demands = [(min(job.threads, cores), min(job.gpus, gpus)) for job, _ in jobs]
    waiting, running, done = list(range(len(jobs))), list[tuple[float, int]](), set[int]()
    now = 0.0
    while waiting or running:
        for number in list(waiting):
            threads, devices = demands[number]
            if needed[number] <= done and threads <= cores and devices <= gpus:
                waiting.remove(number)
                heapq.heappush(running, (now + jobs[number][1].seconds, number))
                cores, gpus = cores - threads, gpus - devices
        now, number = heapq.heappop(running)
        done.add(number)
        cores, gpus = cores + demands[number][0], gpus + demands[number][1]
    return now


def size_of(names: Iterable[str], folder: Path) -> float:
    """MB of existing files and folders."""
    places = [(folder / name).parent if name.endswith(INDEX) else folder / name for name in names]
    files = (part for place in places for part in (place, *place.rglob("*")) if part.is_file())
    return sum(file.stat().st_size for file in files) / MB


def truncations(config: Config, folder: Path) -> str:
    """Write how much of its texts each model will truncate, as far as token caches exist."""
    lines = []
    for title, files in read_texts(config).items():
        section, name = named_models(config)[title]
        own = config[section][name]
        base_model = folder / paths.at(paths.BASE_MODEL, config, base_model=own["base_model"])
        known = {text: folder / path for text, path in files.items() if (folder / path).exists()}
        if not known or not base_model.exists():
            continue
        lengths = own.get("query_length", 0), own.get("passage_length", own.get("max_length", 0))
        # Broken files are refused by the stage that reads them.
        with suppress(InputError):
            limits = read_limits(base_model) or limits_for(
                own.get("kind", "encoder"), lengths, load_template(base_model)
            )
            measured = measure_texts(limits, known)
            lines += [f"{title}: {text}: {length}\n" for text, length in measured.items() if length.cut_texts]
    return "".join(["\n", *lines]) if lines else ""


def languages(config: Config) -> str:
    """Name the languages of the term-based indexes that systems search."""
    used = {system.lexical_index() for system in all_systems(config).values()}
    named = [f"{name} {index['language']}" for name, index in config["lexical"].items() if name in used]
    return f"Languages of BM25: {', '.join(named)}.\n" if named else ""


def phases_table(jobs: Sequence[Job], costs: Sequence[Cost]) -> str:
    """Write a line per phase with its costs and stages."""
    phases: dict[str, list[tuple[Job, Cost]]] = {}
    for job, cost in zip(jobs, costs, strict=True):
        phases.setdefault(job.phase, []).append((job, cost))
    lines = [f"{'phase':<12}{'jobs':>5}  {'time':<17}{'memory':>8}{'disk':>9}  stages"]
    for phase, members in phases.items():
        stages = ", ".join(dict.fromkeys(job.rule for job, _ in members))
        disk = sum(job.resources.get("disk_mb", 0) for job, _ in members)
        time = duration(sum(cost.seconds for _, cost in members))
        time = time if all(cost.recorded for _, cost in members) else f"limit {time}"
        memory, room = memory_text(max(cost.memory for _, cost in members)), memory_text(disk) if disk else "-"
        amounts = f"{phase:<12}{len(members):>5}  {time:<17}{memory:>8}{room:>9}  "
        lines += textwrap.wrap(stages, COLUMNS, initial_indent=amounts, subsequent_indent=" " * len(amounts))
    return "".join(f"{line}\n" for line in lines)
