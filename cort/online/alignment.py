"""Which tokens of a query and a passage a neural model matches, and what each match adds to the score."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cort.formats.shards import Tokens
from cort.models.batching import Sequences
from cort.models.cross_encoder import Pairs
from cort.models.encoder import texts_of
from cort.models.kernel_pooling import PASSAGE, QUERY, KernelPooling, pool_kernels
from cort.models.late_interaction import token_similarities
from cort.online.neural import QueryEncoder, Reranker, TokenEncoder

FIRST_ROW = np.zeros(1, np.int64)


class Match(NamedTuple):
    """A query token, the most similar token of the passage, and the weight of their similarity in the score."""

    token: str
    match: str
    similarity: float
    weight: float = 1.0


def nearest_tokens(encoder: QueryEncoder, query: str, passage: str) -> list[Match]:
    """Find, for each token of a query, the token of a passage with the most similar vector, by cosine.

    A token's vector is its last hidden state, projected like the pooled one. The similarities do not add up to the
    score, because pooling and the layers after it cannot be split by token.
    """
    tokens, vectors = _token_vectors(encoder, query, "query")
    passage_tokens, passage_vectors = _token_vectors(encoder, passage, "passage")
    if not tokens or not passage_tokens:
        return []
    best, places = (vectors @ passage_vectors.mT).max(-1)  # (m,)
    nearest = [passage_tokens[place] for place in places.tolist()]
    return [Match(*match) for match in zip(tokens, nearest, best.tolist(), strict=True)]


def _token_vectors(encoder: QueryEncoder, text: str, kind: str) -> tuple[list[str], Tensor]:
    """Return the tokens of a text, as far as the model reads it, and their unit vectors of shape (tokens, e)."""
    model = encoder.model
    [ids] = encoder.tokenize([text], kind)
    texts = texts_of(Tokens.of_texts([ids]), model, kind)
    template = texts.template
    kept = ids[: texts.max_length - template.extra]
    batch = _on_device(texts.sequences(FIRST_ROW), encoder.device)
    with torch.inference_mode():
        vectors = model.token_vectors(batch)[0, len(template.before) :][: len(kept)]  # (tokens, e)
    return encoder.tokenize.names(kept), functional.normalize(vectors, dim=-1)


def best_matches(model: Reranker | TokenEncoder, pairs: Pairs, row: int) -> list[Match]:
    """Find the matches whose weighted similarities late interaction adds up: the best one of each query token.

    They include special tokens and query augmentation, but no tokens of weight 0. A passage without tokens has an empty
    match.
    """
    sides: list[tuple[Tensor, Tensor]] = []

    def forward(batch: dict[str, Any]) -> Tensor:
        vectors: Tensor = model.model(batch)
        sides.append((batch["input_ids"][0], vectors[0]))
        return vectors

    _score(pairs, row, model.device, forward)
    (query_ids, queries), (passage_ids, passages) = sides
    best, places = token_similarities(queries, passages, str(model.model.similarity)).max(-1)  # (m,)
    tokens = model.tokenize.names(passage_ids)
    nearest = [tokens[place] if passages[place, -1] else "" for place in places.tolist()]
    # After its tokens, a query has padding of weight 0.
    listed = zip(model.tokenize.names(query_ids), nearest, best.tolist(), queries[:, -1].tolist(), strict=False)
    return [match for match in (Match(*values) for values in listed) if match.weight]


def word_scores(reranker: Reranker, query: str, row: int) -> list[tuple[str, float]]:
    """Compute what each query token adds to the score of kernel pooling; the last value is the bias of its layer.

    A token of Conv-KNRM adds what the n-grams that begin with it add.
    """
    model = reranker.model
    added: list[tuple[str, float]] = []
    assert isinstance(model, KernelPooling)  # noqa: S101

    def forward(batch: dict[str, Tensor]) -> Tensor:
        score: Tensor = model(batch)
        segments, words = batch["token_type_ids"][0], model.vectors(batch["input_ids"])  # (1, length, e)
        masks = [segments == kind for kind in (QUERY, PASSAGE)]
        size, length = (int(mask.sum()) for mask in masks)
        if not size or not length:
            return score
        queries, passages = (model._views(words[:, mask], torch.ones_like(segments[mask])[None]) for mask in masks)
        # As many copies of the query as it has words; in each copy, a single word counts.
        single_words, counts = torch.eye(size, device=words.device), torch.ones(size, length, device=words.device)
        pooled = [
            pool_kernels(
                view.expand(size, -1, -1), single_words, other.expand(size, -1, -1), counts, model.means, model.widths
            )
            for view, other in product(queries, passages)
        ]
        scores = torch.cat(pooled, dim=-1) @ model.weigh.weight[0]  # (m,)
        tokens = reranker.tokenize.names(batch["input_ids"][0][masks[0]])
        added.extend(zip(tokens, scores.tolist(), strict=True))
        return score

    _score(reranker.pairs(query), row, reranker.device, forward)
    return [*added, ("", model.weigh.bias.item())]


def _score(pairs: Pairs, row: int, device: torch.device, forward: Callable[[dict[str, Tensor]], Tensor]) -> None:
    """Score a pair with `forward`, which gets every batch of the model."""
    with torch.inference_mode():
        pairs.scores(lambda sequences: forward(_on_device(sequences, device)), FIRST_ROW, np.array([row], np.int64))


def _on_device(sequences: Sequences, device: torch.device) -> dict[str, Any]:
    batch = sequences.batch(FIRST_ROW)
    return batch | {name: value.to(device) for name, value in batch.items() if isinstance(value, Tensor)}
