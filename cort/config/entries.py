"""Sections of a config, and helpers for names and values in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any, TypeAlias

from cort.config.fields import one_or_more

Config: TypeAlias = dict[str, Any]

TRAINING_SPLITS = ("train", "validation")
# Sources of documents, each a key of `collection`, and of queries and judgements, keys of splits.
SOURCES = ("documents", "folder", "irds", "hf")
SPLIT_SOURCES = ("irds", "hf", "generate", "judge")
# The kind of re-ranker that can retrieve.
LATE_INTERACTION = "late_interaction"
# Sections of models; `pretrained` ones become base models.
MODELS = ("encoders", "rerankers", "weighers", "expanders")
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


def paths_named(named: str | Iterable[str]) -> list[str]:
    """List files, where the config has a name, a list, or a pattern; one that matches nothing stays as it is."""
    found = [[name] if Path(name).exists() else sorted(glob(name)) or [name] for name in one_or_more(named)]
    return [name for names in found for name in names]


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in nested mappings, with their paths, in the order of the config."""
    for key, value in values.items():
        place = f"{path}.{key}".lstrip(".")
        if isinstance(value, Mapping):
            yield from leaves(value, place)
        else:
            yield place, value


def released_name(section: str, name: str) -> str:
    """Return the name, as a base model, of a `pretrained` model in a section of `MODELS`."""
    return f"{section.removesuffix('s')}.{name}"
