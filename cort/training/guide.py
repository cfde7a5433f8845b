"""Negatives that may be relevant though nobody judged them, told by the encoder as it was before training.

A passage that the start ranks about as high as a query's positive is more likely a relevant one that nobody judged than
a mistake to be unlearned (Moreira et al., 2024, "NV-Retriever", section 4; Solatorio, 2024, "GISTEmbed").
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from cort.models.encoder import Encoder, Texts
from cort.models.transformer import counted
from cort.system.progress import Counter
from cort.training.microbatches import Rows

log = logging.getLogger(__name__)

# Texts that are encoded together.
TEXTS_AT_ONCE = 4_096
MINI_BATCHES_AT_ONCE = 64
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Vectors:
    """Vectors (rows, e) of some rows of a token cache, in growing order."""

    rows: Rows
    values: npt.NDArray[np.float32]

    def of(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Look up vectors; (..., e) for rows of any shape."""
        found: npt.NDArray[np.float32] = self.values[np.searchsorted(self.rows, rows)]
        return found


@dataclass(frozen=True)
class Guide:
    """The vectors of all texts of some triples before training, and how near to the positive is too near."""

    margin: float
    queries: Vectors
    passages: Vectors

    def too_near(self, triples: Rows) -> Mask:
        """Tell which passages score above ``(1 - margin)`` times the query's positive; in [0, 1] that is a share of it.

        :param triples: rows of queries, positives and negatives, (3, mini-batches, n).
        :returns: (mini-batches, n, 2n); what it says of a query's own positive means nothing.
        """
        queries, *passages = triples
        vectors = self.queries.of(queries), self.passages.of(np.concatenate(passages, axis=-1))
        scores = vectors[0] @ vectors[1].swapaxes(-1, -2)  # (mini-batches, n, 2n)
        own = np.diagonal(scores, axis1=-2, axis2=-1)[..., None]  # (mini-batches, n, 1)
        near: Mask = scores > own - self.margin * np.abs(own)
        return near


def encode_start(encoder: Encoder, texts: Texts, rows: Rows, what: str) -> Vectors:
    """Encode rows with the encoder as it is now, on a GPU if there is one."""
    rows, device = np.unique(rows), _device()
    encoder.eval().to(device)
    parts = np.split(rows, range(TEXTS_AT_ONCE, len(rows), TEXTS_AT_ONCE))
    with Counter(len(rows), f"{what} encoded before training") as counter, counted(encoder, counter):
        vectors = [texts.vectors(encoder, part, device).cpu().numpy() for part in parts]
    encoder.train().cpu()
    return Vectors(rows, np.concatenate(vectors))


def report_left_out(guide: Guide, triples: Rows, size: int) -> None:
    """Log the shares of negatives that are too near, in mini-batches of `size` of these triples."""
    count = triples.shape[1] // size * size
    if not count:
        return
    batches = triples[:, :count].reshape(3, -1, size)
    own, hard = np.eye(size, 2 * size, dtype=bool), np.eye(size, 2 * size, k=size, dtype=bool)
    near = np.zeros((size, 2 * size))
    for start in range(0, batches.shape[1], MINI_BATCHES_AT_ONCE):
        near += guide.too_near(batches[:, start : start + MINI_BATCHES_AT_ONCE]).sum(0)
    shares = [near[of].sum() / of.sum() / batches.shape[1] for of in (hard, ~own & ~hard)]
    say = log.warning if shares[0] > 0.5 else log.info
    say(
        "left out as near as positives: %.1f %% of hard negatives, %.2f %% of other passages",
        *(100 * s for s in shares),
    )


def _device() -> torch.device:
    if not torch.cuda.is_available() or os.environ.get("ACCELERATE_USE_CPU") == "true":
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
