"""Forecast a whole experiment on a machine one does not have: counted operations, at an assumed share of its peak.

As if nothing had been built. The hours that CoRT's authors give for their own GPU are the check of counts and shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cort.system.errors import input_error
from workflow.experiment.checks import load
from workflow.experiment.config import Config
from workflow.machine import Machine as Threads
from workflow.planning.costs import MB, Prediction, in_time, in_units, predict, simulate, table
from workflow.planning.dryrun import DryRun, Job
from workflow.planning.facts import Facts, gather
from workflow.planning.flops import HEAVY, TRAININGS, model_of, settings_of, work
from workflow.planning.forecast import stages_table
from workflow.planning.hardware import (
    LINK,
    PRODUCTS,
    READING,
    ROOT,
    SHIPPED,
    TERA,
    Gpus,
    Hardware,
    machine_of,
    read_hardware,
)
from workflow.planning.preflight import DISK_MARGIN, check_gpus, check_memory

EXA, HOUR = 1e18, 3600.0
# Operations in EFLOP and hours that are written as such.
LITTLE, LEAST = 0.001, 0.1
# Exact search: queries at a time, and how often each of their scores is written or read.
SEARCHED, SCORES = 512, 3
ON_GPUS = {*HEAVY, "retrieve"}
# README of CoRT's code: hours of a training, and of encoding all passages, on one of these GPUs.
PAPERS_CONFIG, PAPERS_MACHINE, PAPERS_MODEL = ROOT / "config" / "msmarco.yaml", "2080ti", "cort-e128"
PAPERS_HOURS: Mapping[str, float] = {"train": 33, "encode": 7}
EXPLANATION = f"""\
GPU hours: counted operations by the assumed speed. Nothing was measured on a GPU: the shares of the peak follow from
what NVIDIA publishes of BERT-large, and from bandwidth and width; search reads at {100 * READING:.0f} % of bandwidth.
time: all jobs of a stage, one after the other, on cores of 2.5 GHz, within a factor of 2 or 3;
memory: its largest job."""


class Load(NamedTuple):
    """What a job does on a GPU: the precision it computes in, its model's width, operations, seconds of one GPU."""

    job: Job
    precision: str
    width: int
    flops: float
    seconds: float


class Elsewhere(NamedTuple):
    """What is said about an experiment on another machine: tables and notes, and what does not fit."""

    text: str
    problems: list[str]


def forecast_elsewhere(planned: DryRun, config: Config, hardware: Hardware, cores: int, folder: Path) -> Elsewhere:
    """Predict all jobs of an experiment, those that are done as well."""
    gpus, facts = hardware.gpus, gather(config, folder)
    jobs = [_as_there(job, config, gpus.count, cores) for job in (*planned.done, *planned.jobs)]
    loads = [load_of(job, config, facts, gpus) for job in jobs if job.rule in ON_GPUS]
    found = predict(DryRun(jobs), config, facts, machine_of(hardware, cores), folder)
    searches = {each.job.name: each.seconds for each in loads if each.job.rule == "retrieve"}
    found = [_searched(each, searches[each.job.name]) if each.job.name in searches else each for each in found]
    seconds, _ = simulate(found, cores, gpus.count)
    disk = sum(each.cost.disk + each.cost.temporary for each in found)
    hours = sum(each.seconds for each in loads) / HOUR
    counts = f"{gpus.count} GPU{'s' * (gpus.count > 1)}"
    host = (
        f"{counts}, {cores} cores, {in_units(hardware.memory / MB)} of memory, {in_units(hardware.disk / MB)} of disk"
    )
    parts = [
        f"{config['dataset']} on {hardware.name} ({host}): {len(jobs)} jobs in all.\n",
        loads_table(loads, gpus),
        stages_table([each for each in found if each.job.rule not in ON_GPUS]),
        f"In all {short(hours)} of GPU time, {in_units(disk)} on disk, about {in_time(seconds)} from start to end.\n",
        f"{EXPLANATION}\n{papers_check(papers_hours())}\n",
    ]
    notes = "".join(f"note: {note}\n" for note in _notes(loads, gpus, facts, config))
    problems = [*_too_large(jobs, config, facts, hardware), *_too_small(found, config, facts, hardware, disk)]
    return Elsewhere("\n".join(filter(None, parts)) + notes, list(dict.fromkeys(problems)))


def _as_there(job: Job, config: Config, gpus: int, cores: int) -> Job:
    """Give a job the GPUs and threads it would have there, and nothing of what was measured here."""
    asked = config["latency"]["gpus"] if job.rule == "latency" else int(job.rule in ON_GPUS)
    asked = settings_of(job, config)["gpus"] if job.rule in TRAININGS else asked
    machine = Threads(gpus, cores)
    threads = machine.threads if job.rule in ON_GPUS else job.threads
    return replace(
        job, planned=True, benchmark="", threads=threads, resources={**job.resources, "gpu": machine.gpus_for(asked)}
    )


def load_of(job: Job, config: Config, facts: Facts, gpus: Gpus) -> Load:
    """Count what a job does on a GPU."""
    if job.rule == "retrieve":
        vectors, dimension = _vectors(job, config, facts)
        count = facts.queries[job.wildcards["split"]].count
        seconds = search_seconds(vectors, dimension, count, gpus)
        return Load(job, "fp32", dimension, 2 * count * vectors * dimension, seconds)
    precision, found = gpus.computes(settings_of(job, config)["precision"]), work(job, config, facts)
    return Load(job, precision, found.width, found.flops, found.flops / gpus.reached(precision, found.width))


def search_seconds(vectors: float, dimension: int, queries: float, gpus: Gpus) -> float:
    """Time of exact search on a GPU: all vectors and the scores of so many queries pass through its memory.

    Vectors that take more than half of the memory come from the host each time.
    """
    times, stored = math.ceil(queries / SEARCHED), 4 * vectors * dimension
    read = times * stored + SCORES * 4 * queries * vectors
    sent = stored * (1 if 2 * stored <= gpus.memory else times)
    products = 2 * queries * vectors * dimension / (PRODUCTS * gpus.peak["fp32"])
    return products + read / (READING * gpus.bandwidth) + sent / LINK


def _vectors(job: Job, config: Config, facts: Facts) -> tuple[float, int]:
    """Count the vectors that a job searches, and their dimensions."""
    encoder = config["encoders"][config["systems"][job.wildcards["system"]]["retrieve"]]
    return facts.passages.count, encoder.get("dimension", facts.models[encoder["base_model"]].hidden)


def _searched(each: Prediction, seconds: float) -> Prediction:
    """Put the time of a search on a GPU in the place of one on cores; what is read and written stays."""
    rule = table()["retrieve"]
    stored = each.cost.memory - rule["memory"]
    around = rule["seconds"] + rule["mb"] * stored / rule["memory_mb"] / each.job.threads
    return each._replace(cost=each.cost._replace(seconds=around + seconds))


def loads_table(loads: Sequence[Load], gpus: Gpus) -> str:
    """Tell what each stage computes on GPUs, a line for each precision."""
    rows = [("stage", "jobs", "EFLOP", "assumed speed", "GPU hours")]
    for rule, precision in dict.fromkeys((each.job.rule, each.precision) for each in loads):
        some = [each for each in loads if (each.job.rule, each.precision) == (rule, precision)]
        flops, seconds, peak = (
            sum(each.flops for each in some),
            sum(each.seconds for each in some),
            gpus.peak[precision],
        )
        share = f"{100 * flops / seconds / peak:.0f} % of {peak / TERA:g} TFLOP/s, {precision}"
        rows.append((rule, str(len(some)), in_exa(flops), share, short(seconds / HOUR)))
    if len(rows) == 1:
        return ""
    return "".join(f"{row[0]:<16}{row[1]:>5} {row[2]:>9}  {row[3]:<29}{row[4]:>9}\n" for row in rows)


def in_exa(flops: float) -> str:
    """Write operations in EFLOP."""
    return f"{flops / EXA:.3f}" if flops >= LITTLE * EXA else f"< {LITTLE}"


def short(hours: float) -> str:
    """Write GPU hours for a person."""
    return f"{hours:,.0f} h" if hours >= 10 else f"{hours:.1f} h" if hours >= LEAST else in_time(HOUR * hours)


def papers_hours() -> dict[str, float]:
    """Hours of CoRT's training and encoding on its authors' GPU, by the same counts and shares."""
    config, gpus = load(str(PAPERS_CONFIG)), read_hardware(PAPERS_MACHINE).gpus
    # Not of what lies in the user's folder.
    facts = gather(config, SHIPPED)
    fields = {"encoder": PAPERS_MODEL, "scatteritem": "1-of-1"}
    jobs = [Job(rule=rule, wildcards=fields, resources={}) for rule in PAPERS_HOURS]
    return {job.rule: load_of(job, config, facts, gpus).seconds / HOUR for job in jobs}


def papers_check(hours: Mapping[str, float]) -> str:
    """Compare hours of stages with those that CoRT's authors give."""
    said = ", ".join(
        f"{short(hours[rule])} to {rule} ({hours[rule] / theirs:.2f} of their {theirs:g} h)"
        for rule, theirs in PAPERS_HOURS.items()
    )
    return f"Check: a CoRT model on its authors' RTX 2080 Ti: {said}."


def _notes(loads: Sequence[Load], gpus: Gpus, facts: Facts, config: Config) -> Iterator[str]:
    """Tell what is slower than it need be."""
    single = [each for each in loads if each.precision == "fp32" and each.job.rule in HEAVY]
    asked = {settings_of(each.job, config)["precision"] for each in single}
    for precision in sorted(asked - gpus.peak.keys()):
        yield f"these GPUs have no {precision}: stages that ask for it are counted in fp32"
    half = next((name for name in ("bf16", "fp16") if name in gpus.peak), "fp32")
    now, then = (sum(each.flops / gpus.reached(name, each.width) for each in single) / HOUR for name in ("fp32", half))
    if then < now and now >= LEAST:
        yield f"{short(now)} of the GPU time are in fp32; `precision: {half}` would take {short(then)}"
    searched = (_vectors(each.job, config, facts) for each in loads if each.job.rule == "retrieve")
    for vectors, dimension in sorted({found for found in searched if 8 * found[0] * found[1] > gpus.memory}):
        size = in_units(4 * vectors * dimension / MB)
        again = f"every {SEARCHED} queries send them again"
        yield f"vectors of {dimension} dimensions ({size}) do not stay on a GPU: {again}"


def _too_large(jobs: Sequence[Job], config: Config, facts: Facts, hardware: Hardware) -> Iterator[str]:
    """Find jobs that need more memory than a GPU has, one for each model and kind of stage."""
    needed: dict[str, tuple[float, str]] = {}
    for job in (job for job in jobs if job.rule in HEAVY):
        place = f"{HEAVY[job.rule]}.{model_of(job, config)}{'.training' * (job.rule in TRAININGS)}"
        needed[place] = max(needed.get(place, (0, "")), (work(job, config, facts, "cuda").memory, job.rule))
    for place, (memory, rule) in needed.items():
        if memory > hardware.gpus.memory:
            fix = "lower tokens_at_once, or set gradient_checkpointing" if rule in TRAININGS else "use a larger GPU"
            expected = f"{in_units(memory / MB)} to {rule}"
            yield str(input_error(place, f"{in_units(hardware.gpus.memory / MB)} on a GPU", expected, fix))


def _too_small(
    found: Sequence[Prediction], config: Config, facts: Facts, hardware: Hardware, disk: float
) -> Iterator[str]:
    """Find what else does not fit: the largest job, all files, more GPUs than there are."""

    def on_host(each: Prediction) -> float:
        # What a transformer needs is on its GPU.
        job = each.job
        return each.cost.memory - (work(job, config, facts).memory / MB if job.rule in HEAVY else 0)

    largest = max(found, key=on_host)
    yield from check_memory(largest.job.name, on_host(largest), hardware.memory / MB)
    if disk * DISK_MARGIN > hardware.disk / MB:
        expected = f"{in_units(disk * DISK_MARGIN)}, 20 % of it in reserve"
        yield str(input_error("disk", in_units(hardware.disk / MB), expected, "use a larger one, or lower `depth`"))
    yield from check_gpus([each.job for each in found], config, hardware.gpus.count)
