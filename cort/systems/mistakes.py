"""Checks of names, measures and numbers that several parts of a config share; each yields a line per mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from cort.evaluation.names import KNOWN, parse_measure
from cort.settings.config import Config


def check_measures(place: str, names: list[str]) -> Iterator[str]:
    """Refuse measures that do not exist or are named twice."""
    for name in names:
        if parse_measure(name) is None:
            yield f"{place}: found {name!r}, expected one of {KNOWN}; fix it"
    yield from check_once(place, names, "measure")


def check_once(place: str, names: Iterable[str], noun: str) -> Iterator[str]:
    """Refuse repeated names."""
    for name, times in Counter(names).items():
        if times > 1:
            yield f"{place}: found {name} {times} times, expected each {noun} once; remove one"


def check_increasing(place: str, numbers: list[float]) -> Iterator[str]:
    """Refuse numbers that do not increase."""
    if numbers != sorted(set(numbers)):
        yield f"{place}: found {numbers}, expected increasing numbers; sort them"


def check_tuning(place: str, measure: str, config: Config) -> Iterator[str]:
    """Check that weights can be tuned: by a known measure, on validation queries, with runs that are deep enough."""
    yield from check_measures(place, [measure])
    if "validation" not in config["splits"]:
        yield f"{place}: found no split validation, expected validation queries to tune on; add the split"
    depth, training_depth = config["depth"], config["training_depth"]
    if training_depth > depth:
        yield (
            f"{place}: found training_depth {training_depth}, expected at most depth ({depth}), which runs of "
            "validation have with it; lower training_depth or raise depth"
        )
