"""Precisions other than fp32, where a device computes right in them; `auto` is bf16 if it has instructions for it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from cort.formats.shards import KEY
from cort.models.fused import fuse_linear_layers
from cort.models.transformer import PRECISIONS, agrees, replace_forward
from cort.runtime.errors import input_error
from cort.runtime.files import temporary_folder, write_text

log = logging.getLogger(__name__)

# On x86. Without them, bf16 is slower than fp32; with them, encoding is 1.6 to 3.6 times as fast, worth the rounding.
INSTRUCTIONS = ("avx512_bf16", "amx_bf16")
# Size, rows and heads of the layer that must be right, and the largest error of its numbers, which are about 1.
INPUTS, ROWS, HEADS, TOLERANCE = 384, 64, 6, 0.1


def settle(precision: str, device: torch.device, checkpoints: str | Path | None = None) -> str:
    """Return the precision, or what `auto` stands for on a device.

    :param checkpoints: folder of the jobs that must agree: the first one decides, also for resumed jobs.
    """
    if precision != "auto":
        return precision
    if checkpoints is None:
        return choose(device)
    decision = Path(checkpoints) / KEY
    if not decision.exists():
        with temporary_folder(decision) as folder:
            write_text(own := folder / KEY, choose(device))
            # Another job may have been faster.
            with suppress(FileExistsError):
                os.link(own, decision)
    decided = decision.read_text(encoding="utf-8")
    log.info("precision %s, by the first job with %s", decided, decision)
    return decided


def forget(checkpoints: str | Path | None) -> None:
    """Let the next jobs with a folder of checkpoints choose again; remove the folder if nothing else is in it."""
    if checkpoints is not None:
        (Path(checkpoints) / KEY).unlink(missing_ok=True)
        with suppress(OSError):
            Path(checkpoints).rmdir()


def refuse_wrong(precision: str, device: torch.device) -> None:
    """Refuse a precision in which a device cannot compute, or gives wrong results."""
    if precision != "fp32" and not is_right(precision, device):
        found = f"{precision}, in which this {device.type} cannot compute correctly"
        raise input_error("precision", found, "fp32", "change it, or use another machine")


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Round the factors of fp32 products on GPUs if the precision is tf32; torch has one setting for a process."""
    before = torch.get_float32_matmul_precision()
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def multiply_in(precision: str, transformer: nn.Module) -> None:
    """Have a transformer compute its products in tf32, if that is the precision."""
    if precision == "tf32":
        replace_forward(transformer, products_in(precision)(transformer.forward))


def place(model: nn.Module, device: torch.device, precision: str, parts: Sequence[nn.Module]) -> None:
    """Move a model to a device for inference: some parts, transformers, in `precision`, all else in fp32.

    Rounding weights once is faster than autocast, which rounds them for each sub-batch and normalizes in fp32.
    """
    refuse_wrong(precision, device)
    inside = {id(weight) for part in parts for weight in part.parameters()}
    # One by one: all weights of a large model in fp32 might not fit into the memory.
    for weight in model.parameters():
        weight.data = weight.data.to(PRECISIONS[precision] if id(weight) in inside else torch.float32)
    model.to(device)
    for part in parts:
        fuse_linear_layers(part)
        multiply_in(precision, part)


@cache
def is_right(precision: str, device: torch.device) -> bool:
    """Tell whether a device computes a layer right in a precision."""
    generator = torch.Generator().manual_seed(1)
    inputs, weights = (torch.randn(rows, INPUTS, generator=generator) for rows in (ROWS, INPUTS))
    padding = torch.arange(ROWS) < ROWS - 7  # (rows,)

    def layer(kind: torch.dtype, device: torch.device) -> torch.Tensor:
        states = functional.linear(inputs.to(device, kind), weights.to(device, kind) / INPUTS**0.5)  # (rows, size)
        heads = states.reshape(1, ROWS, HEADS, -1).transpose(1, 2)  # (1, heads, rows, size of a head)
        mask = padding.to(device).expand(1, 1, ROWS, ROWS)
        attended = functional.scaled_dot_product_attention(heads, heads, heads, mask).transpose(1, 2).flatten(2)[0]
        return functional.gelu(functional.layer_norm(states + attended, (INPUTS,)))

    if precision == "tf32" and device.type != "cuda":
        return False
    with products_in(precision):
        return agrees(layer, PRECISIONS[precision], device, TOLERANCE)


def choose(device: torch.device) -> str:
    """Choose bf16 if a device has instructions for it and computes right in it."""
    if device.type == "cuda":
        has = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has = any(map(torch.cpu.get_capabilities().get, INSTRUCTIONS))
    chosen = "bf16" if has and is_right("bf16", device) else "fp32"
    log.info(
        "precision %s, as this %s has %s for bf16", chosen, device.type, "instructions" if has else "no instructions"
    )
    return chosen
