"""Training objectives as pure functions of embeddings and logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from cort.models.transformer import single

Similarity: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# arccos has an infinite slope at +-1; the nearest cosines this far inside have a finite one.
COSINE_LIMIT = 1.0 - 1e-6


def inner_product(queries: Tensor, passages: Tensor) -> Tensor:
    """Compute ``q . d`` for all pairs (RepBERT, section 3.1), in single precision at least.

    Of queries (..., n, e) and passages (..., m, e); returns (..., n, m).
    """
    return single(queries) @ single(passages).mT  # (..., n, m)


def cosine_similarity(queries: Tensor, passages: Tensor) -> Tensor:
    """Compute the cosine for all pairs, which ranks as the angle does; shapes as for `inner_product`."""
    return inner_product(functional.normalize(single(queries), dim=-1), functional.normalize(single(passages), dim=-1))


def angular_similarity(queries: Tensor, passages: Tensor) -> Tensor:
    """Compute ``1 - arccos(cos(q, d)) / pi`` for all pairs, in [0, 1] (CoRT, section 3.3); shapes as there."""
    cosine = cosine_similarity(queries, passages).clamp(-COSINE_LIMIT, COSINE_LIMIT)  # (..., n, m)
    return 1.0 - torch.arccos(cosine) / math.pi


SIMILARITIES: dict[str, Similarity] = {
    "angular": angular_similarity,
    "cosine": cosine_similarity,
    "inner_product": inner_product,
}


def batch_triplet_loss(
    queries: Tensor, positives: Tensor, negatives: Tensor, margin: float, similarity_of: Similarity = angular_similarity
) -> Tensor:
    """Sum the triplet margin loss over each query and every other passage of the batch (CoRT, section 3.3).

    For query i all 2n passages but its own positive are negatives: ``max(0, sim(q_i, d) - sim(q_i, d_i+) + margin)``.

    :param queries: (..., n, e), many mini-batches at once; `positives` and `negatives` likewise, row i of query i.
    :returns: (...), the sum (not the mean) over the n * (2n - 1) terms of each mini-batch.
    """
    similarity = similarity_of(queries, torch.cat([positives, negatives], dim=-2))  # (..., n, 2n)
    own = similarity.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)  # (..., n, 1)
    terms = functional.relu(similarity - own + margin)  # (..., n, 2n)
    is_own = torch.eye(*similarity.shape[-2:], dtype=torch.bool, device=similarity.device)  # (n, 2n)
    return terms.masked_fill(is_own, 0.0).sum((-2, -1))


def multilabel_margin_loss(
    queries: Tensor, passages: Tensor, positive: Tensor, similarity_of: Similarity = inner_product
) -> Tensor:
    """Margin loss of every relevant passage of the batch against every other one (RepBERT, section 3.2).

    For query i: the sum of ``max(0, 1 - (sim(q_i, d+) - sim(q_i, d)))`` over its relevant passages d+ of the batch and
    all that are not, divided by the number of passages.

    :param queries: (..., n, e), many mini-batches at once; `passages` (..., m, e).
    :param positive: (..., n, m), whether a passage is relevant.
    :returns: (...), the mean over the queries of each mini-batch.
    """
    similarity = similarity_of(queries, passages)  # (..., n, m)
    # Torch wants the columns of the relevant passages first, then -1.
    counts = positive.sum(-1, keepdim=True)  # (..., n, 1)
    columns = torch.argsort(positive.int(), dim=-1, descending=True, stable=True)  # (..., n, m)
    place = torch.arange(positive.shape[-1], device=positive.device)  # (m,)
    columns = columns.masked_fill(place >= counts, -1).flatten(0, -2)
    terms = functional.multilabel_margin_loss(similarity.flatten(0, -2), columns, reduction="none")
    return terms.reshape(similarity.shape[:-1]).mean(-1)


def info_nce_loss(
    queries: Tensor, passages: Tensor, others: Tensor, temperature: float, similarity_of: Similarity = cosine_similarity
) -> Tensor:
    """Cross-entropy of each query's own passage among all passages of the batch (van den Oord et al., 2018).

    For query i: ``-log(exp(sim(q_i, d_i) / t) / sum of exp(sim(q_i, d) / t))`` over its own passage d_i, which is the
    i-th, and all that count as negatives.

    :param queries: (..., n, e), many mini-batches at once; `passages` (..., m, e), m >= n.
    :param others: (..., n, m), whether a passage is relevant though not the query's own: these are left out.
    :returns: (...), the mean over the queries of each mini-batch.
    """
    logits = similarity_of(queries, passages) / temperature  # (..., n, m)
    logits = logits.masked_fill(others, -torch.inf)
    own = logits.diagonal(dim1=-2, dim2=-1)  # (..., n)
    return (logits.logsumexp(-1) - own).mean(-1)


def margin_mse_loss(
    queries: Tensor, positives: Tensor, negatives: Tensor, margins: Tensor, similarity_of: Similarity = inner_product
) -> Tensor:
    """Squared error of the margin between positive and negative (Hofstaetter et al., 2020).

    :param queries: (..., n, e); `positives` and `negatives` likewise, row i of query i.
    :param margins: (..., n), the teacher's score of the positive less that of the negative.
    :returns: (...), the mean over the triples of each mini-batch.
    """
    near, far = (
        similarity_of(queries.unsqueeze(-2), one.unsqueeze(-2)).flatten(-3) for one in (positives, negatives)
    )  # (..., n) each
    return (near - far - margins.to(near.dtype)).square().mean(-1)


def pointwise_loss(logits: Tensor, relevance: Tensor, pos_weight: float = 1.0) -> Tensor:
    """Binary cross-entropy of query-passage pairs (CoRT, section 4.3.1), that of positives times `pos_weight`.

    :param logits: (n, 1) or (n,); `relevance` likewise, 0 or 1.
    :returns: (n,).
    """
    logits = single(logits).reshape(-1)
    relevance = relevance.reshape(-1).to(logits.dtype)
    loss = functional.binary_cross_entropy_with_logits(logits, relevance, reduction="none")
    return loss if pos_weight == 1 else loss * (1 + (pos_weight - 1) * relevance)


def softmax_loss(logits: Tensor, relevance: Tensor) -> Tensor:
    """Cross-entropy of the positive of each group among its passages (Gao et al., 2021, localised contrastive).

    :param logits: (groups, most), those of places without a passage -inf.
    :param relevance: (groups, most), 1 for one passage of each group.
    :returns: (groups,).
    """
    logits = single(logits)
    return logits.logsumexp(-1) - logits.masked_fill(relevance == 0, 0.0).sum(-1)
