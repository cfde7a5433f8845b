"""Check what a config says of files for readers outside: submissions, consistency factors, exported models."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cort.formats.schemas import check_name
from workflow.experiment.config import LEARNERS, Config, ranked_splits, splits_of
from workflow.experiment.naming import check_growing, check_once

# As the stage `submission` will have them: here a mistake is found before anything is computed.
MOST = 1000
RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,25}")


def check_outputs(config: Config, sound: Config) -> Iterator[str]:
    """Yield a line for each mistake; nothing is said of an experiment that ranks nothing.

    :param config: with defaults; parts of a wrong shape are None.
    :param sound: the same, with systems that can be followed in the place of others.
    """
    if not ranked_splits(config):
        return
    for name, one in (config["submissions"] or {}).items():
        yield from _check_submission(f"submissions.{name}", name, one, config, sound)
    yield from _check_exports(config, sound)
    consistency = (config["evaluation"] or {}).get("consistency")
    if consistency is not None:
        yield from _check_consistency("evaluation.consistency", consistency, config, sound)


def _check_exports(config: Config, sound: Config) -> Iterator[str]:
    known = [name for section in LEARNERS for name in config[section]]
    systems = config["systems"]
    used = {system.get(key) for system in sound["systems"].values() for key, _ in LEARNERS.values()}
    for name in dict.fromkeys(config["exports"] or []):
        yield from check_name("exports", name, known)
        if name in known and name not in used and systems == sound["systems"]:
            yield f"exports: found {name!r}, which no system uses, expected a model that is evaluated; add a system"
    yield from check_once("exports", config["exports"] or [], "model")


def _check_submission(place: str, name: str, one: Config, config: Config, sound: Config) -> Iterator[str]:
    splits, system = ranked_splits(config), one["system"]
    yield from check_name(f"{place}.split", one["split"], splits)
    if one["split"] in splits and system in config["systems"] and one["split"] not in splits_of(sound, system):
        yield (
            f"{place}: found {system!r}, which has no run on {one['split']}, expected one that has; "
            "add its run file or name another"
        )
    yield from check_name(f"{place}.system", system, config["systems"])
    if one["form"] == "msmarco" and "run_id" in one:
        yield f"{place}.run_id: found run_id with the form msmarco, expected it with trec; remove it"
    if one["form"] == "trec" and "run_id" not in one and not RUN_ID.fullmatch(name):
        yield f"{place}: found no run_id, expected one, as the name has other than letters, digits, - and _; add it"
    if config["depth"] > MOST:
        yield f"depth: found {config['depth']}, expected at most {MOST} with {place}; lower it or remove the submission"


def _check_consistency(place: str, one: Config, config: Config, sound: Config) -> Iterator[str]:
    named = [("reference", one["reference"]), *(("systems", name) for name in one["systems"])]
    for key, name in named:
        yield from check_name(f"{place}.{key}", name, config["systems"])
    shared = set(splits_of(sound, one["reference"])) if one["reference"] in config["systems"] else set()
    for name in one["systems"]:
        if name in config["systems"] and shared and not shared & set(splits_of(sound, name)):
            yield f"{place}.systems: found {name}, which shares no split with {one['reference']}; name another"
    yield from check_growing(f"{place}.depths", one["depths"])
