"""What single entries of a config say: splits, models, names of files.

A config consists of nested mappings, as described by `cort/config`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any, TypeAlias

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
# The index that every experiment has.
BM25 = "bm25"
# Sections of what changes the texts of an index -> the key of an index that names an entry.
INDEX_ADDITIONS = {"expanders": "expand", "weighers": "weigh"}


def listed(names: Iterable[str]) -> str:
    """Join names for a message."""
    return ", ".join(names) or "nothing"


def any_of(names: Iterable[str]) -> str:
    """Return a regular expression for these names, which matches nothing if there are none."""
    return "|".join(map(re.escape, names)) or r"(?!)"


def is_imported(split: Config) -> bool:
    """Tell whether a split comes from a source of queries and judgements, not from files."""
    return any(key in split for key in SPLIT_SOURCES)


def is_copied(split: Config) -> bool:
    """Tell whether the queries and judgements of a split are copied from a source, not made here."""
    return is_imported(split) and split.keys().isdisjoint({"generate", "judge"})


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


def is_sparse(model: Config) -> bool:
    """Tell whether a model is a sparse encoder."""
    return model.get("kind") == SPARSE


def is_term_based(config: Config, system: str) -> bool:
    """Tell whether a system ranks passages by the terms that they share with a query, and finds no others."""
    name = config["systems"][system].get("retrieve")
    return name in config["lexical"] or is_sparse(config["encoders"].get(name, {}))


def sources(examples: Config) -> list[str]:
    """List the systems whose runs of the training queries provide a model's negatives."""
    return one_or_more(examples["system"])


def is_trained(model: Config) -> bool:
    """Tell whether an encoder or re-ranker is trained here, not used as released."""
    return "training" in model
