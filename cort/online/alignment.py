"""What of a query meets what of a passage in a neural model, token by token."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cort.formats.tokens import Tokens
from cort.models.batching import Sequences
from cort.models.encoder import texts_of
from cort.models.kernel_pooling import PASSAGE, QUERY, KernelPooling, pool_kernels
from cort.models.late_interaction import token_similarities
from cort.models.rerankers import PairsToScore
from cort.models.transformer import single
from cort.online.neural import QueryEncoder, Reranker
from cort.online.token_vectors import TokenSearch
from cort.online.tokenizer import TokenIds

ONE = np.zeros(1, np.int64)


class Match(NamedTuple):
    """A token of the query, the token of the passage that is most similar to it, and what the similarity counts."""

    token: str
    match: str
    similarity: float
    weight: float = 1.0


def nearest_tokens(encoder: QueryEncoder, query: str, passage: str) -> list[Match]:
    """Find, for each token of a query, the token of a passage with the most similar vector, by cosine.

    A token's vector is its last state, projected as the pooled one is. Pooling, and the layers above it, leave no parts
    of a score: these do not add up to it.
    """
    sides = [
        _token_vectors(encoder, encoder.tokenize([text], kind)[0], kind)
        for kind, text in (("query", query), ("passage", passage))
    ]
    (tokens, vectors), (others, known) = sides
    if not tokens or not others:
        return []
    best, at = (vectors @ known.mT).max(-1)  # (m,)
    pairs = zip(tokens, at.tolist(), best.tolist(), strict=True)
    return [Match(token, others[place], similarity) for token, place, similarity in pairs]


def _token_vectors(encoder: QueryEncoder, ids: TokenIds, kind: str) -> tuple[list[str], Tensor]:
    """Tokens of a text, as far as the model reads it, and their vectors of length 1, of shape (tokens, e)."""
    model, template = encoder.model, encoder.template
    texts = texts_of(Tokens.of_texts([ids]), template, model.settings, kind)
    kept = ids[: texts.max_length - template.extra]
    batch = _on(texts.sequences(ONE), encoder.device)
    with torch.inference_mode():
        states = model.transformer(**{name: batch[name] for name in model.inputs}).last_hidden_state
        vectors = single(states[0, len(template.before) :][: len(kept)])  # (tokens, h)
        if model.projection is not None:
            vectors = model.projection(vectors)  # (tokens, e)
            vectors = vectors.tanh() if model.settings.activation == "tanh" else vectors
    return encoder.tokenize.names(kept), functional.normalize(vectors, dim=-1)


def best_matches(reranker: Reranker | TokenSearch, pairs: PairsToScore, row: int) -> list[Match]:
    """Find what late interaction adds up: of each token of a query the best match, which counts `weight` times.

    Special tokens are among them, and what fills a query up; tokens that count nothing are not. A passage without
    tokens has an empty match.
    """
    seen: list[tuple[Tensor, Tensor]] = []

    def forward(batch: dict[str, Tensor]) -> Tensor:
        found: Tensor = reranker.model(batch)
        seen.append((batch["input_ids"][0], found[0]))
        return found

    _score(pairs, row, reranker.device, forward)
    (query_ids, queries), (passage_ids, passages) = seen
    best, at = token_similarities(queries, passages, reranker.model.settings.similarity).max(-1)  # (m,)
    tokens, others = reranker.tokenize.names(query_ids), reranker.tokenize.names(passage_ids)
    matches = [others[place] if passages[place, -1] else "" for place in at.tolist()]
    numbers = zip(matches, best.tolist(), queries[:, -1].tolist(), strict=True)
    # Behind its tokens, a query is padded with what counts nothing.
    listed = [(token, *rest) for token, rest in zip(tokens, numbers, strict=False)]
    return [Match(*one) for one in listed if one[-1]]


def word_scores(reranker: Reranker, query: str, row: int) -> list[tuple[str, float]]:
    """Find what kernel pooling adds up: of each token of a query what the layer makes of its counts, and its bias.

    With n-grams, the counts of those that begin at the token.
    """
    model = reranker.model
    found: list[tuple[str, float]] = []
    assert isinstance(model, KernelPooling)  # noqa: S101

    def forward(batch: dict[str, Tensor]) -> Tensor:
        score: Tensor = model(batch)
        segments, words = batch["token_type_ids"][0], model.vectors(batch["input_ids"])  # (1, length, e)
        masks = [segments == kind for kind in (QUERY, PASSAGE)]
        sizes = [int(mask.sum()) for mask in masks]
        if not all(sizes):
            return score
        queries, passages = (model._views(words[:, mask], torch.ones_like(segments[mask])[None]) for mask in masks)
        counts = torch.ones(sizes[0], sizes[1], device=words.device)
        # As many queries as words, in each of which one word counts.
        each = torch.eye(sizes[0], device=words.device)
        pooled = [
            pool_kernels(
                one.expand(sizes[0], -1, -1), each, other.expand(sizes[0], -1, -1), counts, model.means, model.widths
            )
            for one, other in product(queries, passages)
        ]
        scores = torch.cat(pooled, dim=-1) @ model.weigh.weight[0]  # (m,)
        tokens = reranker.tokenize.names(batch["input_ids"][0][masks[0]])
        found.extend(zip(tokens, scores.tolist(), strict=True))
        return score

    _score(reranker.pairs(query), row, reranker.device, forward)
    return [*found, ("", model.weigh.bias.item())]


def _score(pairs: PairsToScore, row: int, device: torch.device, forward: Callable[[dict[str, Tensor]], Tensor]) -> None:
    """Score a pair by `forward`, which is given all that goes through the model."""
    with torch.inference_mode():
        pairs.scores(lambda sequences: forward(_on(sequences, device)), ONE, np.array([row], np.int64))


def _on(sequences: Sequences, device: torch.device) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in sequences.batch(ONE).items()}
