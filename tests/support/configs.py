"""The tiny experiment with changes, and what is said of its mistakes."""

import copy
from pathlib import Path

import pytest

from cort.experiment.checks import ConfigError, complete
from cort.experiment.experiment import Experiment
from cort.experiment.keys import Experiment as Keys
from cort.runtime.keys import keys_of, part_of
from tests.tiny.generate import make_config

GONE = object()
#: of a split
FILES = {"queries": "q.tsv", "qrels": "r.tsv"}


def changed(changes):
    """Return the tiny experiment with values set or removed (`GONE`) at paths like "encoders encoder pooling"."""
    config = copy.deepcopy(make_config(Path("data")))
    for path, value in changes.items():
        *parents, last = path.split()
        place = config
        for key in parents:
            place = place.setdefault(key, {})
        if value is GONE:
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    return config


def completed(changes=None):
    """Return the changed experiment with all defaults."""
    return complete(changed(changes or {}), "tiny.yaml")


def built(changes=None):
    """Return the object of the changed experiment."""
    return Experiment(completed(changes))


def complaints(changes):
    """List the lines about a changed experiment, without its name."""
    return mistakes_in(changed(changes))


def mistakes_in(config):
    """List the lines about an experiment, without its name."""
    with pytest.raises(ConfigError) as caught:
        complete(config, "tiny.yaml")
    lines = str(caught.value).split("\n")
    assert all(line.startswith("tiny.yaml: ") for line in lines)
    return [line.removeprefix("tiny.yaml: ") for line in lines]


def reversed_keys(values, hint=Keys):
    """Copy a config with the keys of its sections from last to first; entries, whose order is that of tables, stay."""
    if not isinstance(values, dict):
        return values
    has_entries = not keys_of(hint) and keys_of(part_of(hint, "").hint)
    names = values if has_entries else reversed(values)
    return {name: reversed_keys(values[name], part_of(hint, name).hint) for name in names}
