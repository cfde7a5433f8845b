"""Encoders of static embeddings in NumPy, ready before torch could be imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from threadpoolctl import ThreadpoolController

from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts, Rows
from cort.models.layout import LONGEST, PROMPTS, Module, Settings, modules_of
from cort.models.tokenizer import Template

#: (e,), or (texts, e)
Vectors: TypeAlias = npt.NDArray[np.float32]
Ids: TypeAlias = npt.NDArray[np.int32]
Weights: TypeAlias = Mapping[str, Vectors]
Config: TypeAlias = Mapping[str, Any]

ACTIVATIONS: dict[str, Callable[[Vectors], Vectors]] = {
    "torch.nn.modules.activation.Tanh": np.tanh,
    "torch.nn.modules.linear.Identity": lambda vectors: vectors,
}
STATIC = "StaticEmbedding"
#: static embeddings have no special tokens
PLAIN = Template((), (), (), 0, 0)


def mean(ids: Ids, *, weights: Weights, **_: Any) -> Vectors:
    """Average the vectors of a text's tokens; zeros for an empty text."""
    result: Vectors = weights["embedding.weight"][ids].sum(0) / np.float32(max(len(ids), 1))
    return result


def dense(vectors: Vectors, *, config: Config, weights: Weights) -> Vectors:
    """Project vectors."""
    projected: Vectors = vectors @ weights["linear.weight"].T + weights.get("linear.bias", 0)
    return ACTIVATIONS[config["activation_function"]](projected)


def normalize(vectors: Vectors) -> Vectors:
    """Scale vectors to length 1, except for zeros; in double precision, in which all processors give the same."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    result: Vectors = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return result


#: modules -> what they do with the ids or the vector of a text
LAYERS: dict[str, Callable[..., Vectors]] = {STATIC: mean, "Dense": dense}


class LightEncoder:
    """An encoder of texts, one by one; its results are in fp32.

    :ivar unit_length: as that of `cort.models.encoder.Encoder`, whose interface it has.
    """

    transformer = None

    def __init__(self, folder: Path, modules: Sequence[Module]) -> None:
        self.unit_length: bool = Settings(folder / PROMPTS).get("similarity_fn_name") != "dot"
        self._layers = [
            partial(LAYERS[module.name], config=_config(module), weights=_weights(module)) for module in modules
        ]
        self._layers += [partial(normalize)] * self.unit_length
        self._libraries = ThreadpoolController()

    def __call__(self, texts: Iterable[Ids]) -> Vectors:
        """Map the token ids of texts to their vectors, (texts, e)."""
        # Threads cost more than they gain for so few tokens.
        with self._libraries.limit(limits=1, user_api="blas"):
            return np.array([self._vector(ids) for ids in texts])

    def _vector(self, state: Any) -> Vectors:
        for layer in self._layers:
            state = layer(state)
        return np.asarray(state)

    @property
    def dimension(self) -> int:
        """The size of the vectors."""
        return len(self._vector(np.empty(0, np.int32)))

    def place(self, *_: object) -> None:
        """Do nothing: it needs no device."""

    def texts(self, tokens: Tokens, kind: str) -> StaticTexts:
        """Make texts that can be encoded."""
        return StaticTexts(tokens, PLAIN, LONGEST, kind)


class StaticTexts(FramedTexts):
    """Texts to be encoded by a `LightEncoder`."""

    def vectors(self, encoder: LightEncoder, rows: Rows, _: object = None) -> Vectors:
        """Encode rows, (rows, e)."""
        return encoder(self.tokens[row] for row in rows)


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
