"""Kinds of re-rankers, one entry each: how to make one from a base model, and how to load one from its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from cort.models.cross_encoder import CrossEncoder, new_cross_encoder
from cort.models.kernel_pooling import KernelPooling, new_kernel_pooling
from cort.models.late_interaction import LateInteraction, new_late_interaction
from cort.models.layout import CLASSES, class_of, has_modules
from cort.models.loading import read_settings
from cort.models.settings import PairSettings
from cort.runtime.errors import input_error

#: a model with `pairs` to be scored, `place` to move it to a device, and `save`
Reranker: TypeAlias = CrossEncoder | LateInteraction | KernelPooling


RERANKERS: dict[str, type[Reranker]] = {
    "cross_encoder": CrossEncoder,
    "late_interaction": LateInteraction,
    "knrm": KernelPooling,
    "conv_knrm": KernelPooling,
}
NEW: dict[str, Callable[[str | Path, PairSettings, int, str], Reranker]] = {
    "cross_encoder": new_cross_encoder,
    "late_interaction": new_late_interaction,
    "knrm": new_kernel_pooling,
    "conv_knrm": new_kernel_pooling,
}


def new_reranker(base_model: str | Path, settings: PairSettings, seed: int, cleaning: str = "raw") -> Reranker:
    """Make a re-ranker of the kind that the settings name; new layers are drawn from `seed`.

    A base model that is itself a re-ranker keeps its own.
    """
    if settings.kind not in NEW:
        fix = "name a released model as pretrained, or train a cross_encoder"
        raise input_error("--kind", f"the re-ranker {settings.kind!r}", f"one of {', '.join(NEW)}", fix)
    if has_modules(base_model):
        model: Reranker = RERANKERS[settings.kind].load(base_model)
        model.train()
        return model
    return NEW[settings.kind](base_model, settings, seed, cleaning)


def load_reranker(folder: str | Path, precision: str = "fp32") -> Reranker:
    """Load a model folder of any kind in evaluation mode."""
    if (Path(folder) / PairSettings.FILE).is_file():
        return RERANKERS[read_settings(folder).kind].load(folder, precision)
    late = class_of(Path(folder)) == CLASSES["late_interaction"]
    return RERANKERS["late_interaction" if late else "cross_encoder"].load(folder, precision)
