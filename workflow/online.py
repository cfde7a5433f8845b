"""What a searcher needs, as the options of the stage `manifest` say it: from the config alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cort.experiment.config import searchable, with_parts
from cort.settings import paths
from cort.settings.config import Config, flat
from cort.systems.base import Results, Shards
from cort.systems.registry import system_of
from workflow.params import Words, option

# Section of the manifest -> section of the config, key of a system in the manifest that names a model of it.
MODELS = {
    "encoders": ("encoders", "encoder"),
    "rerankers": ("rerankers", "reranker"),
    "token_encoders": ("rerankers", "token_encoder"),
}


def manifest_options(config: Config, shards: Shards) -> Words:
    """Options of the stage `manifest`; paths are those of the workflow."""
    results = Results(config, shards)
    systems = {name: system_of(config, name).opened(results) for name in searchable(config)}
    sections: Config = {}
    for section, (models, key) in MODELS.items():
        named = {system.get(key) for system in systems.values()}
        sections[section] = {name: _model(results, section, models, name) for name in config[models] if name in named}
    searched = dict.fromkeys(system["lexical"] for system in systems.values() if "lexical" in system)
    sections |= {"lexical": {name: _index(results, name) for name in searched}, "systems": systems}
    words = [word for name, value in sections.items() for word in option(name, json.dumps(value, ensure_ascii=False))]
    words += option("passages", results.at(paths.PASSAGES)) + option("depth", config["depth"])
    # Names say in which order they are listed.
    return Words(words, {**flat(sections), "depth": config["depth"], "systems": list(systems)})


def searched_files(config: Config, shards: Shards) -> list[str]:
    """List what is opened to measure latencies: models, vectors, indexes, passages."""
    results = Results(config, shards)
    names = with_parts(config, config["latency"]["systems"])
    files = dict.fromkeys(file for name in names for file in system_of(config, name).files(results))
    return [results.at(paths.PASSAGES), *files]


def _index(results: Results, name: str) -> dict[str, str]:
    folder = Path(results.at(paths.LEXICAL_INDEX, lexical=name)).parent
    return {"index": str(folder), "cleaning": results.config["lexical"][name]["cleaning"]}


def _model(results: Results, opened: str, section: str, name: str) -> dict[str, Any]:
    model = results.config[section][name]
    tokens = [results.tokens(section, name, "passages")]
    return {
        "model": str(Path(results.weights(section, name)).parent),
        "cleaning": results.config["base_models"][model["base_model"]]["cleaning"],
        "precision": model["precision"],
        "files": tokens if opened == "rerankers" else list(results.shards(section, name)),
    }
