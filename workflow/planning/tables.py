"""Write a forecast for a person: a table, or a line."""

from __future__ import annotations

from collections.abc import Sequence

from workflow.planning.forecast import Forecast
from workflow.planning.predictions import Prediction, by_stage
from workflow.planning.units import in_time, in_units

COLUMNS = (16, 6, 10, 10, 10)
TITLES = ("stage", "jobs", "time", "memory", "disk", "numbers are")
# Disk of less is not worth a word.
LITTLE = 0.5
EXPLANATION = """\
time: all jobs of a stage, one after the other; memory: its largest job; disk: with temporary files.
recorded: measured in an earlier run; scaled: such a measurement times the change in work;
estimated: from counts, sizes and a short probe of this machine, within a factor of 2 or so on a quiet one.
"""


def render(forecast: Forecast, dataset: str) -> str:
    """Write the forecast as a table of at most 100 columns."""
    count = len(forecast.predictions)
    rows = [TITLES, *(_stage(rule, some) for rule, some in by_stage(forecast.predictions).items())]
    parts = [
        f"{dataset}: {_jobs(count)} would run.\n",
        *map(_row, rows),
        f"\n{_total(forecast)}\n",
        EXPLANATION.rstrip(),
    ]
    return "\n".join([*parts, *_notes(forecast)]) + "\n"


def summarise(forecast: Forecast) -> str:
    """Say in one line what will happen."""
    line = (
        f"{_jobs(len(forecast.predictions))}, about {in_time(forecast.seconds)}, {in_units(forecast.disk)} of disk, "
        f"{in_units(forecast.largest.cost.memory)} of memory for the largest ({forecast.largest.job.name})"
    )
    return "\n".join([line, *_notes(forecast)]) + "\n"


def _stage(rule: str, some: Sequence[Prediction]) -> tuple[str, ...]:
    disk = sum(each.cost.disk + each.cost.temporary for each in some)
    return (
        rule,
        str(len(some)),
        in_time(sum(each.cost.seconds for each in some)),
        in_units(max(each.cost.memory for each in some)),
        in_units(disk) if disk >= LITTLE else "-",
        ", ".join(dict.fromkeys(each.source for each in some)),
    )


def _row(cells: Sequence[str]) -> str:
    first, *numbers, last = cells
    padded = " ".join(f"{cell:>{width - 1}}" for cell, width in zip(numbers, COLUMNS[1:], strict=True))
    return f"{first:<{COLUMNS[0]}}{padded}  {last}".rstrip()


def _jobs(count: int) -> str:
    return f"{count} job{'s' if count > 1 else ''}"


def _total(forecast: Forecast) -> str:
    time = f"In all about {in_time(forecast.seconds)}"
    disk = f"{in_units(forecast.disk)} more on disk ({in_units(forecast.free_disk)} are free)"
    if forecast.executor != "local":
        return f"{time} if no job has to wait for {forecast.executor}, {disk}."
    gpus = forecast.machine.gpus
    places = [f"{forecast.machine.cores} cores", *([f"{gpus} GPU{'s' if gpus > 1 else ''}"] if gpus else [])]
    memory = f"up to {in_units(forecast.peak)} of memory ({in_units(forecast.memory)} are there)"
    return f"{time} on {' and '.join(places)}, {disk}, {memory}."


def _notes(forecast: Forecast) -> list[str]:
    return [f"note: {note}" for note in forecast.notes]
