"""The splits, sections and models in a config, without regard to the systems that use them.

A config consists of nested mappings, as described by `cort/settings`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any, TypeAlias

from cort.settings.collection import COPIED

Config: TypeAlias = dict[str, Any]

TRAINING_SPLITS = ("train", "validation")
# Sources of documents, each a key of `collection`, and of queries and judgements, keys of splits.
SOURCES = ("documents", "folder", "irds", "hf")
SPLIT_SOURCES = ("irds", "hf", "generate", "judge")
# The kind of re-ranker that can retrieve.
LATE_INTERACTION = "late_interaction"
SPARSE = "sparse"
# Sections of trained models -> the key of a model with its training examples.
LEARNERS = {"encoders": "triples", "rerankers": "pairs"}


def listed(names: Iterable[str]) -> str:
    """Join names for a message."""
    return ", ".join(names) or "nothing"


def any_of(names: Iterable[str]) -> str:
    """Return a regular expression for these names, which matches nothing if there are none."""
    return "|".join(map(re.escape, names)) or r"(?!)"


def names_with_file(config: Config, section: str, has_file: bool = True) -> str:
    """Return a regular expression for the names of a section's entries with, or without, a file."""
    return any_of(name for name, entry in config[section].items() if ("file" in entry) == has_file)


def ranked_splits(config: Config) -> list[str]:
    """List the splits that systems have runs for: all but those of training."""
    return [split for split in config["splits"] if split not in TRAINING_SPLITS]


def evaluated_splits(config: Config) -> list[str]:
    """List the ranked splits that are measured and reported: those with judgements."""
    return [split for split in ranked_splits(config) if is_judged(config, split)]


def unjudged_splits(config: Config) -> list[str]:
    """List the ranked splits without judgements, on which systems are compared but not measured."""
    return [split for split in ranked_splits(config) if not is_judged(config, split)]


def source_of(config: Config) -> str | None:
    """Return the source of the documents of a collection; None for docstrings, or a file of passages as they are."""
    keys = (*SOURCES, "passages") if copied_from(config) else SOURCES
    return next((key for key in keys if key in config["collection"]), None)


def is_imported(split: Config) -> bool:
    """Tell whether a split comes from a source of queries and judgements, not from files."""
    return any(key in split for key in SPLIT_SOURCES)


def is_copied(split: Config) -> bool:
    """Tell whether the queries and judgements of a split are copied from a source, not made here."""
    return is_imported(split) and split.keys().isdisjoint({"generate", "judge"})


def splits_with(config: Config, key: str) -> list[str]:
    """List the splits that have a key, such as those that are generated."""
    return [name for name, split in config["splits"].items() if key in split]


def generated_from(config: Config) -> str | None:
    """Return what queries are made from; None if no split is generated."""
    return next((config["splits"][name]["generate"]["from"] for name in splits_with(config, "generate")), None)


def copied_from(config: Config) -> str | None:
    """Return what queries are made from if it is a part of documents, which the index lacks."""
    return origin if (origin := generated_from(config)) in COPIED else None


def labels_of(config: Config, split: str) -> str:
    """Tell where the judgements of a split come from: ``human``, ``synthetic`` or ``LLM``."""
    if split not in config["splits"]:
        return "human"
    settings = files_of_split(config, split)
    made = {"generate": "synthetic", "judge": "LLM"}
    return next((made[key] for key in made if key in settings), settings.get("labels", "human"))


def title_of_split(config: Config, split: str) -> str:
    """Name a split in tables, figures and verdicts, which say if its labels are not of people."""
    labels = labels_of(config, split)
    return split if labels == "human" else f"{split} ({labels} labels)"


def is_judged(config: Config, split: str) -> bool:
    """Tell whether a split has judgements, that is, more than a file of queries."""
    settings = config["splits"][split]
    return "queries" not in settings or "qrels" in settings


def files_of_split(config: Config, name: str) -> Config:
    """Return the split whose files a split uses: its own or, for a held-out one, those of train."""
    split: Config = config["splits"][name]
    return config["splits"]["train"] if "hold_out" in split else split


def files_of(named: str | list[str]) -> list[str]:
    """List files, where the config has a name, a list, or a pattern; one that matches nothing stays as it is."""
    found = [[name] if Path(name).exists() else sorted(glob(name)) or [name] for name in one_or_more(named)]
    return [name for names in found for name in names]


def one_or_more(named: str | list[str]) -> list[str]:
    """Return a list of names, where the config has a single name or a list."""
    return [named] if isinstance(named, str) else named


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Map the paths in nested mappings to their values, in alphabetical order."""
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
    """Copy the settings that affect results, not only speed or safety, according to the schema."""
    kept = {}
    for key, value in config.items():
        part = part_of(schema, key)
        if part.get("affects_results", True):
            kept[key] = deciding(value, part) if isinstance(value, dict) else value
    return kept


def token_encoders(config: Config) -> list[str]:
    """List the re-rankers that can retrieve."""
    return [name for name, model in config["rerankers"].items() if model.get("kind") == LATE_INTERACTION]


def is_sparse(model: Config) -> bool:
    """Tell whether a model is a sparse encoder."""
    return model.get("kind") == SPARSE


def sources(examples: Config) -> list[str]:
    """List the systems whose runs of the training queries provide a model's negatives."""
    return one_or_more(examples["system"])


def is_trained(model: Config) -> bool:
    """Tell whether an encoder or re-ranker is trained here, not used as released."""
    return "training" in model
