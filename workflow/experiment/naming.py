"""Names in an experiment's config: which there are, and how a message speaks of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from workflow.experiment.config import Config

# As cort/evaluation/measures.py knows them.
MEASURES = "RR, RR@k, nDCG, nDCG@k, R@k, AP, AP@k, P@k and Success@k"
MEASURE = re.compile(r"(RR|nDCG|AP|(RR|nDCG|AP|R|P|Success)@[1-9][0-9]{0,8})")


def entries(config: Config, section: str) -> list[tuple[str, Config]]:
    """List the parts of a section that have the right shape, with their names."""
    return [(name, entry) for name, entry in config[section].items() if entry is not None]


def check_measures(place: str, names: list[str]) -> Iterator[str]:
    """Refuse measures that do not exist, or stand there twice."""
    for name in dict.fromkeys(names):
        if not MEASURE.fullmatch(name):
            yield f"{place}: found {name!r}, expected one of {MEASURES}; fix it"
    yield from check_once(place, names, "measure")


def check_once(place: str, names: Iterable[str], what: str) -> Iterator[str]:
    """Refuse names that stand there twice."""
    for name, times in Counter(names).items():
        if times > 1:
            yield f"{place}: found {name} {times} times, expected each {what} once; remove one"


def check_growing(place: str, numbers: list[float]) -> Iterator[str]:
    """Refuse numbers that do not grow."""
    if numbers != sorted(set(numbers)):
        yield f"{place}: found {numbers}, expected growing numbers; sort them"


def listed(names: Iterable[str], nothing: str = "nothing") -> str:
    """Join names for a message."""
    return ", ".join(names) or nothing
