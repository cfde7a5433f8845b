"""Kinds of re-rankers, one entry each: how to make one from a base model, and how to load one from its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from cort.models.cross_encoder import CrossEncoder, load_cross_encoder, new_cross_encoder
from cort.models.kernel_pooling import KernelPooling, load_kernel_pooling, new_kernel_pooling
from cort.models.late_interaction import (
    LateInteraction,
    load_late_interaction,
    new_late_interaction,
)
from cort.models.loading import read_settings
from cort.models.settings import HEAD, PairSettings
from cort.models.tokenizer import Template
from cort.models.transformer import save_model
from cort.system.errors import input_error

#: a model with `settings`, `pairs` to be scored, `place` to move it to a device, and `parts` to be saved
Reranker: TypeAlias = CrossEncoder | LateInteraction | KernelPooling


class Kind(NamedTuple):
    """How to make and load a kind of re-ranker."""

    new: Callable[[str | Path, PairSettings, int], Reranker]
    load: Callable[[str | Path], tuple[Reranker, Template]]


RERANKERS = {
    "cross_encoder": Kind(new_cross_encoder, load_cross_encoder),
    "late_interaction": Kind(new_late_interaction, load_late_interaction),
    "knrm": Kind(new_kernel_pooling, load_kernel_pooling),
    "conv_knrm": Kind(new_kernel_pooling, load_kernel_pooling),
}


def new_reranker(base_model: str | Path, settings: PairSettings, seed: int) -> Reranker:
    """Make a re-ranker of the kind that the settings name; new layers are drawn from `seed`."""
    return _kind("--kind", settings.kind).new(base_model, settings, seed)


def save_reranker(model: Reranker, tokenizer_folder: str | Path, folder: str | Path) -> None:
    """Write the model folder atomically."""
    transformer, head = model.parts()
    save_model(folder, transformer, tokenizer_folder, model.settings, {HEAD: head})


def load_reranker(folder: str | Path) -> tuple[Reranker, Template]:
    """Load a model folder of any kind in evaluation mode, with its tokenizer's template."""
    settings = read_settings(folder, PairSettings)
    return _kind(Path(folder) / PairSettings.FILE, settings.kind).load(folder)


def _kind(source: str | Path, name: str) -> Kind:
    if name not in RERANKERS:
        raise input_error(source, f"the re-ranker {name!r}", " or ".join(sorted(RERANKERS)), "name one of these")
    return RERANKERS[name]
