"""Measure this machine for half a second: products of matrices in the precisions asked for, and a loop in Python.

On the CPU it counts the time of the processor, one core alone, so that other work on the machine does not change the
result. Called as a module it prints the numbers as JSON; that process is the one whose libraries use a single thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from workflow.planning.costs import Machine
from workflow.planning.dryrun import ROOT

SECONDS = 0.15
SIZE = 512
GPU_SIZE = 4096
LOOP = 200_000


def measure(precisions: Iterable[str], cores: int, gpus: int) -> Machine:
    """Measure this machine.

    :param precisions: of the products, besides fp32.
    :param gpus: with any, the products run on one if torch can use it; else the machine has none.
    """
    single = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    wanted = sorted({"fp32", *precisions})
    command = [sys.executable, "-m", "workflow.planning.probe", "cuda" if gpus else "cpu", *wanted]
    environment = {**os.environ, **single}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return Machine(cores, found["flops"], found["loop"], gpus if found["device"] == "cuda" else 0)


def _measure_loop() -> float:
    started = time.thread_time()
    numbers = {}
    for number in range(LOOP):
        numbers[str(number)] = number
    return time.thread_time() - started


def _measure_numpy() -> float:
    import numpy as np

    matrix = np.random.default_rng(0).random((SIZE, SIZE), dtype=np.float32)
    return _repeat(lambda: matrix @ matrix, SIZE, time.thread_time)


def _measure_torch(device: str, precision: str) -> float:
    import torch

    torch.set_num_threads(1)
    size = GPU_SIZE if device == "cuda" else SIZE
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    matrix = torch.rand(size, size, device=device).to(kind)

    def multiply() -> Any:
        product = matrix @ matrix
        if device == "cuda":
            torch.cuda.synchronize()
        return product

    return _repeat(multiply, size, time.perf_counter if device == "cuda" else time.thread_time)


def _repeat(multiply: Callable[[], Any], size: int, clock: Callable[[], float]) -> float:
    """Floating-point operations per second of a product of two square matrices."""
    multiply()
    started, times = clock(), 0
    while not times or clock() - started < SECONDS:
        multiply()
        times += 1
    return float(2 * size**3 * times / (clock() - started))


def main(argv: list[str]) -> None:
    """Print what was measured."""
    device, *precisions = argv
    if device == "cuda":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    plain = device == "cpu" and precisions == ["fp32"]
    flops = {name: _measure_numpy() if plain else _measure_torch(device, name) for name in precisions}
    found = {"device": device, "flops": flops, "loop": min(_measure_loop() for _ in range(3))}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
