"""The settings of results, with all defaults, as stored with them: experiment.yaml.

File names follow from the settings, so a folder of results can be moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from pathlib import Path

from pydantic import ValidationError

from cort.config import paths
from cort.config.entries import LEARNERS, Config, leaves
from cort.config.experiment import Experiment
from cort.config.root import Root, affecting_results
from cort.formats.yaml_files import read_yaml, write_yaml
from cort.runtime.errors import input_error, shorten
from cort.runtime.mistakes import mistakes_of
from cort.runtime.sections import required_of
from cort.systems.base import System

NAME = Path(paths.EXPERIMENT).name
HEAD = "# The settings that made these results, with all defaults. Change the config, not this file.\n"
EXPECTED, WRITTEN = "the settings of built results", "what this version of the program writes"
REMEDY = "run `snakemake` again"


def write_experiment(path: str | Path, config: Config) -> None:
    """Write the settings atomically."""
    write_yaml(path, config, HEAD)


def read_experiment(path: str | Path) -> Experiment:
    """Read the settings of the results in the folder of a file.

    :raises InputError: if there is no such file, or it has a mistake.
    """
    path = Path(path)
    if not path.is_file():
        raise input_error(path, "no such file", EXPECTED, "run `snakemake` first")
    config = read_yaml(path, EXPECTED)
    _refuse_missing(path, {"shards", *required_of(Root)} - config.keys())
    try:
        experiment = Experiment.of(config, path.parent)
    except ValidationError as error:
        place, text = next(mistakes_of(error, config, Root))
        found = text.removeprefix("found ").partition(", expected")[0]
        raise input_error(f"{path}: {'.'.join(place)}", found, WRITTEN, REMEDY) from error
    # Where a key is missing, its default may be another one than that of the results.
    _refuse_missing(path, dict(leaves(affecting_results(experiment.config))).keys() - dict(leaves(config)).keys())
    return experiment


def _refuse_missing(path: Path, keys: Set[str]) -> None:
    if keys:
        raise input_error(path, f"no key {shorten(min(keys))}", WRITTEN, REMEDY)


def read_needed(settings: Config) -> Experiment:
    """Return the experiment of what `needed_for` selects."""
    # Searching needs no source of the passages, which a collection has.
    return Experiment.of({**settings, "collection": {"passages": paths.PASSAGES, **settings["collection"]}})


def needed_for(experiment: Experiment, names: Iterable[str]) -> Config:
    """Select the settings that searching with these systems needs."""
    config, systems = experiment.config, {name: experiment.systems[name] for name in experiment.with_parts(names)}
    models = {model for system in systems.values() for model in system.models()}
    lexical = {system.lexical_index() for system in systems.values()}
    chosen: Config = {
        section: {name: model for name, model in config[section].items() if (section, name) in models}
        for section in LEARNERS
    }
    bases = {model.get("base_model") for section in chosen.values() for model in section.values()}
    return {
        "dataset": config["dataset"],
        "shards": config["shards"],
        "depth": config["depth"],
        "collection": {"aggregate": config["collection"]["aggregate"]},
        # Audits on the queries of a split may choose the search width of an index.
        "splits": {
            name: {key: split[key] for key in ("queries", "qrels") if key in split}
            for name, split in config["splits"].items()
        },
        "lexical": {name: index for name, index in config["lexical"].items() if name in lexical},
        "base_models": {name: base for name, base in config["base_models"].items() if name in bases},
        **chosen,
        "systems": {name: without_label(config["systems"][name]) for name in systems},
    }


def without_label(entry: Config) -> Config:
    """Leave out what searching does not depend on."""
    return {key: value for key, value in entry.items() if key != "label"}


def open_systems(experiment: Experiment, names: Iterable[str]) -> dict[str, System]:
    """Return systems and all that they are made from, by name.

    :raises InputError: for a name that is not that of a searchable system.
    """
    known = experiment.searchable
    for name in names:
        if name not in known:
            expected = f"one of {', '.join(known) or '(there is none)'}"
            raise input_error("--systems", shorten(name), expected, "name one of these")
    return {name: experiment.systems[name] for name in experiment.with_parts(names)}


def typical_systems(experiment: Experiment) -> list[str]:
    """Choose the first BM25, dense and fused systems that can be searched, where there are any."""
    systems = {name: experiment.systems[name] for name in experiment.searchable}
    lexical = [name for name, system in systems.items() if system.lexical_index()]
    dense = [name for name, system in systems.items() if name not in lexical and not system.parts()]
    fused = [name for name, system in systems.items() if system.merges]
    return [names[0] for names in (lexical, dense, fused) if names] or list(systems)[:1]
