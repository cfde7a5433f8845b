"""Check what keys declare about their values and only the whole config tells: whose names they take, and measures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cort.evaluation.names import KNOWN, parse_measure
from cort.experiment.keys import Experiment
from cort.runtime.errors import check_name
from cort.runtime.keys import part_of
from cort.settings.config import Config


def check_rules(config: Config) -> Iterator[str]:
    """Yield a line for each mistake in a config of the right shape."""
    return _check_keys("", config, Experiment, config)


def _check_keys(place: str, values: Config, hint: Any, config: Config) -> Iterator[str]:
    for name, value in values.items():
        inside, key = f"{place}.{name}".lstrip("."), part_of(hint, name)
        if isinstance(value, dict):
            yield from _check_keys(inside, value, key.hint, config)
            continue
        for one in _texts(value):
            if "names" in key.rules:
                yield from check_name(inside, one, config[key.rules["names"]])
            if "measures" in key.rules and parse_measure(one) is None and one != key.default:
                yield f"{inside}: found {one!r}, expected one of {KNOWN}; fix it"


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value, a list of them, or a list of pairs."""
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
