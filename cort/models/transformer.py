"""What models share: lengths, forward passes over batches of similar length, devices and precision."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cort.models.batching import TOKEN_BUDGETS, Lengths, Packing, Rows, Sequences, apart, by_length, sent
from cort.runtime.errors import input_error
from cort.runtime.machine import name_of_processor
from cort.runtime.progress import Counter

log = logging.getLogger(__name__)

# Tokens of text for which there must be room after a prompt.
LEAST_AFTER_PROMPT = 4
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def reads_segments(transformer: nn.Module, needed: bool = False) -> bool:
    """Tell whether a model has embeddings for two segments; a warning is logged if it needs them."""
    config: Any = transformer.config
    reads = "token_type_ids" in inspect.signature(transformer.forward).parameters and config.type_vocab_size > 1
    if needed and not reads:
        log.warning("%s has no second segment to tell queries from passages", config.model_type)
    return reads


def most_tokens(transformer: nn.Module) -> int:
    """Count the positions of a model; RoBERTa-like ones number positions from the padding token's id on."""
    base: Any = transformer.base_model
    positions = getattr(getattr(base, "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    limit = int(getattr(base.config, "max_position_embeddings", sys.maxsize))
    return limit - (0 if padding is None else padding + 1)


def count_tokens(transformer: Any) -> int:
    """Count the rows of a model's token embeddings."""
    return int(transformer.get_input_embeddings().num_embeddings)


def heads_of(classifier: Any) -> list[nn.Module]:
    """List the layers of a classifier of transformers after its base."""
    return [head for head in classifier.children() if head is not classifier.base_model]


def check_length(name: str, length: int, shortest: int, transformer: nn.Module, prompt: int = 0) -> None:
    """Refuse a length in tokens that leaves no room for text or exceeds the position embeddings.

    :param name: of the setting, after its file if it has one.
    :param prompt: tokens of a prompt before the text.
    """
    longest = most_tokens(transformer)
    # With fewer tokens after a prompt, many texts would be encoded alike.
    least = shortest + (prompt + LEAST_AFTER_PROMPT - 1 if prompt else 0)
    if not least <= length <= longest:
        why = f"with a prompt of {prompt} tokens" if prompt else "for this model"
        raise input_error(name, str(length), f"{least} to {longest} tokens {why}", "change it")


def forward_by_length(
    model: Callable[[dict[str, Any]], Tensor],
    sequences: Sequences,
    device: torch.device,
    token_budget: int | None = None,
    packed: bool = False,
) -> Tensor:
    """Run sequences through the model in sub-batches of similar length.

    :param token_budget: padded tokens per sub-batch, or tokens if `packed`; by default from `TOKEN_BUDGETS`.
    :returns: one output per sequence, in order, shape (sequences, ...).
    """
    order = list(by_length(sequences.lengths, token_budget or TOKEN_BUDGETS[device.type], packed))
    parts = [model(_sent_batch(sequences, members, device, packed=packed)) for members in order]
    return _as_given(parts, order, device)


def forward_apart(
    model: Callable[[dict[str, Any]], Tensor],
    sequences: Sequences,
    keys: Sequence[Lengths],
    device: torch.device,
    full: bool = False,
) -> Tensor:
    """Run sequences through the model such that what it computes for each does not depend on the others.

    On CPUs, this is exact; on GPUs, sequences may be packed, and equal up to rounding.

    :param keys: as of `apart`, as is `full`.
    :returns: one output per sequence, in order, shape (sequences, ...).
    """
    parts, order = [], []
    for members in apart(keys, TOKEN_BUDGETS[device.type], full):
        outputs = model(_sent_batch(sequences, members, device, int(keys[0][members[0]])))
        # Repetitions of the last member stand at the end.
        found = 1 + int((members != members[-1]).sum())
        parts.append(outputs[:found])
        order.append(members[:found])
    return _as_given(parts, order, device)


def _sent_batch(
    sequences: Sequences, members: Rows, device: torch.device, width: int = 1, packed: bool = False
) -> dict[str, Any]:
    """Frame some sequences on a device, and say where each begins if layers may read them without padding."""
    batch: dict[str, Any] = sequences.batch(members, width)
    batch |= {name: sent(value, device) for name, value in batch.items() if isinstance(value, Tensor)}
    if (packed or device.type == "cuda") and not sequences.template.left:
        batch["packing"] = Packing.of(sequences.lengths[members], batch["input_ids"].shape[1]).on(device)
    return batch


def _as_given(parts: Sequence[Tensor], order: Sequence[Rows], device: torch.device) -> Tensor:
    """Join the outputs of batches, and give them the order of the sequences."""
    inverse = np.argsort(np.concatenate(order), kind="stable")
    return torch.cat(list(parts))[sent(torch.from_numpy(inverse), device)]


@contextmanager
def counted(model: nn.Module, total: int, items: str) -> Iterator[None]:
    """Count the texts or pairs that go through the model, and log progress."""
    with Counter(total, items) as counter:
        hook = model.register_forward_hook(lambda module, inputs, outputs: counter.advance(len(outputs)))
        try:
            yield
        finally:
            hook.remove()


def choose_device(threads: int, leased: Sequence[str]) -> torch.device:
    """Choose the GPU if there is one, otherwise the CPU with this many threads.

    :param leased: devices reserved for this process; a warning is logged if torch cannot use them.
    """
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        return torch.device("cuda")
    if leased:
        names = ", ".join(leased)
        log.warning("torch %s cannot use %s (CPU build or driver); the CPU is used", torch.__version__, names)
    return torch.device("cpu")


def name_of(device: torch.device) -> str:
    """Name a device, which determines the last bits of what it computes."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else name_of_processor()


def agrees(
    compute: Callable[[torch.dtype, torch.device], Tensor], kind: torch.dtype, where: torch.device, tolerance: float
) -> bool:
    """Tell whether a device computes with numbers of a type what the CPU does in double precision, up to rounding.

    :param compute: of a type and a device; a RuntimeError or AttributeError says that the device lacks something.
    :param tolerance: largest error of a number.
    """
    try:
        found = compute(kind, where).double().cpu()
    except (RuntimeError, AttributeError):
        return False
    return bool((found - compute(torch.float64, torch.device("cpu"))).abs().max() <= tolerance)


def replace_forward(module: nn.Module, forward: Callable[..., Any]) -> None:
    """Replace the forward pass of a module, whose weights keep their names; sentence-transformers runs no hooks."""
    vars(module)["forward"] = forward


def in_single_precision(head: nn.Module) -> None:
    """Have a layer read states in single precision."""
    head.register_forward_pre_hook(lambda _, states: tuple(map(single, states)))


def single(states: Tensor) -> Tensor:
    """Convert half to single precision; leave higher precision as it is."""
    return states.to(torch.promote_types(states.dtype, torch.float32))
