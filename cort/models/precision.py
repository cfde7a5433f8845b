"""What the precision `auto` stands for: bf16 where matrices are multiplied clearly faster in it than in fp32."""

from __future__ import annotations

import logging
import os
import statistics
import time
from contextlib import suppress
from pathlib import Path

import torch
from torch.nn import functional

from cort.formats.shards import KEY
from cort.models.transformer import TOKEN_BUDGETS
from cort.system.files import temporary_folder, write_text

log = logging.getLogger(__name__)

# Rounding costs a little effectiveness, which a small gain is not worth.
LEAST_GAIN = 1.3
# A layer of a small model, which gains no more than those of larger ones.
INPUTS, OUTPUTS = 384, 1536
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


def measure(device: torch.device) -> str:
    """Choose bf16 if it is worth its rounding on a device, with the threads of this process."""
    gain = gain_of_bf16(device)
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
