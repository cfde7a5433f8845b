"""What can go wrong in an update: losses and gradients that are not finite, full memory, chance that is not fixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from cort.system.errors import InputError, input_error
from cort.training.microbatches import MicroBatch
from cort.training.settings import TrainingSettings

# What torch says of an operation on a GPU.
NOT_DETERMINISTIC = "does not have a deterministic implementation"


def share_of(losses: Tensor, batch: MicroBatch, examples: int) -> Tensor:
    """Part that the losses of a micro-batch have in that of an update, which is the mean over mini-batches."""
    share: Tensor = losses.sum() * (batch.shape[1] / examples)
    return share


def total_loss(step: int, found: Sequence[tuple[MicroBatch, Tensor]], examples: int) -> float:
    """Add up the losses of an update; looked at once it is done, as a GPU is waited for each time.

    :raises InputError: one is not finite.
    """
    total = 0.0
    for batch, losses in found:
        for position in torch.nonzero(~torch.isfinite(losses)).flatten().tolist():
            first, last = batch[position, [0, -1]]
            place = f"the examples {first} to {last}" if last > first else f"the example {first}"
            raise diverged(step, f"the loss {losses[position].item()} on {place}")
        total += share_of(losses, batch, examples).item()
    return total


@contextmanager
def enough_memory(settings: TrainingSettings) -> Iterator[None]:
    """Say which setting to lower when memory is full."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error)):
            raise
        found = f"{settings.tokens_at_once}, for whose activations there is too little memory"
        more = ", or set gradient_checkpointing if one mini-batch alone is too large"
        fix = "lower it" if settings.gradient_checkpointing else f"lower it{more}"
        raise input_error("tokens_at_once", found, "fewer tokens", fix) from error


def diverged(step: int, found: str) -> InputError:
    """Say that a number of an update is not finite."""
    fix = "lower learning_rate, set max_gradient_norm, or train in fp32"
    return input_error(f"update {step}", found, "a finite number", fix)
