"""Kinds of re-rankers, one entry each: how to make one from a base model, and how to load one from its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from cort.models.cross_encoder import CrossEncoder, new_cross_encoder
from cort.models.kernel_pooling import KernelPooling, new_kernel_pooling
from cort.models.late_interaction import LateInteraction, new_late_interaction
from cort.models.layout import CLASSES, class_of, has_modules
from cort.models.settings import PairSettings
from cort.runtime.errors import input_error

#: a model with `pairs` to be scored, `place` to move it to a device, and `save`
Reranker: TypeAlias = CrossEncoder | LateInteraction | KernelPooling


New: TypeAlias = Callable[[str | Path, PairSettings, int, str], Reranker]
RERANKERS: dict[str, tuple[type[Reranker], New]] = {
    "cross_encoder": (CrossEncoder, new_cross_encoder),
    "late_interaction": (LateInteraction, new_late_interaction),
    "knrm": (KernelPooling, new_kernel_pooling),
    "conv_knrm": (KernelPooling, new_kernel_pooling),
}


def new_reranker(base_model: str | Path, settings: PairSettings, seed: int, cleaning: str = "raw") -> Reranker:
    """Make a re-ranker of the kind that the settings name; new layers are drawn from `seed`.

    A base model that is itself a re-ranker keeps its own.
    """
    if settings.kind not in RERANKERS:
        fix = "name a released model as pretrained, or train a cross_encoder"
        raise input_error("--kind", f"the re-ranker {settings.kind!r}", f"one of {', '.join(RERANKERS)}", fix)
    kind, new = RERANKERS[settings.kind]
    return kind.load(base_model) if has_modules(base_model) else new(base_model, settings, seed, cleaning)


def load_reranker(folder: str | Path, precision: str = "fp32") -> Reranker:
    """Load a model folder of any kind in evaluation mode."""
    if (Path(folder) / PairSettings.FILE).is_file():
        return KernelPooling.load(folder)
    late = class_of(Path(folder)) == CLASSES["late_interaction"]
    return (LateInteraction if late else CrossEncoder).load(folder, precision)
