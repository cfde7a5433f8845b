"""Say in plain words why jobs would run: what changed first, then what follows from it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from workflow.planning.dryrun import DryRun, Job, Record
from workflow.planning.settings import changed

SHOWN = 3
WIDTH = 100
UNMADE = "not made yet"


def causes_of(job: Job) -> Iterator[str]:
    """Say what changed for a job alone, apart from inputs that other jobs make again."""
    reason, record = job.reason, job.record
    if reason.forced:
        yield "you asked for it to run in any case"
    if reason.missing:
        yield f"{_list(reason.missing)} {_is(reason.missing)} missing" if record else UNMADE
    if reason.incomplete:
        yield f"its last run was interrupted and left {_list(reason.incomplete)} incomplete"
    for name in reason.updated:
        another = record and name not in record.inputs
        yield f"its input {name} {'is another one than before' if another else 'has other content'}"
    if reason.inputs and record:
        yield _other_inputs(job, record)
    # Snakemake looks no further where an input is made again, but a person wants to know all that changed.
    differences = list(changed(record.params, job.params)) if record and record.params is not None else []
    yield from differences or (["its params changed"] if reason.params else [])
    if reason.command:
        yield f"the command in its rule ({job.rule}, under workflow/rules/) was edited"
    if reason.environment:
        yield "its environment (workflow/envs/) was edited"
    if reason.words:
        yield reason.words


def _other_inputs(job: Job, record: Record) -> str:
    gained = [name for name in job.inputs if name not in record.inputs]
    lost = sorted(set(record.inputs) - set(job.inputs))
    words = [f"{_list(gained)} came to its inputs"] if gained else []
    words += [f"{_list(lost)} left its inputs"] if lost else []
    return ", ".join(words) or "the list of its inputs changed"


def render(run: DryRun, targets: Sequence[str], folder: Path) -> str:
    """Explain a dry run to a person.

    :param targets: what was asked for; empty for the whole experiment.
    """
    if not run.jobs:
        return _nothing(run, targets, folder)
    makers = {name: job.name for job in run.jobs for name in job.outputs}
    # Jobs of one rule that changed for the same reasons are told together.
    groups: dict[tuple[str, ...], list[Job]] = {}
    others = []
    for job in run.jobs:
        reasons = list(causes_of(job))
        own = bool(reasons)
        remade = [makers[name] for name in job.inputs if name in job.reason.remade and name in makers]
        if reasons != [UNMADE] and (remade or not own):
            reasons.append(f"after {_list(list(dict.fromkeys(remade))) or 'a job before it'}")
        if own:
            groups.setdefault((job.rule, *reasons), []).append(job)
        else:
            others.append(_paragraph([job], reasons))
    lines = ["1 job would run." if len(run.jobs) == 1 else f"{len(run.jobs)} jobs would run."]
    if groups:
        paragraphs = [_paragraph(jobs, reasons) for (_, *reasons), jobs in groups.items()]
        lines += ["", "What changed or is not there:", *paragraphs]
    if others:
        lines += ["", "What follows, as its input is made again:", *others]
    return "\n".join(lines) + "\n"


def _nothing(run: DryRun, targets: Sequence[str], folder: Path) -> str:
    files = [name for job in run.done for name in job.outputs]
    scope = f"{_list(targets)} {_is(targets)}" if targets else f"all {len(files)} files of the experiment are"
    gone = [name for name in files if not (folder / name).exists()]
    if targets or not gone:
        return f"Nothing would run: {scope} up to date.\n"
    # Snakemake makes nothing for its own sake.
    return (
        f"Nothing would run: all that is asked for is up to date. {_list(gone)} {_is(gone)} missing, but all that was "
        "made from it is there; name it as TARGET, or make it with snakemake, if you need it.\n"
    )


def _paragraph(jobs: Sequence[Job], reasons: Sequence[str]) -> str:
    rule = jobs[0].rule
    names = ", ".join(job.name.removeprefix(rule).strip() for job in jobs)
    return textwrap.fill(
        f"{rule} {names}".strip() + f": {'; '.join(reasons)}",
        WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
