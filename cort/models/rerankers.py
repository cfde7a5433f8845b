"""Kinds of re-rankers, one entry each: how to make one from a base model, and how to load one from its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from cort.models.cross_encoder import CrossEncoder, load_cross_encoder, new_cross_encoder
from cort.models.kernel_pooling import KernelPooling, load_kernel_pooling, new_kernel_pooling
from cort.models.late_interaction import LateInteraction, load_late_interaction, new_late_interaction
from cort.models.layout import PROMPTS, Settings
from cort.models.loading import read_settings
from cort.models.modules import CLASSES
from cort.models.seq2seq import Seq2SeqReranker, load_seq2seq, new_seq2seq
from cort.models.settings import PairSettings
from cort.runtime.errors import input_error

#: a model with `pairs` to be scored, `place` to move it to a device, and `save`
Reranker: TypeAlias = CrossEncoder | LateInteraction | KernelPooling | Seq2SeqReranker


class Kind(NamedTuple):
    """How to make and load a kind of re-ranker."""

    new: Callable[[str | Path, PairSettings, int, str], Reranker]
    load: Callable[[str | Path, str], Reranker]


RERANKERS = {
    "cross_encoder": Kind(new_cross_encoder, load_cross_encoder),
    "late_interaction": Kind(new_late_interaction, load_late_interaction),
    "knrm": Kind(new_kernel_pooling, load_kernel_pooling),
    "conv_knrm": Kind(new_kernel_pooling, load_kernel_pooling),
    "monot5": Kind(new_seq2seq, load_seq2seq),
    "rankt5": Kind(new_seq2seq, load_seq2seq),
}


def new_reranker(base_model: str | Path, settings: PairSettings, seed: int, cleaning: str = "raw") -> Reranker:
    """Make a re-ranker of the kind that the settings name; new layers are drawn from `seed`."""
    return _kind("--kind", settings.kind).new(base_model, settings, seed, cleaning)


def load_reranker(folder: str | Path, precision: str = "fp32") -> Reranker:
    """Load a model folder of any kind in evaluation mode."""
    if (Path(folder) / PairSettings.FILE).is_file():
        kind = read_settings(folder).kind
        return _kind(Path(folder) / PairSettings.FILE, kind).load(folder, precision)
    written = Settings(Path(folder) / PROMPTS).get("model_type", str)
    late = written == CLASSES["late_interaction"]
    return RERANKERS["late_interaction" if late else "cross_encoder"].load(folder, precision)


def _kind(source: str | Path, name: str) -> Kind:
    if name not in RERANKERS:
        raise input_error(source, f"the re-ranker {name!r}", " or ".join(sorted(RERANKERS)), "name one of these")
    return RERANKERS[name]
