"""Checks of names, measures and numbers that several parts of a config share; each yields a line per mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from cort.evaluation.names import KNOWN, parse_measure
from cort.settings.config import Config, evaluated_splits


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


def check_tuning(place: str, tune: Any, config: Config) -> Iterator[str]:
    """Check that something can be tuned: by a known measure, on queries with judgements, with runs deep enough.

    :param tune: a measure for validation queries, or settings for training queries or folds; None if nothing is tuned.
    """
    if not isinstance(tune, str):
        yield from check_measures(f"{place}.measure", [tune["measure"]] if tune else [])
        if tune and "folds" not in tune and "train" not in config["splits"]:
            yield f"{place}: found no split train, expected training queries to tune on; add the split"
        if tune and "folds" in tune and not evaluated_splits(config):
            yield f"{place}: found no split with judgements, expected one to tune on by folds; add qrels"
        return
    yield from check_measures(place, [tune])
    if "validation" not in config["splits"]:
        yield f"{place}: found no split validation, expected validation queries to tune on; add the split"
    depth, training_depth = config["depth"], config["training_depth"]
    if training_depth > depth:
        yield (
            f"{place}: found training_depth {training_depth}, expected at most depth ({depth}), which runs of "
            "validation have with it; lower training_depth or raise depth"
        )
