"""Objectives an encoder can be trained with, one entry each: its loss, and what it needs to know of the triples.

Importing this does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from cort.system.options import optional

if TYPE_CHECKING:
    from torch import Tensor

    from cort.training.losses import Similarity


@dataclass(frozen=True)
class Batch:
    """Vectors of mini-batches of n triples, each of shape (mini-batches, n, e), and what is known of the triples.

    `relevant` tells which of the 2n passages, positives first, are relevant for which query, (mini-batches, n, 2n);
    `margins` are a teacher's scores of the positives less those of the negatives, (mini-batches, n).
    """

    queries: Tensor
    positives: Tensor
    negatives: Tensor
    relevant: Callable[[], Tensor]
    margins: Callable[[], Tensor]

    def passages(self) -> Tensor:
        """Join positives and negatives of each mini-batch; returns (mini-batches, 2n, e)."""
        import torch

        return torch.cat([self.positives, self.negatives], dim=-2)


def _triplet(batch: Batch, settings: ObjectiveSettings, similarity: Similarity) -> Tensor:
    from cort.training.losses import batch_triplet_loss

    return batch_triplet_loss(batch.queries, batch.positives, batch.negatives, settings.margin, similarity)


def _multilabel_margin(batch: Batch, _: ObjectiveSettings, similarity: Similarity) -> Tensor:
    from cort.training.losses import multilabel_margin_loss

    return multilabel_margin_loss(batch.queries, batch.passages(), batch.relevant(), similarity)


def _info_nce(batch: Batch, settings: ObjectiveSettings, similarity: Similarity) -> Tensor:
    import torch

    from cort.training.losses import info_nce_loss

    relevant = batch.relevant()  # (mini-batches, n, 2n)
    own = torch.eye(*relevant.shape[-2:], dtype=torch.bool, device=relevant.device)  # (n, 2n)
    return info_nce_loss(batch.queries, batch.passages(), relevant & ~own, settings.temperature, similarity)


def _margin_mse(batch: Batch, _: ObjectiveSettings, similarity: Similarity) -> Tensor:
    from cort.training.losses import margin_mse_loss

    return margin_mse_loss(batch.queries, batch.positives, batch.negatives, batch.margins(), similarity)


@dataclass(frozen=True)
class Objective:
    """A loss of mini-batches, returned in shape (mini-batches,), and whether it needs judgements or a teacher."""

    loss: Callable[[Batch, ObjectiveSettings, Similarity], Tensor]
    needs_judgements: bool = False
    needs_teacher: bool = False


#: an objective is added here, its settings below, its value in the experiment's schema
OBJECTIVES = {
    "triplet": Objective(_triplet),
    "multilabel_margin": Objective(_multilabel_margin, needs_judgements=True),
    "info_nce": Objective(_info_nce, needs_judgements=True),
    "margin_mse": Objective(_margin_mse, needs_teacher=True),
}

if TYPE_CHECKING:
    Loss: TypeAlias = str
else:
    Loss = Literal[tuple(OBJECTIVES)]


@dataclass(frozen=True)
class ObjectiveSettings:
    """Which objective, and the settings of those that have some."""

    loss: Loss = optional("triplet")
    margin: float = optional(0.1, "of the triplet loss")
    temperature: float = optional(0.05, "of InfoNCE")


def needs_judgements(loss: str) -> bool:
    """Whether a loss must know all relevant passages of a batch."""
    return OBJECTIVES[loss].needs_judgements


def needs_teacher(loss: str) -> bool:
    """Whether a loss learns from the scores of a cross-encoder."""
    return OBJECTIVES[loss].needs_teacher


def make_objective(settings: ObjectiveSettings, similarity: str) -> Callable[[Batch], Tensor]:
    """Choose the loss of mini-batches, returned in shape (mini-batches,).

    :param similarity: name of that of vectors.
    """
    from cort.training.losses import SIMILARITIES

    loss = OBJECTIVES[settings.loss].loss
    return lambda batch: loss(batch, settings, SIMILARITIES[similarity])
