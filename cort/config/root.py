"""An experiment's config as objects, with the entries of all classes of systems."""

from __future__ import annotations

import typing
from typing import Any

from pydantic import Field

from cort.config.entries import Config
from cort.config.fields import SystemName
from cort.config.top_level import TopLevel
from cort.runtime.sections import SPEED, choices_of, hint_of, keys_of, notes_on, sections_of
from cort.systems.registry import AnySystem


class Root(TopLevel):
    """Everything that determines the results of one experiment.

    Defaults are the CoRT paper's where it gives a value; docs/reproduction.md lists the exceptions.
    """

    systems: dict[SystemName, AnySystem] = Field(min_length=1)
    """What is evaluated, by name; each system has one run per split, and exactly one of `retrieve`, `interleave`,
    `fuse`, `rerank` and `run`."""


def affecting_results(config: Config) -> Config:
    """Copy the settings that affect results, not only speed or safety."""
    copied: Config = _without_speed(config, [Root])
    return copied


def _without_speed(values: Any, choices: list[Any]) -> Any:
    if not isinstance(values, dict):
        return values
    keys = {name: hint_of(field) for one in sections_of(choices) for name, field in keys_of(one).items()}
    (entry,) = [typing.get_args(one)[1] for one in choices if typing.get_origin(one) is dict][:1] or [Any]
    hints = {name: keys.get(name, entry) for name in values}
    return {
        name: _without_speed(value, choices_of(hints[name]))
        for name, value in values.items()
        if SPEED not in notes_on(hints[name])
    }
