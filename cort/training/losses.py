"""Training objectives: a loss and its settings are one entry of `ENCODER_OBJECTIVES` or `RERANKER_OBJECTIVES`.

To add an objective, write a function and, if it has settings, a section for them; enter both under the name that
experiments use. Settings become keys of the config, params of the rule that trains, and options of its stage; the first
line of the function's docstring describes the objective in docs/reference.md. The first entry is the default. The
workflow reads these entries, too, and must not wait for torch, so only the functions import it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import Field

from cort.runtime.sections import Section

if TYPE_CHECKING:
    from torch import Tensor

Similarity: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"

# arccos has an infinite slope at -1 and 1, so cosines are clamped slightly inside.
COSINE_LIMIT = 1.0 - 1e-6


def inner_product(queries: Tensor, passages: Tensor) -> Tensor:
    """Compute ``q . d`` for all pairs (RepBERT, section 3.1), in single precision at least.

    :param queries: (..., n, e); `passages` (..., m, e).
    :returns: (..., n, m).
    """
    from cort.models.transformer import single

    return single(queries) @ single(passages).mT


def cosine_similarity(queries: Tensor, passages: Tensor) -> Tensor:
    """Compute the cosine for all pairs, which ranks like the angle; shapes as for `inner_product`."""
    from torch.nn.functional import normalize

    from cort.models.transformer import single

    return inner_product(normalize(single(queries), dim=-1), normalize(single(passages), dim=-1))


def angular_similarity(queries: Tensor, passages: Tensor) -> Tensor:
    """Compute ``1 - arccos(cos(q, d)) / pi`` for all pairs, in [0, 1] (CoRT, section 3.3)."""
    cosine = cosine_similarity(queries, passages).clamp(-COSINE_LIMIT, COSINE_LIMIT)  # (..., n, m)
    return 1.0 - cosine.arccos() / math.pi


SIMILARITIES: dict[str, Similarity] = {
    "angular": angular_similarity,
    "cosine": cosine_similarity,
    "inner_product": inner_product,
}


@dataclass(frozen=True)
class Batch:
    """Mini-batches of n queries with a positive and k negatives each, as losses see them.

    `queries` (mini-batches, n, e) and `passages` (mini-batches, (1 + k) n, e) are vectors: all positives, then the
    first negative of each query, then the second. `relevant` tells which passages are relevant to which query,
    `others` which passages other than the query's own positive are, or may be, (mini-batches, n, (1 + k) n) each.
    `scores` are the teacher's of each query's own passages, (mini-batches, n, 1 + k), one NaN without a teacher.
    """

    queries: Tensor
    passages: Tensor
    relevant: Tensor
    others: Tensor
    scores: Tensor

    def own(self, similarity_of: Similarity) -> Tensor:
        """Compute the similarity of each query with its positive and its negatives, (mini-batches, n, 1 + k)."""
        import torch

        parts = torch.split(self.passages, self.queries.shape[-2], dim=-2)  # (mini-batches, n, e) each
        pairs = ((self.queries.unsqueeze(-2), part.unsqueeze(-2)) for part in parts)
        return torch.stack([similarity_of(*pair).flatten(-3) for pair in pairs], dim=-1)


class NoSettings(Section):
    """Settings of a loss that has none."""


@dataclass(frozen=True)
class EncoderObjective:
    """A loss of an encoder, called with mini-batches of triples, its settings, and the similarity of vectors.

    It returns one number per mini-batch. Set `judgements` if it reads `Batch.relevant`, `teacher` if it reads
    `Batch.scores`, and `guided` if it reads `Batch.others`, to leave out negatives that may be relevant.
    """

    loss: Callable[[Batch, Any, Similarity], Tensor]
    settings: type[Any] = NoSettings
    judgements: bool = False
    teacher: bool = False
    guided: bool = False


class Triplet(Section):
    """Settings of the triplet loss."""

    margin: float = Field(0.1, ge=0, le=1000)
    """Margin of the triplet loss."""


def triplet_loss(batch: Batch, settings: Triplet, similarity_of: Similarity) -> Tensor:
    """Triplet margin loss of each query and every other passage of the mini-batch, summed up (CoRT, section 3.3).

    For query i all passages except its own positive are negatives: ``max(0, sim(q_i, d) - sim(q_i, d+) + margin)``.

    :returns: (mini-batches,), the sum (not the mean) over the terms of each, with k negatives n * ((1 + k) n - 1).
    """
    import torch

    similarity = similarity_of(batch.queries, batch.passages)  # (..., n, m), m = (1 + k) n
    own = similarity.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)  # (..., n, 1)
    terms = (similarity - own + settings.margin).relu()  # (..., n, m)
    is_own = torch.eye(*similarity.shape[-2:], dtype=torch.bool, device=similarity.device)  # (n, m)
    return terms.masked_fill(is_own, 0.0).sum((-2, -1))


def multilabel_margin_loss(batch: Batch, _: NoSettings, similarity_of: Similarity) -> Tensor:
    """Margin loss of every relevant passage against every other passage of the mini-batch (RepBERT, section 3.2).

    For query i: the sum of ``max(0, 1 - (sim(q_i, d+) - sim(q_i, d)))`` over its relevant passages d+ and all other
    passages d of the mini-batch, divided by the number of passages.

    :returns: (mini-batches,), the mean over the queries of each.
    """
    import torch
    from torch.nn.functional import multilabel_margin_loss

    similarity, relevant = similarity_of(batch.queries, batch.passages), batch.relevant  # (..., n, m) each
    # Torch's labels are the columns of the relevant passages, followed by -1.
    columns = torch.argsort(relevant.int(), dim=-1, descending=True, stable=True)  # (..., n, m)
    place = torch.arange(relevant.shape[-1], device=relevant.device)  # (m,)
    columns = columns.masked_fill(place >= relevant.sum(-1, keepdim=True), -1).flatten(0, -2)
    terms = multilabel_margin_loss(similarity.flatten(0, -2), columns, reduction="none")
    return terms.reshape(similarity.shape[:-1]).mean(-1)


class Temperature(Section):
    """How similarities become probabilities."""

    temperature: float = Field(0.05, gt=0, le=1000)
    """Divides the similarities of `info_nce` and `kl`."""


class InfoNCE(Temperature):
    """Settings of InfoNCE."""

    relative_margin: float | None = Field(None, ge=0, lt=1)
    """With `info_nce`, leave out probably relevant passages: those that the initial model scores above (1 - this) times
    the query's positive; null: none."""


def info_nce_loss(batch: Batch, settings: InfoNCE, similarity_of: Similarity) -> Tensor:
    """Cross-entropy of each query's positive among the passages of the mini-batch (van den Oord et al., 2018).

    For query i: ``-log(exp(sim(q_i, d_i) / t) / sum of exp(sim(q_i, d) / t))``; the sum is over its positive d_i and
    all passages d that are not, and may not be, relevant.

    :returns: (mini-batches,), the mean over the queries of each.
    """
    logits = similarity_of(batch.queries, batch.passages) / settings.temperature  # (..., n, m)
    logits = logits.masked_fill(batch.others, -math.inf)
    own = logits.diagonal(dim1=-2, dim2=-1)  # (..., n)
    return (logits.logsumexp(-1) - own).mean(-1)


def margin_mse_loss(batch: Batch, _: NoSettings, similarity_of: Similarity) -> Tensor:
    """Squared error of the margin between positive and negative (Hofstaetter et al., 2020).

    :returns: (mini-batches,), the mean over the negatives of each.
    """
    margins, scored = (part[..., :1] - part[..., 1:] for part in (batch.own(similarity_of), batch.scores))
    return (margins - scored.to(margins.dtype)).square().flatten(-2).mean(-1)


class Distillation(Temperature):
    """Settings of the distillation of scores."""

    teacher_temperature: float = Field(1.0, gt=0, le=1000)
    """Divides the teacher's scores of `kl`."""


def kl_loss(batch: Batch, settings: Distillation, similarity_of: Similarity) -> Tensor:
    """Kullback-Leibler divergence from a teacher's softmax over positive and negatives (Hinton et al., 2015).

    For query i: the sum of ``p(d) * log(p(d) / q(d))`` over its own passages, where p is the softmax of the scores and
    q that of the similarities, each divided by its temperature, as in ColBERTv2 (Santhanam et al., 2022, section 3.2).

    :returns: (mini-batches,), the mean over the queries of each.
    """
    found = (batch.own(similarity_of) / settings.temperature).log_softmax(-1)  # (..., n, 1 + k)
    told = (batch.scores.to(found.dtype) / settings.teacher_temperature).log_softmax(-1)
    return (told.exp() * (told - found)).sum(-1).mean(-1)


def nested(loss: Callable[[Batch], Tensor], sizes: Sequence[int]) -> Callable[[Batch], Tensor]:
    """Add up a loss over the first numbers of all vectors, once for each size (Kusupati et al., 2022, equation 1).

    A prefix of a vector is then a vector, too.
    """

    def total(batch: Batch) -> Tensor:
        vectors = ((batch.queries[..., :size], batch.passages[..., :size]) for size in sizes)
        parts = (replace(batch, queries=queries, passages=passages) for queries, passages in vectors)
        return reduce(operator.add, map(loss, parts))

    return total


ENCODER_OBJECTIVES = {
    "triplet": EncoderObjective(triplet_loss, Triplet),
    "multilabel_margin": EncoderObjective(multilabel_margin_loss, judgements=True),
    "info_nce": EncoderObjective(info_nce_loss, InfoNCE, judgements=True, guided=True),
    "margin_mse": EncoderObjective(margin_mse_loss, teacher=True),
    "kl": EncoderObjective(kl_loss, Distillation, teacher=True),
}


@dataclass(frozen=True)
class RerankerObjective:
    """A loss of a re-ranker, called with logits and relevance (examples, pairs) and its settings; returns (examples,).

    An example is one pair or, if `grouped`, a positive and the negatives that follow it, padded to the largest group.
    """

    loss: Callable[[Tensor, Tensor, Any], Tensor]
    settings: type[Any] = NoSettings
    grouped: bool = False


class Pointwise(Section):
    """Settings of the pointwise loss."""

    pos_weight: float = Field(1.0, gt=0, le=10_000)
    """Weight of the positives in the pointwise loss; the number of negatives per positive balances both."""


def pointwise_loss(logits: Tensor, relevance: Tensor, settings: Pointwise) -> Tensor:
    """Binary cross-entropy of query-passage pairs (CoRT, section 4.3.1), times `pos_weight` for positives."""
    from torch.nn.functional import binary_cross_entropy_with_logits

    from cort.models.transformer import single

    logits = single(logits).reshape(-1)
    relevance = relevance.reshape(-1).to(logits.dtype)
    loss = binary_cross_entropy_with_logits(logits, relevance, reduction="none")
    return loss if settings.pos_weight == 1 else loss * (1 + (settings.pos_weight - 1) * relevance)


def softmax_loss(logits: Tensor, relevance: Tensor, _: NoSettings) -> Tensor:
    """Cross-entropy of each positive among its negatives; `training.batch_size` counts these groups.

    This is the localised contrastive loss (Gao et al., 2021).

    :param logits: padded with -inf.
    :param relevance: 1 for one passage of each group.
    """
    from cort.models.transformer import single

    logits = single(logits)
    return logits.logsumexp(-1) - logits.masked_fill(relevance == 0, 0.0).sum(-1)


RERANKER_OBJECTIVES = {
    "pointwise": RerankerObjective(pointwise_loss, Pointwise),
    "softmax": RerankerObjective(softmax_loss, grouped=True),
}


Objectives: TypeAlias = "Mapping[str, EncoderObjective] | Mapping[str, RerankerObjective]"


def classes_of(objectives: Objectives) -> tuple[type[Any], ...]:
    """List the classes of settings of all objectives, each once."""
    return tuple(dict.fromkeys(objective.settings for objective in objectives.values()))
