"""Training objectives as pure functions of embeddings and logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

Similarity: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# arccos has an infinite slope at +-1; the nearest cosines this far inside have a finite one.
COSINE_LIMIT = 1.0 - 1e-6


def angular_similarity(queries: Tensor, passages: Tensor) -> Tensor:
    """Compute ``1 - arccos(cos(q, d)) / pi`` for all pairs (CoRT, section 3.3).

    :param queries: (n, e).
    :param passages: (m, e).
    :returns: (n, m), in [0, 1], in single precision at least.
    """
    queries = functional.normalize(queries.to(torch.promote_types(queries.dtype, torch.float32)), dim=-1)
    passages = functional.normalize(passages.to(queries.dtype), dim=-1)
    cosine = (queries @ passages.T).clamp(-COSINE_LIMIT, COSINE_LIMIT)  # (n, m)
    return 1.0 - torch.arccos(cosine) / math.pi


def inner_product(queries: Tensor, passages: Tensor) -> Tensor:
    """Compute ``q . d`` for all pairs (RepBERT, section 3.2); shapes as for `angular_similarity`."""
    queries = queries.to(torch.promote_types(queries.dtype, torch.float32))
    return queries @ passages.to(queries.dtype).T  # (n, m)


SIMILARITIES: dict[str, Similarity] = {"angular": angular_similarity, "inner_product": inner_product}


def batch_triplet_loss(
    queries: Tensor, positives: Tensor, negatives: Tensor, margin: float, similarity_of: Similarity = angular_similarity
) -> Tensor:
    """Sum the triplet margin loss over each query and every other passage of the batch (CoRT, section 3.3).

    For query i all 2n passages but its own positive are negatives: ``max(0, sim(q_i, d) - sim(q_i, d_i+) + margin)``.

    :param queries: (n, e); `positives` and `negatives` likewise, row i belonging to query i.
    :returns: a scalar, the sum (not the mean) over the n * (2n - 1) terms.
    """
    similarity = similarity_of(queries, torch.cat([positives, negatives]))  # (n, 2n)
    own = similarity.diagonal().unsqueeze(1)  # (n, 1)
    terms = functional.relu(similarity - own + margin)  # (n, 2n)
    is_own = torch.eye(len(similarity), similarity.shape[1], dtype=torch.bool, device=similarity.device)
    return terms.masked_fill(is_own, 0.0).sum()


def multilabel_margin_loss(
    queries: Tensor, passages: Tensor, positive: Tensor, similarity_of: Similarity = inner_product
) -> Tensor:
    """Margin loss of every relevant passage of the batch against every other one (RepBERT, section 3.3).

    For query i: the sum of ``max(0, 1 - (sim(q_i, d+) - sim(q_i, d)))`` over its relevant passages d+ of the batch and
    all that are not, divided by the number of passages.

    :param queries: (n, e).
    :param passages: (m, e).
    :param positive: (n, m), whether a passage is relevant.
    :returns: a scalar, the mean over the queries.
    """
    similarity = similarity_of(queries, passages)  # (n, m)
    # Torch wants the columns of the relevant passages first, then -1.
    counts = positive.sum(1, keepdim=True)  # (n, 1)
    columns = torch.argsort(positive.int(), dim=1, descending=True, stable=True)  # (n, m)
    place = torch.arange(positive.shape[1], device=positive.device)  # (m,)
    return functional.multilabel_margin_loss(similarity, columns.masked_fill(place >= counts, -1))


def pointwise_loss(logits: Tensor, relevance: Tensor) -> Tensor:
    """Mean binary cross-entropy of query-passage pairs (CoRT, section 4.3.1).

    :param logits: (n,).
    :param relevance: (n,), 0 or 1.
    """
    return functional.binary_cross_entropy_with_logits(logits.float(), relevance.float())
