"""Which examples of an update go through the model together.

The loss couples the examples of one mini-batch only (CoRT: 6 triples of 600), so many mini-batches can be encoded at
once, in order of length; the gradients are those of one mini-batch after the other, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from cort.training.settings import TrainingSettings

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Chunk:
    """Mini-batches that are encoded together: positions of their examples, `size` after `size` one mini-batch."""

    examples: Rows
    size: int

    def __len__(self) -> int:
        """Count the mini-batches."""
        return len(self.examples) // self.size

    def name(self, mini_batch: int) -> str:
        """Name the examples of one of the mini-batches."""
        part = self.examples[mini_batch * self.size : (mini_batch + 1) * self.size]
        return f"the examples {part[0]} to {part[-1]}" if self.size > 1 else f"the example {part[0]}"


def activation_limit(settings: TrainingSettings, processes: int) -> float:
    """Tokens that may wait for their gradients; without limit if they are computed again for them."""
    return inf if settings.gradient_checkpointing else settings.tokens_at_once * processes


def consecutive_chunks(examples: Rows, size: int, tokens: npt.NDArray[np.integer], limit: float) -> list[Chunk]:
    """Join consecutive mini-batches of at most `limit` tokens; a longer one stands alone.

    :param examples: of whole mini-batches of `size`.
    :param tokens: of each example.
    """
    totals = tokens.reshape(-1, size).sum(1)
    chunks, start, joined = [], 0, 0
    for position, total in enumerate(totals.tolist()):
        if position > start and joined + total > limit:
            chunks.append(Chunk(examples[start * size : position * size], size))
            start, joined = position, 0
        joined += total
    return [*chunks, Chunk(examples[start * size :], size)]


def chunks_by_length(examples: Rows, tokens: npt.NDArray[np.integer], limit: float) -> list[Chunk]:
    """Join examples of similar length, longest first; each is a mini-batch of its own, as no other changes its loss."""
    by = np.argsort(-np.asarray(tokens), kind="stable")
    return consecutive_chunks(examples[by], 1, tokens[by], limit)
