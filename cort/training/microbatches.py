"""Examples through the model in training: which go together, at what precision, shared among the processes.

The loss couples the examples of one mini-batch only (CoRT: 6 triples of 600), so many mini-batches can be encoded at
once, in order of length; the gradients are those of one mini-batch after the other, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cort.models.batching import Sequences
from cort.models.transformer import TOKEN_BUDGETS, forward_by_length, single
from cort.training.settings import TrainingSettings

Rows: TypeAlias = npt.NDArray[np.int64]
#: mini-batches that are encoded together: positions of their examples, shape (mini-batches, examples of each)
MicroBatch: TypeAlias = Rows


def activation_limit(settings: TrainingSettings, processes: int) -> float:
    """Tokens that may wait for their gradients; without limit if they are computed again for them."""
    return inf if settings.gradient_checkpointing else settings.tokens_at_once * processes


def join_consecutive(examples: Rows, size: int, tokens: npt.NDArray[np.integer], limit: float) -> list[MicroBatch]:
    """Join consecutive mini-batches of `size` examples to at most `limit` tokens; a longer one stands alone."""
    starts, joined = [0], 0
    for position, total in enumerate(tokens.reshape(-1, size).sum(1).tolist()):
        if position > starts[-1] and joined + total > limit:
            starts.append(position)
            joined = 0
        joined += total
    return np.split(examples.reshape(-1, size), starts[1:])


def join_by_length(examples: Rows, tokens: npt.NDArray[np.integer], limit: float) -> list[MicroBatch]:
    """Join examples of similar length, longest first; each is a mini-batch of its own, as no other changes its loss."""
    by = np.argsort(-np.asarray(tokens), kind="stable")
    return join_consecutive(examples[by], 1, tokens[by], limit)


class Forward:
    """Run sequences through `model`, each process its share; all of them get all outputs.

    Gradients flow to the process that computed an output. So if every process computes the whole loss from all outputs,
    the sum of their gradients is the gradient of the loss. A process that works `alone` asks no others.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings, accelerator: Any, alone: bool = False) -> None:
        self.model, self.device, self._accelerator = model, accelerator.device, accelerator
        self._processes = 1 if alone else accelerator.num_processes
        self._gradient_checkpointing = settings.gradient_checkpointing
        # More at once only mean more padding on a CPU: of SQuAD's triples, 96 an update, 1.10 tokens are computed for
        # each real one; with four times as many 1.26, and 1.60 mini-batch by mini-batch.
        on_gpu = self.device.type == "cuda"
        self._tokens = settings.tokens_at_once if on_gpu else min(settings.tokens_at_once, TOKEN_BUDGETS["cpu"])

    def __call__(self, sequences: Sequences) -> Tensor:
        """Compute one output per sequence, in single precision at least; shape (sequences, ...)."""
        if self._processes == 1:
            return self._run(sequences)
        by = np.argsort(-np.asarray(sequences.lengths), kind="stable")
        shares = [by[rank :: self._processes] for rank in range(self._processes)]
        rank = self._accelerator.process_index
        mine = shares[rank]
        # All processes take part in every pass: one without a sequence runs any, to no effect.
        outputs = self._run(sequences.take(mine if len(mine) else by[:1]))  # (share, ...)
        padded = outputs.detach().new_zeros(len(shares[0]), *outputs.shape[1:])
        padded[: len(mine)] = outputs.detach()[: len(mine)]
        gathered = self._accelerator.gather(padded).split(len(padded))
        parts = [part[: len(share)] for part, share in zip(gathered, shares, strict=True)]
        parts[rank] = outputs[: len(mine)]
        inverse = np.argsort(np.concatenate(shares), kind="stable")
        together = torch.cat(parts)[torch.from_numpy(inverse).to(self.device)]  # (sequences, ...)
        return together if len(mine) else together + 0.0 * outputs.sum()

    def _run(self, sequences: Sequences) -> Tensor:
        model: Callable[[dict[str, Tensor]], Tensor] = self.model
        if self._gradient_checkpointing and torch.is_grad_enabled():
            # Activations are thrown away and computed again, sub-batch by sub-batch, on the way back.
            model = partial(checkpoint, self.model, use_reentrant=False)
        with self._accelerator.autocast():
            return single(forward_by_length(model, sequences, self.device, self._tokens))  # (sequences, ...)
