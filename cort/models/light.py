"""Encoders of static embeddings in NumPy, ready before torch could be imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

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

ACTIVATIONS: dict[str, Callable[[Vectors], Vectors]] = {
    "torch.nn.modules.activation.Tanh": np.tanh,
    "torch.nn.modules.linear.Identity": lambda vectors: vectors,
}
STATIC = "StaticEmbedding"
#: static embeddings have no special tokens
PLAIN = Template((), (), (), 0, 0)


class LightEncoder:
    """An encoder of texts, one by one, by static embeddings and projections; its results are in fp32.

    :ivar unit_length: as that of `cort.models.encoder.Encoder`, whose interface it has.
    """

    transformer = None

    def __init__(self, folder: Path, embedding: Module, projections: Sequence[Module]) -> None:
        self.unit_length: bool = Settings(folder / PROMPTS).get("similarity_fn_name") != "dot"
        self._embeddings = _weights(embedding)["embedding.weight"]  # (vocabulary, width)
        self._projections = [(_weights(dense), ACTIVATIONS[_activation(dense)]) for dense in projections]
        self._libraries = ThreadpoolController()

    def __call__(self, texts: Iterable[npt.NDArray[np.int32]]) -> Vectors:
        """Map the token ids of texts to their vectors, (texts, e)."""
        # Threads cost more than they gain for so few tokens.
        with self._libraries.limit(limits=1, user_api="blas"):
            return np.array([self._vector(ids) for ids in texts])

    def _vector(self, ids: npt.NDArray[np.int32]) -> Vectors:
        """Compute the mean of the tokens' vectors, project it, and scale it to length 1; no tokens give zeros."""
        vector: Vectors = self._embeddings[ids].sum(0) / np.float32(max(len(ids), 1))
        for weights, activation in self._projections:
            vector = activation(vector @ weights["linear.weight"].T + weights.get("linear.bias", 0))
        if self.unit_length:
            # In double precision, in which all processors give the same.
            length = np.linalg.norm(vector.astype(np.float64), axis=-1)
            vector = (vector / np.maximum(length, 1e-12)).astype(np.float32)
        return vector

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
    embedding, *others = modules[:-1] if modules[-1].name == "Normalize" else modules
    known = all(module.name == "Dense" and _activation(module) in ACTIVATIONS for module in others)
    return LightEncoder(Path(folder), embedding, others) if known else None


def _activation(dense: Module) -> str:
    return str(Settings(dense.folder / "config.json").values["activation_function"])


def _weights(module: Module) -> dict[str, Vectors]:
    weights = load_file(module.folder / "model.safetensors")
    return {name: weight.astype(np.float32, copy=False) for name, weight in weights.items()}
