"""Encoders of single queries in NumPy, ready before torch could be imported: BERT in fp32, and static embeddings.

`open_light` compares them with vectors that the stage `encode` computed. All other models are left to torch.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file
from threadpoolctl import ThreadpoolController

from cort.formats.embeddings import from_batch, open_shards
from cort.formats.precisions import Precision
from cort.formats.tokens import Tokens
from cort.models.batching import Frame, Ids, frame_text
from cort.models.layout import PROMPTS, Module, Settings, modules_of, read_length
from cort.models.tokenizer import Template, load_template
from cort.system.errors import InputError

log = logging.getLogger(__name__)

Vectors: TypeAlias = npt.NDArray[np.float32]
Layer: TypeAlias = Callable[[Any], Vectors]

#: errors of a model that is left to torch
UNFIT = (AttributeError, InputError, LookupError, OSError, SafetensorError, TypeError, ValueError)
POOLINGS: dict[str, Layer] = {"mean": lambda states: states.mean(0), "cls": lambda states: states[0]}
ACTIVATIONS: dict[str, Layer] = {"Tanh": np.tanh, "Identity": lambda vector: vector}
#: settings of BERT that must be these, and their defaults
SETTINGS = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False}
# Largest deviation from stored vectors, relative to their largest number; queries that are compared, and their tokens.
TOLERANCE, COMPARED, FEW_TOKENS = 1e-5, 256, 64
# Of the approximation of the error function by Abramowitz and Stegun (7.1.26), which torch uses, too.
SLOPE = np.float32(0.3275911)
TERMS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


class Bert:
    """The transformer: maps token and segment ids of one text, (length,) each, to states, (length, width)."""

    def __init__(self, folder: Path) -> None:
        config = {"position_embedding_type": "absolute", "is_decoder": False, **Settings(folder / "config.json").values}
        for name, value in SETTINGS.items():
            if config[name] != value:
                raise ValueError(f"{name} {config[name]}")
        self._heads, self._layers, self._epsilon = (
            config[name] for name in ("num_attention_heads", "num_hidden_layers", "layer_norm_eps")
        )
        self.longest: int = config["max_position_embeddings"]
        self._path = folder / "model.safetensors"

    @cached_property
    def _weights(self) -> dict[str, Vectors]:
        return {name: weight.astype(np.float32, copy=False) for name, weight in load_file(self._path).items()}

    def __call__(self, frame: Frame) -> Vectors:
        """Compute the states of a text."""
        places = {"word": frame[0], "position": np.arange(len(frame[0])), "token_type": frame[1]}
        tables = {name: self._weights[f"embeddings.{name}_embeddings.weight"] for name in places}
        states = self._norm("embeddings.LayerNorm", sum(tables[name][ids] for name, ids in places.items()))
        for layer in range(self._layers):
            states = self._layer(f"encoder.layer.{layer}.", states)
        return states

    def _layer(self, at: str, states: Vectors) -> Vectors:
        shape = len(states), self._heads, -1
        query, key, value = (
            self._linear(f"{at}attention.self.{name}", states).reshape(shape).swapaxes(0, 1)
            for name in ("query", "key", "value")
        )  # (heads, length, size)
        weights = query @ key.mT / np.float32(math.sqrt(query.shape[2]))  # (heads, length, length)
        weights = np.exp(weights - weights.max(-1, keepdims=True))
        context = (weights / weights.sum(-1, keepdims=True) @ value).swapaxes(0, 1).reshape(states.shape)
        states = self._add(f"{at}attention.output.", states, context)
        return self._add(f"{at}output.", states, gelu(self._linear(f"{at}intermediate.dense", states)))

    def _add(self, at: str, states: Vectors, change: Vectors) -> Vectors:
        return self._norm(f"{at}LayerNorm", states + self._linear(f"{at}dense", change))

    def _linear(self, at: str, states: Vectors) -> Vectors:
        return linear(self._weights, at, states)

    def _norm(self, at: str, states: Any) -> Vectors:
        states = states - states.mean(-1, keepdims=True)
        deviations = np.sqrt((states * states).mean(-1, keepdims=True) + np.float32(self._epsilon))
        normed: Vectors = states / deviations * self._weights[f"{at}.weight"] + self._weights[f"{at}.bias"]
        return normed


class Static:
    """Static embeddings: the mean of the vectors of token ids."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "model.safetensors"

    @cached_property
    def _weights(self) -> Vectors:
        return load_file(self._path)["embedding.weight"]

    def __call__(self, frame: Frame) -> Vectors:
        """Compute the vector of a text."""
        vector: Vectors = self._weights[frame[0]].astype(np.float32).mean(0)
        return vector


def _is_empty(module: Module) -> bool:
    """Tell whether a transformer only provides its tokenizer."""
    return bool(Settings(module.folder / "config.json").values["num_hidden_layers"] == 0)


def _layer_of(module: Module) -> Layer:
    """Make the layer of a module after the first one, from its settings and weights."""
    settings = Settings(module.folder / "config.json").values
    if module.name == "Pooling":
        return POOLINGS[settings["pooling_mode"]]
    if module.name == "Dense":
        activation = ACTIVATIONS[settings["activation_function"].rpartition(".")[2]]
        weights = load_file(module.folder / "model.safetensors")
        return lambda vector: activation(linear(weights, "linear", vector))
    raise ValueError(module.name)


def linear(weights: Mapping[str, Vectors], at: str, states: Vectors) -> Vectors:
    """Apply a linear layer, whose bias may be missing."""
    result: Vectors = states @ weights[f"{at}.weight"].T + weights.get(f"{at}.bias", np.float32(0))
    return result


def gelu(states: Vectors) -> Vectors:
    """Multiply with the normal distribution function."""
    scaled = np.abs(states) * np.float32(math.sqrt(0.5))
    step, tail = 1 / (1 + SLOPE * scaled), np.zeros_like(states)
    for term in TERMS:
        tail = (tail + np.float32(term)) * step
    result: Vectors = states * np.float32(0.5) * (1 + np.copysign(1 - tail * np.exp(-scaled * scaled), states))
    return result


class LightEncoder:
    """Maps the token ids of a query to its vector, as an encoder in torch does up to the last bits."""

    def __init__(self, folder: Path, precision: Precision) -> None:
        """Read the settings of a model folder; its weights are read when they are needed.

        :raises UNFIT: unless it is of a known kind, or if a file is wrong, which loading it with torch will explain.
        """
        modules = modules_of(folder, "query")
        while [module.name for module in modules[:2]] == ["Transformer"] * 2 and _is_empty(modules[0]):
            modules = modules[1:]
        if modules[-1].name == "Normalize":
            modules = modules[:-1]
        first, *others = modules
        if first.name == "Transformer" and precision == "fp32":
            self._reader: Bert | Static = Bert(first.folder)
            self._template = load_template(folder, kind="query")
            self._length = min(read_length(folder, "query") or self._reader.longest, self._reader.longest)
        elif first.name == "StaticEmbedding":
            self._reader, self._template, self._length = Static(first.folder), Template((), (), (), 0, 0), sys.maxsize
        else:
            raise ValueError(f"{first.name} in {precision}")
        self._layers = [_layer_of(module) for module in others]
        self._unit_length = Settings(folder / PROMPTS).get("similarity_fn_name") != "dot"
        self._libraries = ThreadpoolController()

    def encode(self, ids: Ids) -> Vectors:
        """Compute the vector of a query from its token ids without special tokens; shape (e,)."""
        state: Any = frame_text(ids, self._template, self._length)
        # Threads cost more than they gain for so few tokens.
        with self._libraries.limit(limits=1, user_api="blas"):
            for layer in (self._reader, *self._layers):
                state = layer(state)
        vector: Vectors = state
        return vector / max(np.linalg.norm(vector), np.float32(1e-12)) if self._unit_length else vector

    def reproduces(self, stored: Vectors, tokens: Tokens) -> bool:
        """Tell whether the vectors of the first queries are these, (rows, e), as stored: of a short and a long one."""
        lengths = tokens.lengths[: len(stored)]
        few = np.flatnonzero(lengths <= FEW_TOKENS)
        for row in {few[lengths[few].argmin()], few[lengths[few].argmax()]}:
            allowed = TOLERANCE * np.abs(stored[row]).max() + np.spacing(np.abs(stored[row]))
            if not (np.abs(self.encode(tokens[int(row)]) - stored[row]) <= allowed).all():
                return False
        return True


def read_light(folder: Path, precision: Precision) -> LightEncoder | None:
    """Read the settings of an encoder; None if it is not of a known kind."""
    with suppress(*UNFIT):
        return LightEncoder(folder, precision)
    return None


def open_light(folder: Path, precision: Precision, fingerprint: str, queries: tuple[str, str]) -> LightEncoder | None:
    """Open an encoder, if it is of a known kind and reproduces vectors of queries.

    :param queries: files of these vectors and their tokens.
    """
    encoder = read_light(folder, precision)
    with suppress(*UNFIT):
        [shard] = open_shards(queries[:1], fingerprint)
        _, stored = from_batch(shard.table.slice(0, COMPARED).to_batches()[0])
        if encoder is None or encoder.reproduces(stored, Tokens(queries[1])):
            return encoder
        log.warning("%s: NumPy does not reproduce the vectors in %s; torch is used", folder, queries[0])
    return None
