"""Measure this machine for half a second: products of matrices in the precisions asked for.

On the CPU it counts the time of one core's processor, so that other work on the machine does not change the result.
Called as a module it prints the numbers as JSON; that process is the one whose libraries use a single thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable

from workflow.planning.costs import Machine
from workflow.planning.dryrun import ROOT

SECONDS = 0.15
SIZES = {"cpu": 512, "cuda": 4096}


def measure(precisions: Iterable[str], cores: int, gpus: int) -> Machine:
    """Measure this machine.

    :param precisions: of the products, besides fp32.
    :param gpus: with any, the products run on one if torch can use it; else the machine has none.
    """
    single = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    command = [sys.executable, "-m", "workflow.planning.probe", "cuda" if gpus else "cpu", *{"fp32", *precisions}]
    environment = {**os.environ, **single}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    device, flops = json.loads(done.stdout)
    return Machine(cores, flops, gpus if device == "cuda" else 0)


def _flops(device: str, precision: str) -> float:
    """Floating-point operations per second of a product of two square matrices."""
    import torch

    torch.set_num_threads(1)
    size, clock = SIZES[device], time.perf_counter if device == "cuda" else time.thread_time
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    matrix = torch.rand(size, size, device=device).to(kind)
    # The first product also loads libraries.
    for seconds in (0.0, SECONDS):
        started, times = clock(), 0
        while not times or clock() - started < seconds:
            matrix @ matrix
            if device == "cuda":
                torch.cuda.synchronize()
            times += 1
    return float(2 * size**3 * times / (clock() - started))


if __name__ == "__main__":
    import torch

    found = "cuda" if sys.argv[1] == "cuda" and torch.cuda.is_available() else "cpu"
    sys.stdout.write(json.dumps([found, {name: _flops(found, name) for name in sys.argv[2:]}]))
