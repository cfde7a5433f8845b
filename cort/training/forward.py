"""Sequences through a model in training: at the asked precision, with bounded memory, by all processes together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cort.models.batching import Sequences
from cort.models.transformer import forward_by_length
from cort.training.parallel.process_group import Ranks
from cort.training.settings import TrainingSettings

# Padded tokens that go through the transformer at once: more of them only mean more padding on a CPU. Of SQuAD's
# triples, 96 an update, 1.10 tokens are computed for each real one; with four times as many 1.26, and 1.60 mini-batch
# by mini-batch.
CPU_TOKENS = 1_024


class Forward:
    """Run sequences through `model`, each process its share; all of them get all outputs.

    Gradients flow to the process that computed an output. So if every process computes the whole loss from all outputs,
    the sum of their gradients is the gradient of the loss. Without `ranks` a process works alone.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings, accelerator: Any, ranks: Ranks | None) -> None:
        self.model, self.device = model, accelerator.device
        self._accelerator, self._ranks, self._gradient_checkpointing = (
            accelerator,
            ranks,
            settings.gradient_checkpointing,
        )
        on_gpu = self.device.type == "cuda"
        self._tokens = settings.tokens_at_once if on_gpu else min(settings.tokens_at_once, CPU_TOKENS)

    def __call__(self, sequences: Sequences) -> Tensor:
        """Compute one output per sequence, in single precision at least; shape (sequences, ...)."""
        if self._ranks is None or self._ranks.count == 1:
            return self._run(sequences)
        by = np.argsort(-np.asarray(sequences.lengths), kind="stable")
        shares = [by[rank :: self._ranks.count] for rank in range(self._ranks.count)]
        mine = shares[self._ranks.rank]
        # All processes take part in every pass: one without a sequence runs any, to no effect.
        outputs = self._run(sequences.take(mine if len(mine) else by[:1]))  # (share, ...)
        padded = outputs.detach().new_zeros(len(shares[0]), *outputs.shape[1:])
        padded[: len(mine)] = outputs.detach()[: len(mine)]
        parts = [part[: len(share)] for part, share in zip(self._ranks.gather(padded), shares, strict=True)]
        parts[self._ranks.rank] = outputs if len(mine) else outputs[:0]
        inverse = np.argsort(np.concatenate(shares), kind="stable")
        together = torch.cat(parts)[torch.from_numpy(inverse).to(self.device)]  # (sequences, ...)
        return together if len(mine) else together + 0.0 * outputs.sum()

    def _run(self, sequences: Sequences) -> Tensor:
        with self._accelerator.autocast():
            outputs = forward_by_length(self._model(), sequences, self.device, self._tokens)  # (sequences, ...)
        return outputs.to(torch.promote_types(outputs.dtype, torch.float32))

    def _model(self) -> Callable[[dict[str, Tensor]], Tensor]:
        if not (self._gradient_checkpointing and torch.is_grad_enabled()):
            return self.model
        # Activations are thrown away and computed again, sub-batch by sub-batch, on the way back.
        return lambda batch: checkpoint(self.model, batch, use_reentrant=False)
