"""Kinds of re-rankers, one entry each: what makes one from a base model, and what loads one from its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cort.models.cross_encoder import CrossEncoder, load_cross_encoder, new_cross_encoder
from cort.models.loading import read_settings
from cort.models.settings import PairSettings
from cort.models.tokenizer import Template
from cort.system.errors import input_error


class Kind(NamedTuple):
    """A re-ranker scores pairs, as `CrossEncoder` does, whose interface it has; so others share its folder's layout."""

    new: Callable[[str | Path, PairSettings, int], CrossEncoder]
    load: Callable[[str | Path], tuple[CrossEncoder, Template]]


RERANKERS = {"cross_encoder": Kind(new_cross_encoder, load_cross_encoder)}


def new_reranker(base_model: str | Path, settings: PairSettings, seed: int) -> CrossEncoder:
    """Make a re-ranker of the kind that the settings name, what is new in it drawn from `seed`."""
    return _kind("--kind", settings.kind).new(base_model, settings, seed)


def load_reranker(folder: str | Path) -> tuple[CrossEncoder, Template]:
    """Load a model folder of any kind in evaluation mode, with its tokenizer's template."""
    settings = read_settings(folder, PairSettings)
    return _kind(Path(folder) / PairSettings.FILE, settings.kind).load(folder)


def _kind(source: str | Path, name: str) -> Kind:
    if name not in RERANKERS:
        raise input_error(source, f"the re-ranker {name!r}", " or ".join(sorted(RERANKERS)), "name one of these")
    return RERANKERS[name]
