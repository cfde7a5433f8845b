"""Sizes of the transformers of an experiment, from its config or their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflow.experiment.config import Config

# What transformers takes for settings a config.json leaves out, and DistilBERT's names for the same.
DEFAULTS = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "vocab_size": 30_522,
}
OTHER_NAMES = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "intermediate_size": "hidden_dim"}


@dataclass(frozen=True)
class Model:
    """Size of a transformer: its width, its layers, the weights of one of them, and all weights."""

    hidden: int
    layers: int
    layer_weights: int
    weights: int

    def flops(self, length: float) -> float:
        """Floating-point operations per token of one pass forward over texts of `length` tokens."""
        return self.layers * (2 * self.layer_weights + 4 * length * self.hidden)


def model_from(settings: Mapping[str, Any]) -> Model:
    """Describe a model by the settings of its config.json, without biases and small parts."""
    hidden, layers, intermediate, positions, vocabulary = (
        int(settings.get(name, settings.get(OTHER_NAMES.get(name, ""), value))) for name, value in DEFAULTS.items()
    )
    layer = 4 * hidden**2 + 2 * hidden * intermediate
    # All layers of an ALBERT have the same weights.
    different = 1 if settings.get("model_type") == "albert" else layers
    tables = (vocabulary + positions) * int(settings.get("embedding_size", hidden))
    return Model(hidden, layers, layer, tables + layer * different)


def model_of(model: Config, folder: Path) -> Model:
    """Describe a base model of the config; one from a hub is taken for a BERT-base until it is there."""
    if "pretrained" not in model:
        size = model.get("vocabulary_size", DEFAULTS["vocab_size"])
        return model_from({**model.get("architecture", {}), "vocab_size": size})
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    path: Any = folder / model["pretrained"] / "config.json"
    try:
        if not path.is_file():
            path = try_to_load_from_cache(model["pretrained"], "config.json", revision=model.get("revision"))
        return model_from(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, HFValidationError):
        return model_from({})
