"""Sparse encoders: a weight for each token of the vocabulary (SPLADE; Formal et al., 2021).

A masked language model predicts the weights of a passage's tokens and of others, which expand it. Queries are encoded
by the same model, or without one: their tokens then have fixed weights (`queries: none`; Geng et al., 2024).

On disk: a folder that ``SparseEncoder(folder)`` of sentence-transformers loads, too.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cort.formats.shards import Tokens
from cort.models.building import EMBEDDING, new_transformer, set_tokenizer
from cort.models.layout import TASKS, has_modules
from cort.models.modules import TextModel, route
from cort.models.settings import EncoderSettings
from cort.models.transformer import replace_forward, single
from cort.runtime.errors import input_error

# With normalised states of n numbers, the logits of a text's own tokens are up to sqrt(n) times the size of embeddings,
# and those of others are random, with this size as standard deviation. A new head subtracts so many sizes from both.
OWN_TOKENS, OTHER_TOKENS = 0.31, 3.5


class SparseEncoder(TextModel):
    """Map token ids to weights of the vocabulary's tokens, none negative and most of them 0."""

    kind = "sparse"
    similarity, unit_length = "inner_product", False

    def __init__(self, model: Any) -> None:
        for kind in TASKS:
            modules = route(model, kind)
            names = [type(module).__name__ for module in modules]
            if not {"SpladePooling", "SparseStaticEmbedding"}.intersection(names):
                found, expected = f"the modules {', '.join(names)}", "SpladePooling after a masked language model"
                fix = "set `kind: dense`, or name another"
                raise input_error(modules[0].tokenizer.name_or_path, found, expected, fix)
        super().__init__(model)
        self.dimension: int = self.framings["passage"].template.vocabulary
        self._most: int | None = model.max_active_dims
        for module in self.modules():
            if type(module).__name__ == "SpladePooling" and getattr(module, "pooling_strategy", "") == "max":
                replace_forward(module, partial(pooled, str(module.activation_function)))

    def forward(self, batch: Mapping[str, Any]) -> Tensor:
        """Encode framed texts of one kind, (batch, length); returns (batch, vocabulary)."""
        weights = single(self.run(batch)[EMBEDDING])  # (batch, vocabulary)
        return top(weights, self._most) if self._most else weights


def pooled(activation: str, features: dict[str, Any]) -> dict[str, Any]:
    """Pool logits (texts, length, vocabulary) as sentence-transformers does, but take their maximum first.

    The order does not change the result, and the logits of all tokens need not be kept for the backward pass: on two
    cores, training takes a third of the time, encoding half of it.
    """
    logits, mask = features["token_embeddings"], features["attention_mask"]
    if not bool(mask.all()):
        logits = logits.masked_fill(mask.unsqueeze(-1) == 0, 0.0)
    weights = logits.max(dim=1).values.relu().log1p()  # (texts, vocabulary)
    return {**features, EMBEDDING: weights.log1p() if activation == "log1p_relu" else weights}


def top(weights: Tensor, most: int) -> Tensor:
    """Keep the greatest weights of each text, (texts, vocabulary)."""
    greatest = weights.topk(min(most, weights.shape[1]))
    return torch.zeros_like(weights).scatter(1, greatest.indices, greatest.values)


load_sparse_encoder = SparseEncoder.load


def new_sparse_encoder(
    base_model: str | Path,
    settings: EncoderSettings,
    seed: int,
    start: str | Path | None = None,
    cleaning: str = "raw",
    fixed: Tensor | None = None,
) -> SparseEncoder:
    """Put a new prediction head and SPLADE's pooling on a base model; one with modules keeps its own.

    :param start: folder of a trained encoder, whose weights replace both.
    :param fixed: weights of query tokens, (vocabulary,), so that no model encodes queries.
    """
    encoder = (
        load_sparse_encoder(base_model) if has_modules(base_model) else _build(base_model, settings, seed, cleaning)
    )
    if fixed is not None and type(route(encoder.saved, "query")[0]).__name__ != "SparseStaticEmbedding":
        encoder = without_query_model(encoder, fixed)
    if start is not None:
        encoder.start_from(start)
    encoder.check_lengths("", base_model)
    return encoder.train()


def _build(base_model: str | Path, settings: EncoderSettings, seed: int, cleaning: str) -> SparseEncoder:
    module = new_transformer(base_model, False, seed, "fill-mask")
    import sentence_transformers
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    set_tokenizer(module, base_model, settings.passage_length, 0, cleaning)
    module.query_length, module.document_length = settings.query_length, settings.passage_length
    predict_own_tokens(module.model)
    modules = [module, SpladePooling("max")]
    return SparseEncoder(sentence_transformers.SparseEncoder(modules=modules, device="cpu", similarity_fn_name="dot"))


def predict_own_tokens(model: Any) -> None:
    """Let a new prediction head predict a text's own tokens first, so that training starts from their matches.

    A head of random weights gives all tokens of the vocabulary about the same weight.
    """
    trained = {id(weight) for weight in model.base_model.parameters()}
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and layer.in_features == layer.out_features and id(layer.weight) not in trained:
            nn.init.eye_(layer.weight)
    embeddings = model.get_output_embeddings()
    size, width = embeddings.weight.norm(dim=1).mean().item(), embeddings.in_features
    nn.init.constant_(embeddings.bias, -size * min(OTHER_TOKENS, OWN_TOKENS * width**0.5))


def without_query_model(encoder: SparseEncoder, weights: Tensor) -> SparseEncoder:
    """Let the tokens of queries have fixed weights, (vocabulary,), so that no model encodes them."""
    import sentence_transformers
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    tokenizer = copy.deepcopy(route(encoder.saved, "query")[0].tokenizer)
    tokenizer.model_max_length = encoder.framings["query"].length
    fixed = SparseStaticEmbedding(tokenizer, weights, frozen=True)
    router = Router({"document": [*encoder.saved.children()], "query": [fixed]}, default_route="document")
    return SparseEncoder(sentence_transformers.SparseEncoder(modules=[router], device="cpu", similarity_fn_name="dot"))


def idf(passages: Tokens, vocabulary: int) -> Tensor:
    """Compute the inverse document frequency of each token id as Lucene does, (vocabulary,)."""
    counts, rows = np.zeros(vocabulary), len(passages)
    for row in range(rows):
        counts[np.unique(passages[row])] += 1
    return torch.from_numpy(np.log1p((rows - counts + 0.5) / (counts + 0.5)).astype(np.float32))
