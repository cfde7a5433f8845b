"""Forecast a run, and say it to a person: what its jobs cost, and all that stands in its way on this machine."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cort.models.settings import EncoderSettings, PairSettings
from cort.models.truncation import LENGTHS, measure_texts, read_lengths
from cort.system.devices import visible_devices
from cort.system.errors import InputError
from workflow import paths
from workflow.experiment.config import Config
from workflow.experiment.models import named_models, trainings
from workflow.experiment.recipes import chosen_values, describe_training
from workflow.planning import preflight
from workflow.planning.costs import Prediction, in_time, in_units, predict, simulate, size_of
from workflow.planning.dryrun import DryRun, Job
from workflow.planning.extras import check_extras
from workflow.planning.facts import gather
from workflow.planning.flops import HEAVY, settings_of
from workflow.planning.speed import Machine, measure
from workflow.report_inputs import read_texts

# Seconds that are worth a note, MB of disk that are not worth a word.
LONG, LITTLE = 24 * 3600, 0.5
COLUMNS = 100
# Half precision that is slower than single precision is done by software.
WORTH_IT = 0.5
TRAINING = {"encoder": "train", "reranker": "train_reranker"}
EXPLANATION = """\
time: all jobs of a stage, one after the other; memory: its largest job; disk: with temporary files.
recorded: measured in an earlier run; scaled: measured of another job of the stage, times the change in work;
estimated: from counts, sizes and a short probe of this machine, within a factor of 2 or 3 on a quiet one."""


class Forecast(NamedTuple):
    """What is said about a planned run: a table of its stages, a line instead, and what stands in its way."""

    table: str
    line: str
    problems: list[str]


def make_forecast(planned: DryRun, config: Config, cores: int, folder: Path) -> Forecast:
    """Predict the jobs and check the machine for them; on a cluster only what its nodes share with this one."""
    jobs, local = planned.jobs, planned.executor == "local"
    listed = len(visible_devices())
    machine = measure({settings_of(job, config)["precision"] for job in jobs if job.rule in HEAVY}, cores, listed)
    predictions = predict(planned, config, gather(config, folder), machine, folder)
    seconds, peak = simulate(predictions, *((cores, machine.gpus) if local else (math.inf, math.inf)))
    fetched = preflight.missing_files(jobs, config, folder)
    disk = preflight.room_for_archives(fetched) + sum(
        # What a job makes again takes the place of what is there.
        max(each.cost.disk - size_of(each.job.outputs, folder), 0) + each.cost.temporary
        for each in predictions
    )
    largest = max(predictions, key=lambda each: each.cost.memory)
    memory = preflight.available_memory()
    problems = [
        *preflight.check_inputs(config, folder, jobs),
        *preflight.check_disk(folder, disk),
        *preflight.check_hub(jobs, config, folder),
        *preflight.check_folder(config, folder),
        *preflight.check_mirrors(fetched),
        *preflight.check_writable(folder),
    ]
    notes = list(_notes_on_jobs(predictions, machine, config))
    time, room = in_time(seconds), f"{in_units(disk)} more on disk ({in_units(preflight.free_disk(folder))} are free)"
    if local:
        problems += preflight.check_memory(largest.job.name, largest.cost.memory, memory)
        problems += preflight.check_java(jobs)
        problems += check_extras(jobs, config)
        problems += preflight.check_gpus(jobs, config, machine.gpus)
        notes += _notes_on_machine(machine, listed, peak, memory)
        places = f"{cores} cores" + (f" and {machine.gpus} GPU{'s' * (machine.gpus > 1)}" if machine.gpus else "")
        used = f"up to {in_units(peak)} of memory ({in_units(memory)} are there)"
        total = f"In all about {time} on {places}, {room}, {used}."
    else:
        notes.append("times are for machines like this one; memory, GPUs and Java of the others are not checked")
        total = f"In all about {time} if no job has to wait for {planned.executor}, {room}."
    said = "".join(f"note: {note}\n" for note in notes)
    count = f"{len(jobs)} job{'s' * (len(jobs) > 1)}"
    needed = f"{in_units(largest.cost.memory)} of memory for the largest"
    line = f"{count}, about {time}, {in_units(disk)} of disk, {needed} ({largest.job.name})\n{said}"
    heading = f"{config['dataset']}: {count} would run."
    models = _trainings(jobs, config) + truncations(config, folder)
    table = f"{heading}\n\n{stages_table(predictions)}\n{total}\n\n{EXPLANATION}\n{models}{said}"
    return Forecast(table, line, problems)


def _notes_on_jobs(predictions: Sequence[Prediction], machine: Machine, config: Config) -> Iterator[str]:
    single = machine.flops["fp32"]
    for job, cost in ((each.job, each.cost) for each in predictions if each.job.rule in HEAVY):
        precision = settings_of(job, config)["precision"]
        half = machine.flops.get(precision, single)
        if half < WORTH_IT * single:
            speeds = f"{precision} runs at {half / 1e9:.1f} GFLOP/s on this machine, fp32 at {single / 1e9:.1f}"
            yield f"{job.name}: {speeds}; set precision to fp32"
        if cost.seconds > LONG and not machine.gpus:
            yield f"{job.name}: {in_time(cost.seconds)} without a GPU; use one, or a smaller model or collection"


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


def _trainings(jobs: Sequence[Job], config: Config) -> str:
    """Write the values that each planned training takes of its recipe and of the config."""
    planned = {
        (HEAVY[rule], job.wildcards[kind]) for kind, rule in TRAINING.items() for job in jobs if job.rule == rule
    }
    titles = trainings(config)
    texts = [
        f"{titles[model]}: {describe_training(chosen)}"
        for model, chosen in chosen_values(config).items()
        if model in planned
    ]
    return "".join(f"\n{textwrap.fill(text, COLUMNS, subsequent_indent='  ')}\n" for text in texts)


def truncations(config: Config, folder: Path) -> str:
    """Write how much of its texts each model will not read, where their token caches are there."""
    lines = []
    for title, files in read_texts(config).items():
        section, name = named_models(config)[title]
        own = config[section][name]
        base_model = folder / paths.at(paths.BASE_MODEL, config, base_model=own["base_model"])
        known = {text: folder / path for text, path in files.items() if (folder / path).exists()}
        if not known or not (base_model / "tokenizer.json").exists():
            continue
        kind = EncoderSettings if section == "encoders" else PairSettings
        # What cannot be read is refused by the stage that reads it.
        with suppress(InputError):
            settings = read_lengths(base_model) or kind(**{key: own[key] for key in LENGTHS & own.keys()})
            found = measure_texts(settings, base_model, known)
            lines += [f"{title}: {text}: {one}\n" for text, one in found.items()]
    return "".join(["\n", *lines]) if lines else ""


def stages_table(predictions: Sequence[Prediction]) -> str:
    """Tell what each stage costs, in at most `COLUMNS` columns."""
    stages: dict[str, list[Prediction]] = {}
    for each in predictions:
        stages.setdefault(each.job.rule, []).append(each)
    rows = [("stage", "jobs", "time", "memory", "disk", "numbers are")]
    for rule, some in stages.items():
        disk = sum(each.cost.disk + each.cost.temporary for each in some)
        time, memory = sum(each.cost.seconds for each in some), max(each.cost.memory for each in some)
        sources = ", ".join(dict.fromkeys(each.source for each in some))
        amounts = in_time(time), in_units(memory), in_units(disk) if disk >= LITTLE else "-"
        rows.append((rule, str(len(some)), *amounts, sources))
    return "".join(f"{row[0]:<16}{row[1]:>5} {row[2]:>9} {row[3]:>9} {row[4]:>9}  {row[5]}\n" for row in rows)
