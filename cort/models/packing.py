"""Attention without padding: the layers of a transformer read the tokens of a batch one after another.

Only they do: embeddings before them, pooling and heads after them are cheap, and read the padded batch. Attention of a
token to those of its own sequence is flash attention for variable lengths, which reads no mask.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cort.models.batching import Packing
from cort.models.fused import BERT_LIKE
from cort.models.transformer import PRECISIONS, agrees, replace_forward

#: name of the attention in transformers
ATTENTION = "cort_packed"
# Lengths of sequences that are compared with those in double precision, their heads, and the largest error of their
# numbers, which are about 1.
PROBE_LENGTHS, HEADS, TOLERANCE = (5, 64, 1, 17), 4, 0.1
# Flash attention takes heads of such sizes.
MULTIPLE, LARGEST = 8, 256


def pack(transformer: Any) -> None:
    """Have a transformer's layers read packed sequences in calls with a `packing`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    base = transformer.base_model
    base.set_attn_implementation(ATTENTION)
    replace_forward(base, partial(_without_mask, base.forward))
    replace_forward(base.encoder, partial(_packed, base.encoder.forward))


def can_pack(transformer: Any, device: torch.device, precision: str) -> bool:
    """Tell whether a transformer has layers like BERT's, and the attention is right on a GPU in a precision."""
    config = transformer.config
    if device.type != "cuda" or PRECISIONS[precision] == torch.float32 or config.model_type not in BERT_LIKE:
        return False
    size = config.hidden_size // config.num_attention_heads
    return size % MULTIPLE == 0 and size <= LARGEST and is_right(precision, device, size)


@cache
def is_right(precision: str, device: torch.device, size: int) -> bool:
    """Tell whether a device computes attention and its gradients right in a precision."""
    inputs = torch.randn(3, 1, HEADS, sum(PROBE_LENGTHS), size, generator=torch.Generator().manual_seed(1))
    lengths = np.array(PROBE_LENGTHS)

    def compute(kind: torch.dtype, where: torch.device) -> Tensor:
        states = inputs.to(where, kind).requires_grad_()
        _, starts, longest = Packing.of(lengths, int(lengths.max())).on(where)
        query, key, value = states
        attended = attend(query, key, value, starts, longest, 0.0, size**-0.5)  # (1, tokens, heads, size)
        [gradients] = torch.autograd.grad(attended.square().sum(), states)
        return torch.cat([attended.detach().reshape(-1), gradients.reshape(-1)])

    with torch.inference_mode(False), torch.enable_grad():
        return agrees(compute, PRECISIONS[precision], device, TOLERANCE)


def attend(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int, dropout: float, scaling: float | None
) -> Tensor:
    """Attend within sequences.

    :param query: (1, heads, tokens, size), as are `key` and `value`.
    :param starts: (sequences + 1,), the first token of each, and the number of tokens.
    :returns: (1, tokens, heads, size).
    """
    if query.device.type != "cpu":
        flat = (part[0].transpose(0, 1) for part in (query, key, value))  # (tokens, heads, size)
        # `varlen_attn` has no dropout.
        flash = torch.ops.aten._flash_attention_forward
        attended: Tensor = flash(*flat, starts, starts, longest, longest, dropout, False, False, scale=scaling)[0]
        return attended.unsqueeze(0)
    counts: list[int] = starts.diff().tolist()
    compute = partial(functional.scaled_dot_product_attention, dropout_p=dropout, scale=scaling)
    parts = map(compute, *(torch.split(part, counts, dim=2) for part in (query, key, value)))
    return torch.cat(list(parts), dim=2).transpose(1, 2)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    packing: Packing | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers calls it, in packed sequences or a padded batch."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if packing is None:
        states = module, query, key, value
        attended: Tensor = sdpa_attention_forward(*states, attention_mask, dropout=dropout, scaling=scaling, **more)[0]
        return attended, None
    return attend(query, key, value, packing.starts, packing.longest, dropout, scaling), None


def _without_mask(forward: Callable[..., Any], *inputs: Any, packing: Packing | None = None, **named: Any) -> Any:
    """Call a transformer; finding out whether a mask hides anything would wait for the GPU."""
    return forward(*inputs, **(named if packing is None else {**named, "attention_mask": None, "packing": packing}))


def _packed(
    layers: Callable[..., Any], states: Tensor, *inputs: Any, packing: Packing | None = None, **named: Any
) -> Any:
    """Run layers on the packed states of a padded batch, (batch, length, width); padding gets zeros."""
    if packing is None:
        return layers(states, *inputs, **named)
    flat = states.flatten(0, 1)
    outputs = layers(flat[packing.places].unsqueeze(0), *inputs, packing=packing, **named)
    last = outputs.last_hidden_state[0]  # (tokens, width)
    padded = last.new_zeros(len(flat), last.shape[1]).index_copy(0, packing.places, last)
    return type(outputs)(last_hidden_state=padded.unflatten(0, states.shape[:2]))
