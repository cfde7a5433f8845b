"""Write a forecast for a person: a table, or a line."""

from __future__ import annotations

from workflow.planning.costs import Prediction
from workflow.planning.forecast import Forecast
from workflow.planning.units import in_time, in_units

# Disk of less is not worth a word.
LITTLE = 0.5
EXPLANATION = """\
time: all jobs of a stage, one after the other; memory: its largest job; disk: with temporary files.
recorded: measured in an earlier run; scaled: measured of another job of the stage, times the change in work;
estimated: from counts, sizes and a short probe of this machine, within a factor of 2 or 3 on a quiet one."""


def render(forecast: Forecast, dataset: str) -> str:
    """Write the forecast as a table of at most 100 columns."""
    stages: dict[str, list[Prediction]] = {}
    for each in forecast.predictions:
        stages.setdefault(each.job.rule, []).append(each)
    rows = [("stage", "jobs", "time", "memory", "disk", "numbers are")]
    for rule, some in stages.items():
        disk = sum(each.cost.disk + each.cost.temporary for each in some)
        time, memory = sum(each.cost.seconds for each in some), max(each.cost.memory for each in some)
        sources = ", ".join(dict.fromkeys(each.source for each in some))
        amounts = in_time(time), in_units(memory), in_units(disk) if disk >= LITTLE else "-"
        rows.append((rule, str(len(some)), *amounts, sources))
    table = [f"{row[0]:<16}{row[1]:>5} {row[2]:>9} {row[3]:>9} {row[4]:>9}  {row[5]}" for row in rows]
    title = f"{dataset}: {_jobs(forecast)} would run."
    return "\n".join([title, "", *table, "", _total(forecast), "", EXPLANATION, *_notes(forecast)]) + "\n"


def summarise(forecast: Forecast) -> str:
    """Say in one line what will happen."""
    line = (
        f"{_jobs(forecast)}, about {in_time(forecast.seconds)}, {in_units(forecast.disk)} of disk, "
        f"{in_units(forecast.largest.cost.memory)} of memory for the largest ({forecast.largest.job.name})"
    )
    return "\n".join([line, *_notes(forecast)]) + "\n"


def _jobs(forecast: Forecast) -> str:
    count = len(forecast.predictions)
    return f"{count} job{'s' if count > 1 else ''}"


def _total(forecast: Forecast) -> str:
    time = f"In all about {in_time(forecast.seconds)}"
    disk = f"{in_units(forecast.disk)} more on disk ({in_units(forecast.free_disk)} are free)"
    if forecast.executor != "local":
        return f"{time} if no job has to wait for {forecast.executor}, {disk}."
    gpus = forecast.machine.gpus
    places = f"{forecast.machine.cores} cores" + (f" and {gpus} GPU{'s' if gpus > 1 else ''}" if gpus else "")
    memory = f"up to {in_units(forecast.peak)} of memory ({in_units(forecast.memory)} are there)"
    return f"{time} on {places}, {disk}, {memory}."


def _notes(forecast: Forecast) -> list[str]:
    return [f"note: {note}" for note in forecast.notes]
