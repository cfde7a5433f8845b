"""Measure how fast this machine multiplies, which is what transformers mostly do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Of a measurement: seconds at least, and rows of the matrices.
SECONDS, ROWS = 0.15, {"cpu": 512, "cuda": 4096}
# Part of a matrix product's speed that a transformer reaches if it is wide, and the width at which it has half of that:
# what is no product grows with the width, products with its square.
EFFICIENCY, HALF_SPEED_WIDTH = 0.8, 64


@dataclass(frozen=True)
class Machine:
    """Where jobs run; `flops` are those of a product per second by precision, of one core, or of a GPU if any."""

    cores: int
    flops: Mapping[str, float]
    gpus: int = 0

    def reached(self, precision: str, width: int) -> float:
        """Operations per second of a transformer of that width on one core, or on a GPU if any."""
        speed = self.flops.get(precision, self.flops["fp32"])
        return EFFICIENCY * speed / (1 + HALF_SPEED_WIDTH / width)


def measure(precisions: Iterable[str], cores: int, gpus: int) -> Machine:
    """Measure this machine for a second: products of matrices in fp32 and other precisions.

    With `gpus` they run on one if torch can use it; else the machine has none.
    """
    import torch
    from torch.utils.benchmark import Timer, timer

    device = "cuda" if gpus and torch.cuda.is_available() else "cpu"
    # A CPU's is the time of one core's processor: other work on the machine does not change the result.
    rows, clock = ROWS[device], timer if device == "cuda" else time.thread_time
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    flops = {}
    for precision in {"fp32", *precisions}:
        matrix = torch.rand(rows, rows, device=device).to(kinds[precision])
        product = Timer("matrix @ matrix", timer=clock, globals={"matrix": matrix})
        flops[precision] = 2 * rows**3 / product.blocked_autorange(min_run_time=SECONDS).mean
    return Machine(cores, flops, gpus if device == "cuda" else 0)
