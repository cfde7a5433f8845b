"""Layers of BERT-like transformers in fewer operations: one of torch's for an activation, and one for a linear layer.

On CPUs, oneDNN's linear layers are faster than those of torch, because their weights are laid out once, and include the
activation: encoding with MiniLM on one core of an AMD EPYC takes four fifths of the time.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cort.models.transformer import agrees

#: architectures whose layers were compared with those of transformers
BERT_LIKE = ("albert", "bert", "electra", "roberta", "xlm-roberta")
# Names of a linear layer and its activation in a module.
LAYERS = (("dense", "intermediate_act_fn"), ("ffn", "activation"))
# Rows for which oneDNN lays weights out; numbers in a sum of about 1, and its largest error in units of the precision.
ROWS, SIZE, TOLERANCE = 1_024, 256, 32


class FusedLinear(nn.Module):
    """A linear layer of oneDNN for inference, followed by an activation."""

    def __init__(self, layer: nn.Linear, activation: tuple[str, str] = ("none", "none")) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), ROWS)
        self._bias = None if layer.bias is None else layer.bias.detach()
        self._activation = activation

    def forward(self, states: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        name, algorithm = self._activation
        result: Tensor = torch.ops.mkldnn._linear_pointwise(states, self._weight, self._bias, name, [], algorithm)
        return result


def fuse_activations(model: nn.Module) -> None:
    """Replace transformers' ``gelu_new`` (ALBERT's), eight operations, by torch's, which is the same up to rounding."""
    for module in model.modules():
        for name, child in module.named_children():
            if type(child).__name__ == "NewGELUActivation":
                setattr(module, name, nn.GELU("tanh"))


def fuse_linear_layers(transformer: Any) -> None:
    """Replace the linear layers of a BERT-like transformer on a CPU, which is only used for inference then."""
    if transformer.config.model_type not in BERT_LIKE or transformer.device.type != "cpu":
        return
    if not is_right(transformer.dtype):
        return
    with torch.no_grad():
        for module in list(transformer.modules()):
            for linear, activation in LAYERS:
                if kind := _gelu(getattr(module, activation, None)):
                    setattr(module, linear, FusedLinear(getattr(module, linear), kind))
                    setattr(module, activation, nn.Identity())
            for name, child in module.named_children():
                if type(child) is nn.Linear:
                    setattr(module, name, FusedLinear(child))


def _gelu(activation: object) -> tuple[str, str] | None:
    """Name an activation as oneDNN does, if it is a GELU."""
    if isinstance(activation, nn.GELU):
        return "gelu", activation.approximate
    return ("gelu", "none") if getattr(activation, "act", None) is functional.gelu else None


@cache
def is_right(kind: torch.dtype) -> bool:
    """Tell whether torch has these layers for numbers of a type on this processor, and they compute what its own do."""
    # The global random state stays as it is.
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        layer, states = nn.Linear(SIZE, SIZE), torch.randn(8, SIZE)

    def compute(kind: torch.dtype, _: torch.device) -> Tensor:
        own, inputs = copy.deepcopy(layer).to(kind), states.to(kind)
        if kind == torch.float64:
            return functional.gelu(own(inputs))  # (8, SIZE)
        found: Tensor = FusedLinear(own, ("gelu", "none"))(inputs)
        return found

    with torch.no_grad():
        return agrees(compute, kind, torch.device("cpu"), TOLERANCE * torch.finfo(kind).eps)
