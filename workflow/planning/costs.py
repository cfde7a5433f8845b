"""What jobs cost: measured, scaled from a measurement of another job of the rule, or estimated from counts."""

from __future__ import annotations

import csv
import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from cort.downloads.catalog import load_catalog
from cort.retrieval.graphs import GRAPHS
from workflow.experiment.config import TRAINING_SPLITS, Config
from workflow.planning.dryrun import DryRun, Job
from workflow.planning.facts import UNKNOWN, Facts
from workflow.planning.flops import HEAVY, PROVIDERS, base_model_of, examples, settings_of, work
from workflow.planning.speed import Machine

MB = 1e6
RECORDED, SCALED, ESTIMATED = "recorded", "scaled", "estimated"
# An index of BM25 is a folder, of which the workflow names one file.
INDEX = "/index/manifest.json"
# Part of a matrix product's speed that a transformer reaches if it is wide, and the width at which it has half of that:
# what is no product grows with the width, products with its square.
EFFICIENCY, HALF_SPEED_WIDTH = 0.8, 64
# Seconds after which a training writes a checkpoint; threads that help.
CHECKPOINT_SECONDS, THREADS = 600, 8
# Bytes of a query with its judgements, of a run's line beside ids and tag, of a triple, of a pair.
QUERY, LINE = 65, 22
RANKERS = ("bm25", "retrieve", "retrieve_graph", "retrieve_tokens", "merge", "import_run")
EXAMPLES = {"triples": ("encoders", 52), "pairs": ("rerankers", 28)}


class Cost(NamedTuple):
    """Wall time in seconds; in MB the largest resident set, the files written, and those needed meanwhile besides."""

    seconds: float
    memory: float
    disk: float = 0
    temporary: float = 0


class Prediction(NamedTuple):
    """What a job will cost, and where the numbers come from."""

    job: Job
    cost: Cost
    source: str


@cache
def table() -> Mapping[str, Mapping[str, float]]:
    """Read costs.yaml: coefficients by rule."""
    found = yaml.safe_load(Path(__file__).with_name("costs.yaml").read_text(encoding="utf-8"))
    return {rule: costs for rules, costs in found.items() for rule in rules.split()}


def predict(run: DryRun, config: Config, facts: Facts, machine: Machine, folder: Path) -> list[Prediction]:
    """Predict all planned jobs, in their order; `folder` has benchmarks/ and results/ of earlier runs if any."""
    found, sizes = [], dict[str, float]()
    measured: dict[str, list[tuple[Cost, Cost]]] = {}
    for job in (*run.done, *run.jobs):
        read = sum(sizes[name] if name in sizes else size_of([name], folder) for name in job.inputs)
        cost, record = estimate(job, read, config, facts, machine), read_benchmark(folder / job.benchmark)
        if all((folder / name).exists() for name in job.outputs):
            cost = cost._replace(disk=size_of(job.outputs, folder))
        # Of several files the first is the one that others read.
        sizes |= {**dict.fromkeys(job.outputs, 0.0), job.outputs[0]: cost.disk}
        if record:
            measured.setdefault(job.rule, []).append((record, cost))
        found.append((job, cost, record))
    return [_adjust(job, cost, record, measured.get(job.rule, [])) for job, cost, record in found if job.planned]


def read_benchmark(path: Path) -> Cost | None:
    """Read what Snakemake measured of a job's last run, if it did; of a short one it knows no memory, which is 0."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            row = list(csv.DictReader(file, delimiter="\t"))[-1]
        memory = row["max_rss"]
        return Cost(float(row["s"]), float(memory) if memory not in ("-", "NA", "") else 0.0)
    except (OSError, ValueError, KeyError, IndexError):
        return None


def _adjust(job: Job, cost: Cost, own: Cost | None, others: Sequence[tuple[Cost, Cost]]) -> Prediction:
    """Put a measurement in the place of an estimate: the job's own, or the most alike of `others` with estimates."""
    if not others:
        return Prediction(job, cost, ESTIMATED)
    nearest = min(others, key=lambda other: abs(math.log(cost.seconds / other[1].seconds)))
    record, then = (own, cost) if own else nearest
    seconds, memory = record.seconds * (cost.seconds / then.seconds), record.memory * (cost.memory / then.memory)
    adjusted = cost._replace(seconds=seconds, memory=memory or cost.memory)
    return Prediction(job, adjusted, RECORDED if own else SCALED)


def estimate(job: Job, read: float, config: Config, facts: Facts, machine: Machine) -> Cost:
    """Estimate a job that reads so many MB."""
    rule = table().get(job.rule, table()["others"])
    workers = max(1, min(job.threads, machine.cores, rule.get("threads", THREADS)))
    # What a transformer takes beside its program.
    cost = _transformer(job, config, facts, machine, workers) if job.rule in HEAVY else Cost(0, 0)
    counted = _counted(job, config, facts) / MB
    if "source" in job.wildcards:
        catalog, name = load_catalog(), f"{job.wildcards['source']}/{job.wildcards['file']}"
        read, counted = catalog.source_of(name).about / MB, catalog.find(name).about / MB
    disk = cost.disk + counted + rule.get("disk", 0) + rule.get("disk_mb", 0) * read
    searched = (rule.get("search", 0) + rule.get("search_mb", 0) * read) * _searches(job, config, facts) / 1e3
    units = rule.get("mb", 0) * (read + disk) ** rule.get("power", 1) + searched
    memory, heap = rule.get("memory_mb", 0) * (read + disk), job.resources.get("heap_mb", math.inf)
    return Cost(
        seconds=cost.seconds + rule["seconds"] + units / workers,
        # Java rarely uses its whole heap.
        memory=cost.memory + rule["memory"] + min(memory, heap / 2),
        disk=disk,
        temporary=cost.temporary + rule.get("temporary_mb", 0) * read,
    )


def _transformer(job: Job, config: Config, facts: Facts, machine: Machine, workers: float) -> Cost:
    found = work(job, config, facts)
    speed = machine.flops.get(settings_of(job, config)["precision"], machine.flops["fp32"])
    reached = EFFICIENCY * speed / (1 + HALF_SPEED_WIDTH / found.width)
    seconds = found.flops / reached / ((job.gpus or 1) if machine.gpus else workers)
    temporary = found.temporary + (found.checkpoints if seconds > CHECKPOINT_SECONDS else 0)
    return Cost(seconds, found.memory / MB, found.disk / MB, temporary / MB)


def _counted(job: Job, config: Config, facts: Facts) -> float:
    """Bytes of files whose lines can be counted: queries, runs, triples and pairs, weights of a base model."""
    split = job.wildcards.get("split", "train")
    if job.rule in RANKERS:
        queries, passages = facts.queries[split], facts.passages
        depth = config["training_depth" if split in TRAINING_SPLITS else "depth"]
        line = queries.id_characters + passages.id_characters + len(job.wildcards["system"]) + LINE
        return float(queries.count * min(depth, passages.count) * line)
    if job.rule in EXAMPLES:
        section, size = EXAMPLES[job.rule]
        return size * examples(section, job.wildcards[section[:-1]], split, config, facts)
    if job.rule == "split":
        return QUERY * facts.queries[split].count
    return 4 * facts.models[str(base_model_of(job))].weights if job.rule in PROVIDERS else 0


def _searches(job: Job, config: Config, facts: Facts) -> float:
    """Count the queries a job searches, each as often as it is searched."""
    count = facts.queries.get(job.wildcards.get("split", "train"), UNKNOWN).count
    match job.rule:
        case "bm25_tune":
            tune = config["lexical"][job.wildcards["lexical"]]["tune"]
            return float(min(tune["samples"] * tune["sample_size"], count) * len(tune["k1"]) * len(tune["b"]))
        case "audit":
            widths = config["audit"][f"{GRAPHS[job.wildcards['index']].parameter}s"]
            return float(min(config["audit"]["queries"] or count, count) * len(widths))
        case "latency":
            # Each system is searched twice with single queries and twice in batches.
            return float(4 * min(config["latency"]["queries"], count) * len(config["latency"]["systems"]))
    return count


def size_of(names: Iterable[str], folder: Path) -> float:
    """MB of files and folders that are there."""
    places = [(folder / name).parent if name.endswith(INDEX) else folder / name for name in names]
    files = (part for place in places for part in (place, *place.rglob("*")) if part.is_file())
    return sum(file.stat().st_size for file in files) / MB


def simulate(predictions: Sequence[Prediction], cores: float, gpus: float) -> tuple[float, float]:
    """Run jobs side by side as soon as inputs, cores and GPUs are there; seconds in all, and most MB used at a time."""
    makers = {name: number for number, each in enumerate(predictions) for name in each.job.outputs}
    needed = [{makers[name] for name in each.job.inputs if name in makers} for each in predictions]
    asked = [(min(each.job.threads, cores), min(each.job.gpus, gpus)) for each in predictions]
    waiting, running, done = list(range(len(predictions))), list[tuple[float, int]](), set[int]()
    now = peak = 0.0
    while waiting or running:
        for number in list(waiting):
            threads, devices = asked[number]
            if needed[number] <= done and threads <= cores and devices <= gpus:
                waiting.remove(number)
                heapq.heappush(running, (now + predictions[number].cost.seconds, number))
                cores, gpus = cores - threads, gpus - devices
        peak = max(peak, sum(predictions[number].cost.memory for _, number in running))
        now, number = heapq.heappop(running)
        done.add(number)
        cores, gpus = cores + asked[number][0], gpus + asked[number][1]
    return now, peak


def in_units(megabytes: float) -> str:
    """Write an amount of memory or disk for a person."""
    return _write(megabytes, (1e3, 1, "MB"), (1e6, 1e3, "GB"), (math.inf, 1e6, "TB"))


def in_time(seconds: float) -> str:
    """Write a time for a person."""
    return _write(seconds, (100, 1, "s"), (6_000, 60, "min"), (48 * 3600, 3600, "h"), (math.inf, 86400, "days"))


def _write(amount: float, *units: tuple[float, float, str]) -> str:
    """Write an amount in the first of the units (limit, size, name) whose limit is above it."""
    limit, size, name = next(unit for unit in units if amount < unit[0])
    digits = int(limit == math.inf or (size > 1 and amount / size < 10))
    return f"{amount / size:.{digits}f} {name}"
