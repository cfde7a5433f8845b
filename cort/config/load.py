"""Check an experiment's config before anything runs, report all mistakes at once, and fill in defaults.

Each mistake is a line that says where, what was found, what was expected and what to do. This module checks the shape
by the sections (`Root`), with the keys of each entry's variant; and if that is right, with defaults, how parts refer to
each other (`cort/config/checks`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cort.config.checks import check_conflicts, check_references
from cort.config.entries import BM25, LEARNERS, Config
from cort.config.experiment import Experiment
from cort.config.recipes import with_recipes
from cort.config.root import Root
from cort.formats.yaml_files import read_yaml, separate
from cort.runtime.errors import InputError, check_name
from cort.runtime.mistakes import lines_of, mistakes_in


class ConfigError(ValueError):
    """Every mistake of a config, a line each."""


def load(path: str | Path) -> Experiment:
    """Read an experiment file as the workflow does: checked, with all defaults.

    :raises ConfigError: as `read` and `complete` do.
    """
    return complete(read(path), str(path))


def read(path: str | Path) -> Config:
    """Read an experiment file as written.

    :raises ConfigError: for a file that is missing, is not YAML, or whose meaning in YAML is not what it looks like.
    """
    try:
        return read_yaml(path, "an experiment")
    except InputError as error:
        raise ConfigError(str(error)) from error


def complete(config: Config, source: str) -> Experiment:
    """Return the experiment of a config, checked and with all defaults; the order of keys means nothing.

    :param source: where it came from, named in errors.
    :raises ConfigError: with a line per mistake.
    """
    config = separate(extended(config, source))
    _refuse(source, lines_of(mistakes_in(config, Root)))
    _refuse(source, check_conflicts(config))
    experiment = Experiment(filled(config))
    _refuse(source, check_references(experiment))
    return experiment


def extended(config: Config, source: str) -> Config:
    """Add the sections of the config that this one extends, except those that it has itself.

    Of a section that is a list of names here, these entries are taken; one that is null here is left out.

    :raises ConfigError: if that file is missing, or extends another one, or has no such section or entry.
    """
    if "extends" not in config:
        return config
    path = config["extends"]
    if not isinstance(path, str) or not path:
        raise ConfigError(f"{source}: extends: found {path!r}, expected the path of an experiment; name one file")
    base, own = read(path), dict(config)
    if "extends" in base:
        raise ConfigError(f"{source}: extends: found {path}, which extends another, expected a whole one; name that")
    mistakes = []
    for section, names in config.items():
        known = base.get(section)
        if names is None and section not in base:
            expected, fix = f"one of {path}, which is then left out", "fix the name, or remove the key"
            mistakes.append(f"{source}: found the key {section} without a value, expected {expected}; {fix}")
        if isinstance(names, list) and isinstance(known, dict):
            mistakes += (f"{source}: {line}" for name in names for line in check_name(section, str(name), known))
            own[section] = {name: known[name] for name in map(str, names) if name in known}
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return {key: value for key, value in (base | own).items() if key != "extends" and value is not None}


def _refuse(source: str, mistakes: Iterable[str]) -> None:
    """Raise an error with all mistakes, if there are any, each once and sorted by place."""
    lines = sorted(set(mistakes), key=lambda line: (line.split(": found")[0], line))
    if lines:
        raise ConfigError("\n".join(f"{source}: {line}" for line in lines))


def filled(config: Config) -> Root:
    """Return the experiment with recipes, and the defaults that depend on other keys; it changes `config`."""
    _pass_once(config)
    _divide(config)
    # Every experiment has it.
    config.setdefault("lexical", {}).setdefault(BM25, {})
    for expander in config.get("expanders", {}).values():
        if "beams" in expander:
            expander.setdefault("queries", expander["beams"])
    return Root.model_validate(with_recipes(config))


def _pass_once(config: Config) -> None:
    """Set the epochs of trainings on a file of triples to 1, in place, unless the config sets them.

    Other trainings draw new negatives in every epoch; a file has millions of triples, the same in every epoch.
    """
    for section, source in LEARNERS.items():
        for model in config.get(section, {}).values():
            if "file" in model.get(source, {}):
                model.setdefault("training", {}).setdefault("epochs", 1)


def _divide(config: Config) -> None:
    """Divide documents of a file or folder into passages, in place, also where the config does not say how."""
    collection = config["collection"]
    if collection.keys() & {"documents", "folder"}:
        collection.setdefault("passages", {})
    if "folder" in collection:
        collection.setdefault("fields", {})
    # Judgements of documents name these.
    if isinstance(collection.get("passages"), dict):
        collection.setdefault("aggregate", "max")
