"""Say in plain words why jobs would run: what changed first, then what follows from it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from workflow.experiment.config import Config
from workflow.planning.changes import changed_settings
from workflow.planning.dryrun import DryRun, Job, Made

SHOWN = 3
WIDTH = 100
UNMADE = "not made yet"
REASONS = (
    "Missing output files",
    "Incomplete output files",
    "Updated input files",
    "Input files updated by another job",
    "Set of input files has changed since last execution",
    "Code has changed since last execution",
    "Params have changed since last execution",
    "Software environment definition has changed since last execution",
    "Forced execution",
)
# Reasons that need no more than words; the others are looked into.
IN_WORDS = {
    "Incomplete output files": "its last run was interrupted and left {files} incomplete",
    "Code has changed since last execution": "the command in its rule ({rule}, under workflow/rules/) was edited",
    "Software environment definition has changed since last execution": "its environment (workflow/envs/) was edited",
    "Forced execution": "you asked for it to run in any case",
}
REASON = re.compile(rf"(?:^|; )({'|'.join(REASONS)})(?:: )?")


@dataclass(frozen=True)
class Explanation:
    """Why one job would run: what changed for it alone, and which other jobs hand it new input."""

    job: Job
    causes: tuple[str, ...]
    follows: tuple[str, ...]


def explain(run: DryRun, config: Config) -> list[Explanation]:
    """Explain every job of a dry run, in its order.

    :param run: with its history.
    :param config: with defaults; the names of settings are looked up in it.
    """
    makers = {name: job.name for job in run.jobs for name in job.outputs}
    found = []
    for job in run.jobs:
        reasons = split_reason(job.reason)
        causes = tuple(dict.fromkeys(_causes(job, reasons, run.made, config)))
        found.append(Explanation(job, causes, tuple(_follows(job, reasons, makers))))
    return found


def split_reason(text: str) -> dict[str, str]:
    """Part Snakemake's reason into its kinds, each with the files or values it names; unknown words stand under ""."""
    parts = REASON.split(text)
    found = {"": parts[0]} if parts[0] else {}
    return found | dict(zip(parts[1::2], parts[2::2], strict=True))


def named_in(text: str, files: Iterable[str]) -> list[str]:
    """Return those of `files` that a list separated by commas names; the names may have commas themselves."""
    return [name for name in files if f", {name}, " in f", {text}, "]


def _causes(job: Job, reasons: Mapping[str, str], made: Mapping[str, Made], config: Config) -> Iterator[str]:
    records = [made[name] for name in job.outputs if name in made and made[name].command]
    for kind, text in reasons.items():
        match kind:
            case "Missing output files":
                yield _missing(named_in(text, job.outputs)) if records else UNMADE
            case "Updated input files":
                yield from (_updated(name, records) for name in named_in(text, job.inputs))
            case "Input files updated by another job":
                # Snakemake looks no further here, but a person wants to know all that changed.
                yield from changed_settings(job, records, config)
            case "Set of input files has changed since last execution":
                yield _other_inputs(job, records)
            case "Params have changed since last execution":
                yield from changed_settings(job, records, config, text)
            case _:
                words = IN_WORDS.get(kind, "{text}")
                yield words.format(rule=job.rule, files=_list(named_in(text, job.outputs)), text=text)


def _missing(names: Sequence[str]) -> str:
    return f"{_list(names)} {_is(names)} missing"


def _updated(name: str, records: Sequence[Made]) -> str:
    if records and not any(name in record.inputs for record in records):
        return f"its input {name} is another one than before"
    if name.startswith("cort/") and name.endswith(".py"):
        return f"{name} was edited"
    return f"its input {name} has other content"


def _other_inputs(job: Job, records: Sequence[Made]) -> str:
    before = {name for record in records for name in record.inputs}
    gained = [name for name in job.inputs if name not in before]
    lost = sorted(before - set(job.inputs))
    words = [f"{_list(gained)} came to its inputs"] if gained else []
    words += [f"{_list(lost)} left its inputs"] if lost else []
    return ", ".join(words) or "the list of its inputs changed"


def _follows(job: Job, reasons: Mapping[str, str], makers: Mapping[str, str]) -> Iterator[str]:
    names = named_in(reasons.get("Input files updated by another job", ""), job.inputs)
    yield from dict.fromkeys(makers[name] for name in names if name in makers)


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown


def render(run: DryRun, explanations: Sequence[Explanation], targets: Sequence[str]) -> str:
    """Write the explanations for a person, what changed first.

    :param targets: what was asked for; empty for the whole experiment.
    """
    if not explanations:
        return _nothing(run, targets)
    lines = ["1 job would run." if len(explanations) == 1 else f"{len(explanations)} jobs would run."]
    groups: dict[tuple[str, ...], list[Explanation]] = {}
    for each in explanations:
        if each.causes:
            reasons = each.causes if each.causes == (UNMADE,) else (*each.causes, *each.follows)
            groups.setdefault((each.job.rule, *reasons), []).append(each)
    if groups:
        lines += ["", "What changed or is not there:", *map(_paragraph, groups.values())]
    others = [each for each in explanations if not each.causes]
    if others:
        lines += ["", "What follows, as its input is made again:", *(_paragraph([each]) for each in others)]
    return "\n".join(lines) + "\n"


def _nothing(run: DryRun, targets: Sequence[str]) -> str:
    scope = f"{_list(targets)} {_is(targets)}" if targets else f"all {len(run.made)} files of the experiment are"
    gone = [name for name, made in run.made.items() if not made.exists]
    if targets or not gone:
        return f"Nothing would run: {scope} up to date.\n"
    # Snakemake makes nothing for its own sake.
    return (
        f"Nothing would run: all that is asked for is up to date. {_list(gone)} {_is(gone)} missing, but all that was "
        "made from it is there; name it as TARGET, or make it with snakemake, if you need it.\n"
    )


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _paragraph(alike: Sequence[Explanation]) -> str:
    """Write the jobs of one rule that have the same reasons."""
    first = alike[0]
    names = ", ".join(each.job.name.removeprefix(first.job.rule).strip() for each in alike)
    reasons = list(first.causes)
    if first.causes != (UNMADE,):
        reasons += [f"after {_list(first.follows) or 'a job before it'}"] if first.follows or not reasons else []
    return textwrap.fill(
        f"{first.job.rule} {names}".strip() + f": {'; '.join(reasons)}",
        WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
