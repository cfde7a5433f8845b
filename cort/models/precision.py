"""Precisions other than fp32, where a device computes right in them; `auto` is bf16 if it is clearly faster."""

from __future__ import annotations

import logging
import os
import statistics
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from cort.formats.shards import KEY
from cort.models.fused import fuse_linear_layers
from cort.models.transformer import PRECISIONS, TOKEN_BUDGETS
from cort.runtime.errors import input_error
from cort.runtime.files import temporary_folder, write_text

log = logging.getLogger(__name__)

# Rounding costs a little effectiveness, which a small gain is not worth.
LEAST_GAIN = 1.3
# A layer of a small model, which gains no more than those of larger ones.
INPUTS, OUTPUTS = 384, 1536
# Rows and heads of the layer that must be right, and the largest error of its numbers, which are about 1.
ROWS, HEADS, TOLERANCE = 64, 6, 0.1
# Rounds that are measured, or as many as fit into some seconds: a processor without bf16 may need a second for one.
ROUNDS, SECONDS = 10, 1.0


def settle(precision: str, device: torch.device, checkpoints: str | Path | None = None) -> str:
    """Return the precision, or what `auto` stands for on a device.

    :param checkpoints: folder of the jobs that must agree: the first one decides, also for resumed jobs.
    """
    if precision != "auto":
        return precision
    if checkpoints is None:
        return measure(device)
    decision = Path(checkpoints) / KEY
    if not decision.exists():
        with temporary_folder(decision) as folder:
            write_text(own := folder / KEY, measure(device))
            # Another job may have been faster.
            with suppress(FileExistsError):
                os.link(own, decision)
    decided = decision.read_text(encoding="utf-8")
    log.info("precision %s, by the first job with %s", decided, decision)
    return decided


def forget(checkpoints: str | Path | None) -> None:
    """Let the next jobs with a folder of checkpoints measure again."""
    if checkpoints is not None:
        (Path(checkpoints) / KEY).unlink(missing_ok=True)


def refuse_wrong(precision: str, device: torch.device) -> None:
    """Refuse a precision in which a device cannot compute, or gives wrong results."""
    if precision != "fp32" and not is_right(precision, device):
        found = f"{precision}, in which this {device.type} cannot compute correctly"
        raise input_error("precision", found, "fp32", "change it, or use another machine")


def place(model: nn.Module, transformer: Any, device: torch.device, precision: str) -> None:
    """Move a model to a device for inference: its transformer in `precision`, the layers after it in fp32.

    Rounding weights once is faster than autocast, which rounds them for each sub-batch and normalizes in fp32.
    """
    refuse_wrong(precision, device)
    model.to(device)
    fuse_linear_layers(transformer.to(PRECISIONS[precision]))


@cache
def is_right(precision: str, device: torch.device) -> bool:
    """Whether a layer computed in a precision on a device is that of double precision, up to rounding."""
    generator = torch.Generator().manual_seed(1)
    inputs, weights = (torch.randn(rows, INPUTS, generator=generator) for rows in (ROWS, INPUTS))
    padding = torch.arange(ROWS) < ROWS - 7  # (rows,)

    def layer(kind: torch.dtype, device: torch.device) -> torch.Tensor:
        states = functional.linear(inputs.to(device, kind), weights.to(device, kind) / INPUTS**0.5)  # (rows, size)
        heads = states.reshape(1, ROWS, HEADS, -1).transpose(1, 2)  # (1, heads, rows, size of a head)
        mask = padding.to(device).expand(1, 1, ROWS, ROWS)
        attended = functional.scaled_dot_product_attention(heads, heads, heads, mask).transpose(1, 2).flatten(2)[0]
        return functional.gelu(functional.layer_norm(states + attended, (INPUTS,))).double().cpu()

    try:
        found = layer(PRECISIONS[precision], device)
    except RuntimeError:  # what it lacks
        return False
    return bool((found - layer(torch.float64, torch.device("cpu"))).abs().max() <= TOLERANCE)


def measure(device: torch.device) -> str:
    """Choose bf16 if it is worth its rounding on a device, with the threads of this process."""
    gain = gain_of_bf16(device) if is_right("bf16", device) else 0.0
    chosen = "bf16" if gain >= LEAST_GAIN else "fp32"
    log.info("precision %s: bf16 is %.2f times as fast as fp32 on this %s", chosen, gain, device.type)
    return chosen


def gain_of_bf16(device: torch.device) -> float:
    """Measure how many times as fast as in fp32 a layer is in bf16, for as many tokens as models get at once."""
    inputs, weights = (torch.ones(rows, INPUTS, device=device) for rows in (TOKEN_BUDGETS[device.type], OUTPUTS))
    sides = [(inputs.to(kind), weights.to(kind)) for kind in (torch.float32, torch.bfloat16)]
    gains: list[float] = []
    started = time.perf_counter()
    # The first round is a warm-up, unless there is no time for another.
    while len(gains) <= ROUNDS and (not gains or time.perf_counter() - started < SECONDS):
        single, half = (_seconds(*side) for side in sides)
        gains.append(single / half)
    return statistics.median(gains[1:] or gains)


def _seconds(inputs: torch.Tensor, weights: torch.Tensor) -> float:
    started = time.perf_counter()
    # Reading a number waits for a GPU.
    float(functional.linear(inputs, weights)[0, 0])
    return time.perf_counter() - started
