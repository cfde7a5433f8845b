"""Count the GPU hours of an experiment on each machine that comes with the project, as a table.

Operations are counted and speeds assumed: nothing here is measured.

Usage: python -m scripts.rehearsal.neural_work --configfile config/msmarco.yaml --report docs/scale.md
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cort.system import cli
from cort.system.options import optional
from scripts.bench.common import markdown, put_between
from workflow.experiment.checks import load
from workflow.planning.dryrun import dry_run
from workflow.planning.elsewhere import HOUR, ON_GPUS, Load, in_exa, load_of, papers_check, papers_hours, short
from workflow.planning.facts import gather
from workflow.planning.hardware import Gpus, read_hardware, shipped


def count(configfile: str, folder: Path, machines: Mapping[str, Gpus]) -> dict[str, list[Load]]:
    """Count what every job does on the GPUs of each machine."""
    config = load(configfile)
    facts, run = gather(config, folder), dry_run(["--configfile", configfile, "--cores", "1"], folder)
    jobs = [job for job in (*run.done, *run.jobs) if job.rule in ON_GPUS]
    return {name: [load_of(job, config, facts, gpus) for job in jobs] for name, gpus in machines.items()}


def table(loads: Mapping[str, Sequence[Load]], machines: Mapping[str, Gpus]) -> list[str]:
    """Lines of the table: stages, all of them, and all if transformers computed in 16 bits."""
    one = next(iter(loads.values()))
    stages = {rule: [number for number, each in enumerate(one) if each.job.rule == rule] for rule in _rules(one)}
    stages["all"] = [number for numbers in stages.values() for number in numbers]
    rows = [
        [
            f"`{stage}`" if stage != "all" else stage,
            f"{len(numbers)}",
            in_exa(sum(one[number].flops for number in numbers)),
            *(short(sum(some[number].seconds for number in numbers) / HOUR) for some in loads.values()),
        ]
        for stage, numbers in stages.items()
    ]
    halves = [_in_half(some, machines[name]) for name, some in loads.items()]
    rows.append(["all, in 16 bits", rows[-1][1], rows[-1][2], *map(short, halves)])
    return markdown(["stage", "jobs", "EFLOP", *loads], rows)


def _rules(loads: Sequence[Load]) -> list[str]:
    return list(dict.fromkeys(each.job.rule for each in loads))


def _in_half(loads: Sequence[Load], gpus: Gpus) -> float:
    """Hours if all but search computed in 16 bits."""
    half = "bf16" if "bf16" in gpus.peak else "fp16"
    computed = [each for each in loads if each.job.rule != "retrieve"]
    return (
        sum(each.seconds for each in loads if each.job.rule == "retrieve")
        + sum(each.flops / gpus.reached(half, each.width) for each in computed)
    ) / HOUR


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to count, and where to write it."""

    configfile: str = optional("config/msmarco.yaml", "the experiment", "YAML")
    report: str | None = optional(None, "put the table there instead of printing it", "MD")


def stage(options: Options) -> None:
    """Count, write."""
    machines = {name: read_hardware(name).gpus for name in shipped()}
    lines = [*table(count(options.configfile, Path.cwd(), machines), machines), "", papers_check(papers_hours())]
    if options.report:
        put_between(Path(options.report), "counted", lines)
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
