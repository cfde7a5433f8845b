"""The encoder of queries and passages: a transformer, pooling, projection to `e` dimensions and tanh.

This is CoRT's encoder (section 3.2); without projection and tanh, it is RepBERT's (section 3.1 there). A released
encoder may have any layers that sentence-transformers has.

On disk: a folder that ``SentenceTransformer(folder)`` loads, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cort.models.building import EMBEDDING, dense, routed
from cort.models.layout import TASKS, has_modules
from cort.models.light import LightEncoder, static_encoder
from cort.models.modules import KINDS, TextModel, quiet, route
from cort.models.settings import EncoderSettings
from cort.models.tokenizer import load_template, load_tokenizer
from cort.runtime.errors import input_error

POOLINGS = {"cls": "cls", "mean": "mean", "last": "lasttoken", "weighted_mean": "mean"}
#: similarities of sentence-transformers -> those of this project
SIMILARITIES = {"cosine": "cosine", "dot": "inner_product"}


class Encoder(TextModel):
    """Map token ids to vectors of `e` numbers.

    :ivar similarity: of vectors, as `cort.training.losses.SIMILARITIES` names it.
    :ivar unit_length: whether vectors are normalized to length 1, which changes neither angle nor cosine.
    """

    kind = "encoder"

    def __init__(self, model: Any, similarity: str | None = None) -> None:
        similarity = similarity or SIMILARITIES.get(model.similarity_fn_name, "cosine")
        layers = list(model.children())
        # Losses and indexes normalize by themselves.
        super().__init__(model, layers[:-1] if type(layers[-1]).__name__ == "Normalize" else layers)
        for layer in layers:
            if type(layer).__name__ == "WordWeights":  # saved as settings, not as weights
                layer.requires_grad_(False)
        self.similarity, self.unit_length = similarity, similarity != "inner_product"
        self.dimension: int = model.get_embedding_dimension()
        # A pooling with `include_prompt` false leaves out so many tokens.
        self._prompt_lengths = {task: _prompt_length(model, kind) for task, kind in KINDS.items()}

    def forward(self, batch: Mapping[str, Any]) -> Tensor:
        """Encode framed texts of one kind, (batch, length); returns (batch, e)."""
        features = self.run({**batch, "prompt_length": self._prompt_lengths[batch.get("task")]})
        vectors: Tensor = features[EMBEDDING]  # (batch, e)
        return vectors

    def reads_alike(self) -> bool:
        """Tell whether queries and passages differ in their framing alone, and have equally long prompts."""
        return super().reads_alike() and len(set(self._prompt_lengths.values())) == 1

    @property
    def projection(self) -> nn.Module | None:
        """The linear layer of the last Dense module, if there is one."""
        layers: list[Any] = [layer for layer in self.layers if type(layer).__name__ == "Dense"]
        return layers[-1].linear if layers else None


def _prompt_length(model: Any, kind: str) -> int:
    """Count the tokens of a prompt as sentence-transformers does: with special tokens, except for one at the end."""
    prompt, tokenizer = (model.prompts or {}).get(TASKS[kind]), route(model, kind)[0].tokenizer
    if not prompt or not hasattr(tokenizer, "backend_tokenizer"):  # static embeddings
        return 0
    ids = tokenizer.backend_tokenizer.encode(prompt).ids
    return len(ids) - sum(token in tokenizer.all_special_ids for token in ids[-1:])


def new_encoder(
    base_model: str | Path,
    settings: EncoderSettings,
    seed: int,
    start: str | Path | None = None,
    cleaning: str = "raw",
    token_weights: Tensor | None = None,
) -> Encoder:
    """Put a new projection, drawn from `seed`, on a base model.

    :param start: folder of a trained encoder, whose weights replace both. A base model that is itself an encoder keeps
        its weights and settings.
    :param token_weights: (vocabulary,), for the pooling `weighted_mean`.
    """
    if has_modules(base_model):
        loaded = load_encoder(base_model)
        if isinstance(loaded, LightEncoder) or loaded.transformer is None:
            found, fix = "static embeddings", "remove `training`, or name another model"
            raise input_error(base_model, found, "a transformer to train", fix)
        encoder = loaded
    else:
        encoder = _build(base_model, settings, seed, cleaning, token_weights)
        encoder.check_lengths("", base_model)
    if start is not None:
        encoder.start_from(start)
    return encoder.train()


def _build(
    base_model: str | Path, settings: EncoderSettings, seed: int, cleaning: str, token_weights: Tensor | None
) -> Encoder:
    lengths = settings.query_length, settings.passage_length
    router, _ = routed(base_model, (settings.query_segment, settings.passage_segment), lengths, cleaning, seed)
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling

    width = router.sub_modules["document"][0].get_embedding_dimension()
    if not settings.projection and settings.dimension != width:
        expected, fix = f"the model's {width} without a projection", f"set it to {width}, or use a projection"
        raise input_error("dimension", str(settings.dimension), expected, fix)
    modules = [router, Pooling(width, POOLINGS[settings.pooling])]
    if settings.pooling == "weighted_mean":
        if token_weights is None:
            found, expected = "weighted_mean without passages", "one of the released model"
            raise input_error("pooling", found, expected, "change it")
        modules.insert(1, _weights(base_model, token_weights))
    if settings.projection:
        modules.append(dense(width, settings.dimension, seed, True, nn.Tanh(), EMBEDDING))
    if settings.similarity != "inner_product":
        modules.append(Normalize())
    similarity: Any = "dot" if settings.similarity == "inner_product" else "cosine"
    model = SentenceTransformer(modules=modules, device="cpu", similarity_fn_name=similarity)
    return Encoder(model, settings.similarity)


def _weights(base_model: str | Path, weights: Tensor) -> Any:
    """Multiply the states of tokens by weights, (vocabulary,); special tokens, which all texts have, get the lowest."""
    from sentence_transformers.sentence_transformer.modules import WordWeights

    template = load_template(base_model)
    weights = weights.clone()
    weights[[*template.before, *template.after]] = weights.min()
    tokens = {number: token for token, number in load_tokenizer(base_model).get_vocab(True).items()}
    names = [tokens.get(number, "") for number in range(len(weights))]
    return quiet(WordWeights)(names, dict(zip(names, weights.tolist(), strict=True)))


def load_encoder(folder: str | Path, precision: str = "fp32") -> Encoder | LightEncoder:
    """Load a model folder in evaluation mode: an `Encoder`, or a `LightEncoder`."""
    return static_encoder(folder) or Encoder.load(folder, precision)
