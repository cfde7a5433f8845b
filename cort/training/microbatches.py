"""Passes of training: which examples go together, at what precision, and shared among the processes.

The loss only couples the examples of a mini-batch (CoRT: 6 of 600 triples), so many mini-batches can be encoded
together, sorted by length. Up to rounding, the gradients are those of one mini-batch after another.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cort.formats.records import Integers
from cort.formats.shards import Tokens
from cort.models.batching import Lengths, Sequences, padded_tokens
from cort.models.modules import TextModel, has_layers
from cort.models.precision import multiply_in, refuse_wrong
from cort.models.tokenizer import fingerprint
from cort.models.transformer import PRECISIONS, forward_by_length, replace_forward, single
from cort.training.settings import TrainingOptions, TrainingSettings

Rows: TypeAlias = Integers
#: mini-batches that are encoded together: positions of their examples, (mini-batches, examples of each)
MicroBatch: TypeAlias = Rows

# Tokens whose activations are kept by default where memory does not decide.
TOKENS_KEPT = 8_192
# Padded tokens that are computed at once, if activations of so many are kept. Each pass computes the gradients of all
# token embeddings: little beside layers, but most of the time without.
AT_ONCE, WITHOUT_LAYERS = {"cpu": 1_024, "cuda": 16_384}, 4_096
# The other processes wait while the first one validates or writes. If it dies, the launcher ends them.
LONGEST_WAIT = timedelta(days=1)


def meet() -> Any:
    """Join the process group, in a worker; returns the number of processes, and index and device of this one."""
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    on_cpu = parse_flag_from_env("ACCELERATE_USE_CPU")
    return PartialState(on_cpu, timeout=LONGEST_WAIT) if "LOCAL_RANK" in os.environ else PartialState(on_cpu)


def make_accelerator(precision: str) -> Any:
    """Set up device, precision and, in a worker, the process group."""
    from accelerate import Accelerator
    from accelerate.utils import AutocastKwargs

    meet()
    return Accelerator(
        mixed_precision="no" if PRECISIONS[precision] == torch.float32 else precision,
        step_scheduler_with_optimizer=False,
        # Its autocast would include heads and projections (`halve_transformers`).
        kwargs_handlers=[AutocastKwargs(enabled=False)],
    )


def halve_transformers(model: nn.Module, precision: str, device: torch.device) -> None:
    """Have the transformers of a model compute in a precision, if that is not fp32.

    The layers after them stay in fp32, as in inference: scores in half precision tie.
    """
    refuse_wrong(precision, device)
    if precision == "fp32" or not isinstance(model, TextModel):
        return
    model.pack(device, precision)
    for part in model.transformers_without_heads():
        if precision == "tf32":
            multiply_in(precision, part)
        else:
            replace_forward(part, torch.autocast(device.type, PRECISIONS[precision])(part.forward))


def exchange(accelerator: Any, *values: float) -> list[list[float]]:
    """Send numbers to all processes; return those of each process, by rank."""
    if accelerator.num_processes == 1:
        return [list(values)]
    mine = torch.tensor([values], dtype=torch.float64, device=accelerator.device)
    gathered: list[list[float]] = accelerator.gather(mine).tolist()
    return gathered


def add_gradients(parameters: Iterable[nn.Parameter], accelerator: Any) -> None:
    """Replace each gradient by its sum over all processes; one that no process has stays None.

    Once per update, not in the backward pass as in `DistributedDataParallel`: processes make different numbers of
    passes, and queries and passages may go through different layers. An optimizer skips a parameter without gradient,
    but not one whose gradient is 0.
    """
    if accelerator.num_processes == 1:
        return
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    used = torch.tensor([one.grad is not None for one in trained], dtype=torch.int32, device=accelerator.device)
    torch.distributed.all_reduce(used)
    for parameter, processes in zip(trained, used.tolist(), strict=True):
        if processes:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.distributed.all_reduce(parameter.grad)


class Room(NamedTuple):
    """How many tokens' activations may be kept for the backward pass, and how many tokens are computed at once.

    Padding counts unless sequences are `packed`. There is no limit if activations are recomputed in the backward pass.
    """

    limit: float
    at_once: int
    packed: bool = False

    def tokens(self, passes: Iterable[Lengths]) -> int:
        """Count the tokens of forward passes over texts of these lengths."""
        return sum(int(each.sum()) if self.packed else padded_tokens(each, self.at_once) for each in passes)


def tokens_kept(settings: TrainingSettings, model: nn.Module, device: torch.device) -> int:
    """Return for how many tokens to keep activations: as set, or what half of a GPU's memory holds beside the weights.

    Activations take 80 bytes per token, layer and hidden unit in fp32, half of it in 16 bits; weights, gradients and
    AdamW's moments take 16 bytes per parameter that is trained. More is not faster on CPUs.
    """
    config = getattr(getattr(model, "transformer", None), "config", None)
    if settings.tokens_at_once or device.type == "cpu" or config is None:
        return settings.tokens_at_once or TOKENS_KEPT
    weights = sum((16 if parameter.requires_grad else 4) * parameter.numel() for parameter in model.parameters())
    size = 20 * PRECISIONS[settings.precision].itemsize * config.num_hidden_layers * config.hidden_size
    left: int = torch.cuda.get_device_properties(device).total_memory // 2 - weights
    return max(left // int(size), AT_ONCE["cpu"])


def room_of(
    settings: TrainingSettings, device: torch.device, processes: int, packed: bool = False, layers: bool = True
) -> Room:
    """Divide what is kept into sub-batches of similar length: larger ones would be faster, but for the padding.

    On a CPU, with SQuAD's triples, 96 per update, 1.10 tokens are computed per real token; with four times the budget
    1.26, and with one mini-batch at a time 1.60.
    """
    kept = settings.tokens_at_once or TOKENS_KEPT
    limit = inf if settings.gradient_checkpointing else kept * processes
    at_once = AT_ONCE[device.type] if layers else max(AT_ONCE[device.type], WITHOUT_LAYERS)
    return Room(limit, min(kept, at_once), packed)


def join_consecutive(examples: Rows, size: int, tokens: Callable[[Rows], int], limit: float) -> list[MicroBatch]:
    """Join consecutive mini-batches of `size` examples up to a limit; a longer one remains alone.

    :param tokens: counts the padded tokens of examples that go through the model together.
    """
    batches, joined, start = examples.reshape(-1, size), list[MicroBatch](), 0
    while start < len(batches):
        ends = range(start + 1, len(batches) + 1)
        fitting = bisect_right(ends, limit, key=lambda end: tokens(batches[start:end].reshape(-1)))
        joined.append(batches[start : start + max(fitting, 1)])
        start += max(fitting, 1)
    return joined


def open_caches(options: TrainingOptions) -> tuple[Tokens, Tokens, Tokens]:
    """Open the token caches of passages, queries and validation queries."""
    tokenizer = fingerprint(options.base_model)
    paths = options.passages, options.queries, options.validation_queries
    passages, queries, held_out = (Tokens(path, tokenizer) for path in paths)
    return passages, queries, held_out


class Forward:
    """Run sequences through `model`; each process runs its share, and all processes get all outputs.

    Gradients flow back in the process that computed an output. If every process computes the loss of all outputs, the
    sum of their gradients (`add_gradients`) is the gradient of the loss. With `alone`, this process runs all itself.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings, accelerator: Any, alone: bool = False) -> None:
        self.model, self.device, self._accelerator = model, accelerator.device, accelerator
        self._processes = 1 if alone else accelerator.num_processes
        self._gradient_checkpointing = settings.gradient_checkpointing
        packed = isinstance(model, TextModel) and model.reads_no_padding
        layers = not isinstance(model, TextModel) or any(map(has_layers, model.transformers()))
        self.room = room_of(settings, self.device, self._processes, packed, layers)
        self._joins = isinstance(model, TextModel) and packed and model.reads_alike()

    def both(self, queries: Sequences, passages: Sequences) -> tuple[Tensor, Tensor]:
        """Compute outputs of queries and passages: together if they are packed, because each pass is a wait."""
        if not self._joins:
            return self(queries), self(passages)
        outputs, count = self(queries.joined(passages)), len(queries.lengths)
        return outputs[:count], outputs[count:]

    def __call__(self, sequences: Sequences) -> Tensor:
        """Compute one output per sequence, in single precision at least; shape (sequences, ...)."""
        if self._processes == 1:
            return self._run(sequences)
        order = np.argsort(-np.asarray(sequences.lengths), kind="stable")
        # Equal shares: some sequences are computed twice.
        order = np.append(order, np.resize(order, -len(order) % self._processes))
        shares = order.reshape(-1, self._processes).T  # (processes, share)
        rank = self._accelerator.process_index
        outputs = self._run(sequences.take(shares[rank]))  # (share, ...)
        parts = list(self._accelerator.gather(outputs.detach()).split(len(outputs)))
        parts[rank] = outputs
        _, first = np.unique(shares, return_index=True)
        return torch.cat(parts)[torch.from_numpy(first).to(self.device)]  # (sequences, ...)

    def _run(self, sequences: Sequences) -> Tensor:
        model: Callable[[dict[str, Tensor]], Tensor] = self.model
        if self._gradient_checkpointing and torch.is_grad_enabled():
            # Activations are dropped, and recomputed in the backward pass, sub-batch by sub-batch.
            model = partial(checkpoint, self.model, use_reentrant=False)
        # Disabled here, but weights stay in half precision for all sub-batches until the outermost autocast ends.
        with self._accelerator.autocast():
            outputs = forward_by_length(model, sequences, self.device, self.room.at_once, self.room.packed)
        return single(outputs)  # (sequences, ...)
