"""How accelerate sets up the processes of a training, and what they tell each other. Alone, nobody is asked."""

from __future__ import annotations

import ctypes
import os
import warnings
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

# While the first process validates or writes, the others wait in silence; a dead one ends all, so nobody waits in vain.
LONGEST_WAIT = timedelta(days=1)


def make_accelerator(precision: str) -> Any:
    """Set up devices, precision and, for a worker, the process group, whose main process validates, writes, speaks."""
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs

    handlers: list[Any] = []
    if "LOCAL_RANK" in os.environ:
        # A mini-batch is several forward passes, and not as many in all processes: none may communicate by itself.
        handlers.append(DistributedDataParallelKwargs(broadcast_buffers=False, find_unused_parameters=True))
        handlers.append(InitProcessGroupKwargs(timeout=LONGEST_WAIT))
        # Torch's new name for the setting is none that accelerate passes on.
        warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")
    accelerator = Accelerator(
        mixed_precision={"fp32": "no"}.get(precision, precision),
        step_scheduler_with_optimizer=False,
        kwargs_handlers=handlers,
    )
    if torch.distributed.is_initialized():
        # Deleting a group joins Gloo's threads under Python's global lock, for which one of them may be waiting to let
        # go of a tensor: a deadlock. With one reference too many it is never deleted, and ends with its process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(torch.distributed.group.WORLD))
    return accelerator


def exchange(accelerator: Any, *values: float) -> list[list[float]]:
    """Tell all processes some numbers; what each told, by rank."""
    if accelerator.num_processes == 1:
        return [list(values)]
    mine = torch.tensor([values], dtype=torch.float64, device=accelerator.device)
    told: list[list[float]] = accelerator.gather(mine).tolist()
    return told


def share(accelerator: Any, tensors: dict[str, Tensor], state: Any) -> tuple[dict[str, Tensor], Any]:
    """Give all processes the first one's tensors and JSON value."""
    if accelerator.num_processes == 1:
        return tensors, state
    told = [{name: (one.shape, one.dtype) for name, one in tensors.items()}, state]
    torch.distributed.broadcast_object_list(told, src=0)
    layout, state = told
    shared = {}
    for name, (shape, dtype) in layout.items():
        one = tensors[name] if accelerator.is_main_process else torch.empty(shape, dtype=dtype)
        one = one.to(accelerator.device)
        torch.distributed.broadcast(one, src=0)
        shared[name] = one.cpu()
    return shared, state
