"""Explain why jobs would run: first what changed, then what follows from it.

Usage: python -m workflow.why [TARGET ...] [--configfile config/pydocs.yaml] [-- further options of snakemake]
"""

from __future__ import annotations

import ast
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cort.config.load import ConfigError, load
from workflow.command_line import columns, new_parser, part_arguments
from workflow.snakemake_api import Job, PlanError, plan

FILES, WIDTH = 3, columns(100)
# Most differences of a kind, and characters of a value, that are shown.
SHOWN, LONGEST = 5, 60
UNMADE, UNRECORDED = "not made yet", "how it was made is not recorded"
COPIED = (
    "Snakemake has no record, in .snakemake, of how existing files were made. If results were copied from another "
    "folder, copy its .snakemake, too, or accept them (docs/operations.md, Moving results)."
)


class Params(NamedTuple):
    """Params of a job: values of each option, hashes of code by file, and the reprs of other params."""

    options: dict[str, list[str]]
    code: dict[str, str]
    others: list[str]


def main(argv: list[str] | None = None) -> int:
    """Explain the targets or the whole experiment; return the exit status."""
    own, further = part_arguments(argv)
    parser = new_parser("why", __doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="files or rules; default: the whole experiment")
    args = parser.parse_args(own)
    try:
        load(args.configfile)
        jobs, _ = plan([*args.targets, "--configfile", args.configfile, *further])
    except (ConfigError, PlanError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(render(jobs, args.targets, Path.cwd()))
    return 0


def render(jobs: Sequence[Job], targets: Sequence[str], folder: Path) -> str:
    """Explain the jobs of some targets, or of the whole experiment if there are none."""
    waiting = [job for job in jobs if job.planned]
    if not waiting:
        return _nothing(jobs, targets, folder)
    makers = {name: job.name for job in waiting for name in job.outputs}
    # Jobs of a rule with the same reasons share a paragraph.
    groups: dict[tuple[str, ...], list[Job]] = {}
    others = []
    for job in waiting:
        causes, remade = list(_causes_of(job)), job.reason.updated_input_run
        before = dict.fromkeys(makers[name] for name in job.inputs if name in remade and name in makers)
        after = f"after {_list(list(before)) or 'a job before it'}"
        if remade and not causes:
            others.append(_paragraph([job], [after]))
        else:
            causes = causes or [str(job.reason)]
            reasons = [*causes, after] if before and causes != [UNMADE] else causes
            groups.setdefault((job.rule, *reasons), []).append(job)
    first = [_paragraph(alike, reasons) for (_, *reasons), alike in groups.items()]
    lines = ["1 job would run." if len(waiting) == 1 else f"{len(waiting)} jobs would run."]
    unrecorded = any(UNRECORDED in reasons for _, *reasons in groups)
    lines += ["", *textwrap.wrap(COPIED, WIDTH)] if unrecorded else []
    lines += ["", "Changed or missing:", *first] if first else []
    lines += ["", "Follows, because an input is rebuilt:", *others] if others else []
    return "\n".join(lines) + "\n"


def _causes_of(job: Job) -> Iterator[str]:
    """Yield what changed for a job, apart from inputs that other jobs rebuild."""
    reason, record = job.reason, job.record
    if reason.forced:
        yield "it is forced to run"
    if missing := sorted(reason.missing_output):
        yield f"{_are(missing)} missing" if record else UNMADE
    if incomplete := sorted(reason.incomplete_output):
        yield f"its last run was interrupted and left {_list(incomplete)} incomplete"
    updated = sorted(reason.updated_input)
    if updated and not missing and not record:
        # Only the times of files are known.
        yield UNRECORDED
        updated = []
    for name in updated:
        another = record and name not in record.input
        yield f"its input {name} {'replaces another file' if another else 'has other content'}"
    if reason.input_changed and record:
        lost, gained = _exclusive(sorted(record.input), job.inputs)
        words = [f"{_list(names)} {verb} its inputs" for names, verb in ((gained, "came to"), (lost, "left")) if names]
        yield ", ".join(words) or "the list of its inputs changed"
    # If an input is rebuilt, Snakemake does not compare params, but the user wants to know every change.
    differences = list(changed(record.params, job.params)) if record and record.params is not None else []
    yield from differences or (["its params changed"] if reason.params_changed else [])
    if reason.code_changed:
        yield f"the command in its rule ({job.rule}, under workflow/rules/) was edited"


def _nothing(jobs: Sequence[Job], targets: Sequence[str], folder: Path) -> str:
    files = [name for job in jobs for name in job.outputs]
    gone = [name for name in files if not (folder / name).exists()]
    if targets or not gone:
        scope = _are(targets) if targets else f"all {len(files)} files of the experiment are"
        return f"Nothing would run: {scope} up to date.\n"
    # Snakemake does not rebuild intermediate files without need.
    word = "it" if len(gone) == 1 else "them"
    return (
        f"Nothing would run: all targets are up to date. {_are(gone)} missing, but everything made from {word} "
        f"exists; name {word} as TARGET, or build {word} with snakemake, if you need {word}.\n"
    )


def _paragraph(jobs: Sequence[Job], reasons: Sequence[str]) -> str:
    rule = jobs[0].rule
    names = ", ".join(job.name.removeprefix(rule).strip() for job in jobs)
    text = f"{rule} {names}".strip() + f": {'; '.join(reasons)}"
    return textwrap.fill(
        text, WIDTH, initial_indent="  ", subsequent_indent="      ", break_long_words=False, break_on_hyphens=False
    )


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:FILES])
    return f"{shown} and {len(names) - FILES} more" if len(names) > FILES else shown


def _are(names: Sequence[str]) -> str:
    return f"{_list(names)} {'is' if len(names) == 1 else 'are'}"


def changed(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """Describe the differences between recorded and planned params, given as reprs."""
    old, new = parse(before), parse(now)
    options = [words for name in {**new.options, **old.options} for words in _changed(name, old.options, new.options)]
    for words, kind in ((options, "settings"), (list(_edited(old.code, new.code)), "files of its code")):
        yield from words[:SHOWN]
        if len(words) > SHOWN:
            yield f"{len(words) - SHOWN} more {kind} changed"
    lost, gained = _exclusive(old.others, new.others)
    if lost or gained:
        yield f"its params changed: {_write(lost) or 'nothing'} -> {_write(gained) or 'nothing'}"


def parse(reprs: Sequence[str]) -> Params:
    """Sort params into options, code and others."""
    params = Params({}, {}, [])
    for text in reprs:
        if text.startswith("['--"):
            for word in ast.literal_eval(text):
                name, _, value = word.partition("=")
                params.options.setdefault(name, []).append(value)
        elif text.startswith("{") and ".py'" in text:
            params.code.update(ast.literal_eval(text))
        else:
            params.others.append(text)
    return params


def _changed(option: str, old: dict[str, list[str]], new: dict[str, list[str]]) -> Iterator[str]:
    """Describe the change of an option's values; of one that takes JSON, the changes in it."""
    before, now = old.get(option, []), new.get(option, [])
    if [value[:1] for value in (*before, *now)] == ["{", "{"]:
        yield from (f"{option}: {words}" for words in _differences(json.loads(before[0]), json.loads(now[0])))
        return
    words = [_write([f"{option}={value}" for value in values]) for values in (before, now)]
    lost, gained = (_write([f"{option}={value}" for value in values]) for values in _exclusive(before, now))
    if len(before) == len(now) == 1 and lost:
        yield f"{words[0]} -> {words[1]}"
    elif lost or gained:
        yield ", ".join(f"{word} {text}" for word, text in (("without", lost), ("with", gained)) if text)
    elif before != now:
        yield f"in the order {words[1]}"


def _edited(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for file in {**after, **before}:
        if file not in before:
            yield f"{file} is now part of its code"
        elif file not in after:
            yield f"{file} is no longer part of its code"
        elif before[file] != after[file]:
            yield f"{file} changed"


def _differences(before: dict[str, Any], after: dict[str, Any], place: str = "") -> Iterator[str]:
    for key in {**after, **before}:
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{place}{key}.")
        elif old != new:
            yield _describe(f"{place}{key}", old, new)


def _describe(setting: str, old: Any, new: Any) -> str:
    """Describe the change of a value; None is a missing value."""
    if old is None or new is None:
        value, change = (new, "is new") if old is None else (old, "is gone")
        return f"{setting} {change}" + ("" if isinstance(value, dict) else f": {_write(value)}")
    if not isinstance(old, list) or not isinstance(new, list):
        return f"{setting} changed: {_write(old)} -> {_write(new)}"
    lost, gained = _exclusive(old, new)
    words = [f"{word} {_write(values)}" for word, values in (("without", lost), ("with", gained)) if values]
    return f"{setting} changed: now {', '.join(words) or f'in the order {_write(new)}'}"


def _exclusive(old: Sequence[Any], new: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    return [value for value in old if value not in new], [value for value in new if value not in old]


def _write(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


if __name__ == "__main__":
    sys.exit(main())
