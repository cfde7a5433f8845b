"""Say which settings changed between two commands of one stage, in the words of the config."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from workflow.experiment.config import GRAPHS, TRAINING_SPLITS, Config
from workflow.planning.dryrun import Job, Made

# These change speed or name files: Snakemake reruns nothing for them.
NO_SETTINGS = (
    "threads",
    "memory-mb",
    "log",
    "folder",
    "downloads",
    "processes",
    "checkpoints",
    "checkpoint-every",
    "gpus",
)
SECTIONS = ("encoders", "rerankers", "base_models", "systems", "splits")
# Rules whose settings stand in one part of an entry, or in one section.
PARTS = {
    "train": "training",
    "train_reranker": "training",
    "triples": "triples",
    "pairs": "pairs",
    "onng": "onng",
    "retrieve_onng": "onng",
    "hnsw": "hnsw",
    "retrieve_hnsw": "hnsw",
    "audit": "audit",
    "bm25": "bm25",
    "bm25_tune": "bm25.tune",
    "pydocs": "collection.pydocs",
    "evaluate": "evaluation",
    "depths": "evaluation",
    "disagreements": "evaluation",
    "consistency": "evaluation.consistency",
    "compare": "evaluation",
    "report": "evaluation",
    "latency": "latency",
}
# Options of another name than their key.
KEYS = {
    ("audit", "sample"): "audit.queries",
    ("audit", "measures"): "evaluation.measures",
    ("depths", "measures"): "evaluation.depth_measures",
    ("disagreements", "number"): "evaluation.number_of_disagreements",
    ("disagreements", "first_name"): "evaluation.disagreements",
    ("disagreements", "second_name"): "evaluation.disagreements",
    ("consistency", "reference_name"): "evaluation.consistency.reference",
    ("reproduction", "title"): "title",
    ("report", "title"): "title",
    ("latency", "number"): "latency.queries",
    ("manifest", "systems"): "systems",
    ("manifest", "encoders"): "encoders",
    ("manifest", "rerankers"): "rerankers",
    ("manifest", "bm25_cleaning"): "bm25.cleaning",
    ("report", "description_of_systems"): "systems",
}
LONGEST = 60
SHOWN = 3


def changed_settings(job: Job, records: Sequence[Made], config: Config, text: str | None = None) -> Iterator[str]:
    """Yield a few words for every setting of a job that is not as it was.

    :param records: the last run of the job's outputs.
    :param text: Snakemake's own words on the change: a value it does not name did not cause the rerun, and there is one
        at least; None where it did not look.
    """
    found = False
    for command in dict.fromkeys(record.command for record in records):
        before, now = parse_command(command), parse_command(job.shell)
        for option in [*now, *(name for name in before if name not in now)]:
            old, new = before.get(option), now.get(option)
            if old != new and option not in NO_SETTINGS and _counts(old, new, text):
                found = True
                yield _describe(setting_of(config, job, option), old, new)
    if text is not None and not found:
        yield _in_their_words(text)


def parse_command(command: str) -> dict[str, list[str]]:
    """Read the long options of a command line, each with its values."""
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for word in shlex.split(command):
        if word.startswith("--"):
            values = found.setdefault(word[2:], [])
        else:
            values.append(word)
    return found


def setting_of(config: Config, job: Job, option: str) -> str:
    """Find the place of an option in the config, as "encoders.cort.training.epochs"; else the option's own name."""
    name = option.replace("-", "_")
    if (job.rule, name) in KEYS:
        return KEYS[job.rule, name]
    if (job.rule, name) == ("audit", "widths"):
        return f"audit.{GRAPHS[job.wildcards['index']].widths}"
    if (job.rule, name) == ("evaluate", "measures"):
        # A split without measures of its own has those of all.
        place, general = f"splits.{job.wildcards.get('split')}", config.get("evaluation", {}).get("measures")
        own = config.get("splits", {}).get(job.wildcards.get("split"), {}).get("measures", general)
        return "evaluation.measures" if own == general else f"{place}.measures"
    if name == "depth" and job.wildcards.get("split") in TRAINING_SPLITS and job.rule != "score":
        return "training_depth"
    part = PARTS.get(job.rule, "")
    entries = [f"{section}.{job.wildcards[section[:-1]]}." for section in SECTIONS if section[:-1] in job.wildcards]
    # The entry the job is about, and in it the part its rule is about, say more than a key elsewhere.
    places = sorted(
        (place for place in _places(config) if place.rpartition(".")[2] == name),
        key=lambda place: (bool(part) and part not in place.rpartition(".")[0], place.count(".")),
    )
    own = [place for place in places if place.startswith(tuple(entries))]
    general = [place for place in places if place.split(".")[0] not in SECTIONS]
    only = places if len(places) == 1 else []
    return next(iter([*own, *general, *only]), name)


def _places(value: Any, place: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{place}{key}"
            yield from _places(inner, f"{place}{key}.")


def _counts(old: list[str] | None, new: list[str] | None, text: str | None) -> bool:
    """Tell whether a changed option is a setting: named by Snakemake, or, where it did not look, no file of ours."""
    changed = [value for value in [*(old or []), *(new or [])] if value not in (old or []) or value not in (new or [])]
    if text is None:
        return not changed or not all("results/" in value for value in changed)
    # Snakemake prints values as Python does.
    return any(repr(value)[1:-1] in text for value in changed or new or [])


def _in_their_words(text: str) -> str:
    values = re.search(r"before: (.*?) ?now: (.*)", text)
    if values is None:
        return "its settings changed"
    old, new = (_shorten(value.strip().replace("<nothing exclusive>", "nothing")) for value in values.groups())
    return f"its settings changed: {old} -> {new}"


def _describe(setting: str, old: list[str] | None, new: list[str] | None) -> str:
    if old is None or new is None:
        return f"the setting {_compare(setting, old and ' '.join(old), new and ' '.join(new))}"
    if len(old) == len(new) == 1:
        before, after = _as_mapping(old[0]), _as_mapping(new[0])
        if before is None or after is None:
            return f"the setting {_compare(setting, old[0], new[0])}"
        # What provenance records is the config itself.
        changes = list(_differences(before, after, "" if setting == "config" else f"{setting}."))
        words = [f"the setting {change}" for change in changes[:SHOWN]]
        return "; ".join([*words, *([f"{len(changes) - SHOWN} more changed"] if len(changes) > SHOWN else [])])
    lost, gained = ([value for value in one if value not in other] for one, other in ((old, new), (new, old)))
    if not lost and not gained:
        return f"the order of {setting} changed: {_shorten(' '.join(new))}"
    words = [f"without {_shorten(' '.join(lost))}"] if lost else []
    words += [f"with {_shorten(' '.join(gained))}"] if gained else []
    return f"the setting {setting} changed: now {', '.join(words)}"


def _as_mapping(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _differences(before: dict[str, Any], after: dict[str, Any], place: str) -> Iterator[str]:
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{place}{key}.")
        elif old != new:
            yield _compare(f"{place}{key}", old, new)


def _compare(name: str, old: object, new: object) -> str:
    """Say what became of a value; None is one that is not there."""
    if old is not None and new is not None:
        return f"{name} changed: {_shorten(str(old))} -> {_shorten(str(new))}"
    value, change = (new, "is new") if old is None else (old, "is gone")
    return f"{name} {change}" + (f": {_shorten(str(value))}" if value and not isinstance(value, dict) else "")


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
