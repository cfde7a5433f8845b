"""The tiny experiment with changes, and what is said of its mistakes."""

import copy
import typing
from pathlib import Path

import pytest

from cort.config.experiment import Experiment
from cort.config.load import ConfigError, complete
from cort.config.root import Root
from tests.tiny.generate import make_config

GONE = object()
#: of a split
FILES = {"queries": "q.tsv", "qrels": "r.tsv"}


def changed(changes):
    """Return the tiny experiment with values set or removed (`GONE`) at paths like "encoders encoder pooling"."""
    return put_in(make_config(Path("data")), changes)


def put_in(config, changes):
    """Return a copy of a config with values set or removed (`GONE`) at paths like "encoders encoder pooling"."""
    config = copy.deepcopy(config)
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
    return built(changes).config


def built(changes=None):
    """Return the object of the changed experiment."""
    return complete(changed(changes or {}), "tiny.yaml")


def adjusted(experiment, changes):
    """Return an experiment with other settings, which nobody checks."""
    return Experiment.of(put_in(experiment.config, changes), experiment.folder)


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


def reversed_keys(config):
    """Copy a config with the keys of its sections from last to first; entries, whose order is that of tables, stay."""
    named = {name for name, field in Root.model_fields.items() if typing.get_origin(field.annotation) is dict}
    return {
        name: {entry: _reversed(keys) for entry, keys in value.items()}
        if name in named and isinstance(value, dict)
        else _reversed(value)
        for name, value in reversed(config.items())
    }


def _reversed(value):
    return {key: _reversed(value[key]) for key in reversed(value)} if isinstance(value, dict) else value
