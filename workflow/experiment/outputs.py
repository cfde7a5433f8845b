"""What an experiment makes for readers outside: files to hand in, consistency factors, comparisons with papers.

Names of these files, and the checks of what the config says of them. Models, too, leave the house.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from workflow.experiment.config import LEARNERS, Config, ranked_splits, splits_of

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
    for name, times in Counter(config["exports"] or []).items():
        if name not in known:
            models = ", ".join(known) or "(none is defined)"
            yield f"exports: found {name!r}, expected one of {models}; add it or fix the name"
        elif name not in used and systems == sound["systems"]:
            yield f"exports: found {name!r}, which no system uses, expected a model that is evaluated; add a system"
        if times > 1:
            yield f"exports: found {name} {times} times, expected each model once; remove one"


def _check_submission(place: str, name: str, one: Config, config: Config, sound: Config) -> Iterator[str]:
    splits = ranked_splits(config)
    if one["split"] not in splits:
        yield f"{place}.split: found {one['split']!r}, expected one of {', '.join(splits)}; fix the name"
    elif one["system"] in config["systems"] and one["split"] not in splits_of(sound, one["system"]):
        yield (
            f"{place}: found {one['system']!r}, which has no run on {one['split']}, expected one that has; "
            "add its run file or name another"
        )
    yield from _check_system(f"{place}.system", one["system"], config)
    if one["form"] == "msmarco" and "run_id" in one:
        yield f"{place}.run_id: found run_id with the form msmarco, expected it with trec; remove it"
    if one["form"] == "trec" and "run_id" not in one and not RUN_ID.fullmatch(name):
        yield f"{place}: found no run_id, expected one, as the name has other than letters, digits, - and _; add it"
    if config["depth"] > MOST:
        yield f"depth: found {config['depth']}, expected at most {MOST} with {place}; lower it or remove the submission"


def _check_consistency(place: str, one: Config, config: Config, sound: Config) -> Iterator[str]:
    named = [("reference", one["reference"]), *(("systems", name) for name in one["systems"])]
    for key, name in named:
        yield from _check_system(f"{place}.{key}", name, config)
    shared = set(splits_of(sound, one["reference"])) if one["reference"] in config["systems"] else set()
    for name in one["systems"]:
        if name in config["systems"] and shared and not shared & set(splits_of(sound, name)):
            yield f"{place}.systems: found {name}, which shares no split with {one['reference']}; name another"
    if one["depths"] != sorted(set(one["depths"])):
        yield f"{place}.depths: found {one['depths']}, expected growing numbers; sort them"


def _check_system(place: str, name: str, config: Config) -> Iterator[str]:
    if name not in config["systems"]:
        yield f"{place}: found {name!r}, expected one of {', '.join(config['systems'])}; add it or fix the name"
