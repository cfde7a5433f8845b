"""Encoders in NumPy, ready before torch could be imported: static embeddings, and BERT in fp32 for single queries.

What BERT computes is compared with vectors of the stage `encode`; where these differ, torch is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from threadpoolctl import ThreadpoolController

from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts, Rows
from cort.models.layout import LONGEST, PROMPTS, Module, Settings, modules_of, read_length
from cort.models.tokenizer import Template, load_template

#: (e,), or (texts, e)
Vectors: TypeAlias = npt.NDArray[np.float32]
Ids: TypeAlias = npt.NDArray[np.int32]
#: token ids and segment ids of a text, (length,) each
Frame: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
Weights: TypeAlias = Mapping[str, Vectors]
Config: TypeAlias = Mapping[str, Any]

ACTIVATIONS: dict[str, Callable[[Vectors], Vectors]] = {
    "torch.nn.modules.activation.Tanh": np.tanh,
    "torch.nn.modules.linear.Identity": lambda vectors: vectors,
}
STATIC = "StaticEmbedding"
#: static embeddings have no special tokens
PLAIN = Template((), (), (), 0, 0)
ERF = np.vectorize(math.erf, otypes=[np.float32])


def bert(_: None, frame: Frame, *, config: Config, weights: Weights) -> Vectors:
    """Compute the states of a text, (length, width), from its token and segment ids, (length,) each."""

    def linear(at: str, states: Vectors) -> Any:
        return states @ weights[at + ".weight"].T + weights[at + ".bias"]

    def norm(at: str, states: Any) -> Any:
        states = states - states.mean(-1, keepdims=True)
        deviations = np.sqrt((states * states).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return states / deviations * weights[at + ".weight"] + weights[at + ".bias"]

    def heads(at: str) -> Any:
        return linear(at, states).reshape(len(states), config["num_attention_heads"], -1).swapaxes(0, 1)

    ids, segments = frame
    words, positions, kinds = (
        weights["embeddings." + name + "_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    states: Vectors = norm("embeddings.LayerNorm", words[ids] + positions[: len(ids)] + kinds[segments])
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        query, key, value = (heads(at + "attention.self." + name) for name in ("query", "key", "value"))
        scores = query @ key.mT / math.sqrt(query.shape[2])  # (heads, length, length)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        context = (scores / scores.sum(-1, keepdims=True) @ value).swapaxes(0, 1).reshape(states.shape)
        states = norm(at + "attention.output.LayerNorm", states + linear(at + "attention.output.dense", context))
        change = linear(at + "output.dense", gelu(linear(at + "intermediate.dense", states)))
        states = norm(at + "output.LayerNorm", states + change)
    return states


def gelu(states: Vectors) -> Vectors:
    """Multiply with the normal distribution function."""
    result: Vectors = states * (1 + ERF(states * math.sqrt(0.5))) / 2
    return result


def mean(_: None, frame: Frame, *, weights: Weights, **__: Any) -> Vectors:
    """Average the vectors of a text's tokens; zeros for an empty text."""
    ids = frame[0]
    result: Vectors = weights["embedding.weight"][ids].sum(0) / np.float32(max(len(ids), 1))
    return result


def weighted(states: Vectors, frame: Frame, *, weights: Weights, **_: Any) -> Vectors:
    """Multiply the states of tokens by their weights, so that the mean of the result is the weighted mean."""
    own = weights["emb_layer.weight"][frame[0]]  # (length, 1)
    result: Vectors = states * (own / own.mean())
    return result


def pool(states: Vectors, _: Frame, *, config: Config, **__: Any) -> Vectors:
    """Take the mean of all states, or that of the first token."""
    result: Vectors = {"mean": states.mean(0), "cls": states[0]}[config["pooling_mode"]]
    return result


def dense(vectors: Vectors, _: Frame, *, config: Config, weights: Weights) -> Vectors:
    """Project vectors."""
    projected: Vectors = vectors @ weights["linear.weight"].T + weights.get("linear.bias", 0)
    return ACTIVATIONS[config["activation_function"]](projected)


def normalize(vectors: Vectors, *_: Any, **__: Any) -> Vectors:
    """Scale vectors to length 1, except for zeros; in double precision, in which all processors give the same."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    result: Vectors = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return result


#: modules -> what they do with states or vectors
LAYERS: dict[str, Callable[..., Vectors]] = {
    STATIC: mean,
    "Transformer": bert,
    "WordWeights": weighted,
    "Pooling": pool,
    "Dense": dense,
    "Normalize": normalize,
}


class LightEncoder:
    """An encoder of single texts; its results are in fp32.

    :ivar unit_length: as that of `cort.models.encoder.Encoder`, whose interface it has for static embeddings.
    """

    transformer = None

    def __init__(
        self, folder: Path, modules: Sequence[Module], template: Template = PLAIN, length: int = LONGEST
    ) -> None:
        self.unit_length: bool = Settings(folder / PROMPTS).get("similarity_fn_name") != "dot"
        self._layers = [
            partial(LAYERS[module.name], config=_config(module), weights=_weights(module)) for module in modules
        ]
        self._layers += [partial(normalize)] * self.unit_length
        self._template, self._length, self._libraries = template, length, ThreadpoolController()

    def __call__(self, ids: Ids) -> Vectors:
        """Map the token ids of a text, without special tokens, to its vector, (e,)."""
        before, after = self._template.before, self._template.after
        parts = before, ids[: self._length - self._template.extra], after
        framed = np.concatenate(parts, dtype=np.int64, casting="unsafe")
        frame, state = (framed, np.full(len(framed), self._template.segment)), None
        # Threads cost more than they gain for so few tokens.
        with self._libraries.limit(limits=1, user_api="blas"):
            for layer in self._layers:
                state = layer(state, frame)
        return np.asarray(state)

    @property
    def dimension(self) -> int:
        """The size of the vectors."""
        return len(self(np.empty(0, np.int32)))

    def place(self, *_: object) -> None:
        """Do nothing: it needs no device."""

    def texts(self, tokens: Tokens, kind: str) -> StaticTexts:
        """Make texts that can be encoded."""
        return StaticTexts(tokens, PLAIN, LONGEST, kind)


class StaticTexts(FramedTexts):
    """Texts to be encoded by a `LightEncoder`."""

    def vectors(self, encoder: LightEncoder, rows: Rows, _: object = None) -> Vectors:
        """Encode rows, (rows, e)."""
        return np.array([encoder(self.tokens[row]) for row in rows])


def light_encoder(folder: Path, precision: str | None) -> LightEncoder:
    """Open a model folder for queries.

    :param precision: in which the vectors of passages were computed, if the model is a transformer.
    :raises Exception: of any kind, if the model is not one of those that this module knows.
    """
    if static := static_encoder(folder):
        return static
    if precision != "fp32":
        raise ValueError(precision)
    # The route of queries may begin with an empty transformer, which only provides a tokenizer.
    modules = modules_of(folder)
    template, positions = load_template(folder, kind="query"), _config(modules[0])["max_position_embeddings"]
    return LightEncoder(folder, modules, template, min(read_length(folder, "query") or positions, positions))


def static_encoder(folder: str | Path) -> LightEncoder | None:
    """Open a model folder; None unless it has static embeddings, followed by known modules."""
    modules = modules_of(folder)
    if not modules or modules[0].name != STATIC or modules[0] != modules_of(folder, "query")[0]:
        return None
    if modules[-1].name == "Normalize":
        modules.pop()
    known = all(one.name == "Dense" and _config(one)["activation_function"] in ACTIVATIONS for one in modules[1:])
    return LightEncoder(Path(folder), modules) if known else None


def _config(module: Module) -> Config:
    return Settings(module.folder / "config.json").values


def _weights(module: Module) -> Weights:
    files = module.folder.glob("model.safetensors")
    return {name: weight.astype(np.float32, copy=False) for path in files for name, weight in load_file(path).items()}
