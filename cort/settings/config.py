"""What a config says of its splits, sections and models, as far as one need not know which systems use them.

A config is what `cort/settings` describes, as nested mappings; in the checks, parts of a wrong shape are None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

Config: TypeAlias = dict[str, Any]

TRAINING_SPLITS = ("train", "validation")
# The kind of re-rankers that can retrieve.
LATE_INTERACTION = "late_interaction"
# Section of the models that are trained -> the key of a model with its examples.
LEARNERS = {"encoders": "triples", "rerankers": "pairs"}
KIND_NAMES = {"encoders": "encoder", "rerankers": "re-ranker"}


def entries(config: Config, section: str) -> list[tuple[str, Config]]:
    """List the parts of a section that have the right shape, with their names."""
    return [(name, entry) for name, entry in config[section].items() if entry is not None]


def listed(names: Iterable[str]) -> str:
    """Join names for a message."""
    return ", ".join(names) or "nothing"


def any_of(names: Iterable[str]) -> str:
    """Return a regular expression that matches these names, and nothing if there are none."""
    return "|".join(map(re.escape, names)) or r"(?!)"


def names_with_file(config: Config, section: str, has_file: bool = True) -> str:
    """Return a regular expression that matches the names of a section's entries with a file, or of those without."""
    return any_of(name for name, entry in config[section].items() if ("file" in entry) == has_file)


def ranked_splits(config: Config) -> list[str]:
    """List the splits that systems have runs for: all but those of training."""
    return [split for split in config["splits"] if split not in TRAINING_SPLITS]


def evaluated_splits(config: Config) -> list[str]:
    """List the ranked splits that are measured and reported: those with judgements."""
    return [split for split in ranked_splits(config) if is_judged(config, split)]


def unjudged_splits(config: Config) -> list[str]:
    """List the ranked splits without judgements, of which systems are compared, not measured."""
    return [split for split in ranked_splits(config) if not is_judged(config, split)]


def is_judged(config: Config, split: str) -> bool:
    """Tell whether a split has judgements: it is not a file of queries alone."""
    settings = config["splits"][split]
    # What is broken (None) may be meant to have some.
    return settings is None or "queries" not in settings or "qrels" in settings


def files_of_split(config: Config, name: str) -> Config:
    """Return the split with a split's files: the split itself, or train, which a held-out one is drawn from."""
    split: Config = config["splits"][name]
    return config["splits"]["train"] if "hold_out" in split else split


def one_or_more(named: str | list[str]) -> list[str]:
    """List what a config names, where it may be one name or a list."""
    return [named] if isinstance(named, str) else named


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """List the values in nested mappings by their paths, in the order of their names."""
    if not isinstance(value, Mapping) or not value:
        return {path: value}
    return {
        place: inner
        for key in sorted(value)
        for place, inner in flat(value[key], f"{path}.{key}" if path else key).items()
    }


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in nested mappings, with their paths, in the order of the config."""
    for key, value in values.items():
        place = f"{path}.{key}".lstrip(".")
        if isinstance(value, Mapping):
            yield from leaves(value, place)
        else:
            yield place, value


def part_of(schema: Config, key: str) -> Config:
    """Return the schema of a key's value."""
    rest = schema.get("additionalProperties")
    part: Config = schema.get("properties", {}).get(key, rest if isinstance(rest, dict) else {})
    return part


def deciding(config: Config, schema: Config) -> Config:
    """Copy the settings that decide results: without those the schema says decide nothing, but speed or safety."""
    found = {}
    for key, value in config.items():
        part = part_of(schema, key)
        if part.get("affects_results", True):
            found[key] = deciding(value, part) if isinstance(value, dict) else value
    return found


def token_encoders(config: Config) -> list[str]:
    """List the re-rankers that can retrieve; a name that an encoder has, too, means the encoder."""
    rerankers = {name: model or {} for name, model in config.get("rerankers", {}).items()}
    late = [name for name, model in rerankers.items() if model.get("kind") == LATE_INTERACTION]
    return [name for name in late if name not in config["encoders"]]


def sources(examples: Config) -> list[str]:
    """List the systems whose runs of the training queries provide the negatives of a model's examples."""
    return one_or_more(examples["system"])


def is_trained(model: Config) -> bool:
    """Tell whether an encoder or re-ranker is trained here, not used as somebody released it."""
    return "training" in model
