"""What the processes of one training tell each other, and how accelerate sets them up. Alone, nobody is asked."""

from __future__ import annotations

import ctypes
import json
import os
import warnings
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

# While the first process validates or writes, the others wait in silence; a dead one ends all, so nobody waits in vain.
LONGEST_WAIT = timedelta(days=1)


def make_accelerator(precision: str) -> Any:
    """Set up devices, precision and, for a worker, the process group."""
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


class ProcessGroup:
    """The processes of a training; `rank` 0 is the one that validates, writes and speaks."""

    def __init__(self, accelerator: Any) -> None:
        self.count: int = accelerator.num_processes
        self.rank: int = accelerator.process_index
        self._device: torch.device = accelerator.device

    @property
    def first(self) -> bool:
        """Whether this process is rank 0."""
        return self.rank == 0

    def exchange(self, *values: float) -> list[list[float]]:
        """Tell all processes some numbers; what each told, by rank."""
        if self.count == 1:
            return [list(values)]
        told = self.gather(torch.tensor(values, dtype=torch.float64))
        return [one.tolist() for one in told]

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Collect a tensor of one shape and type from all processes; by rank, on the device of this process."""
        mine = tensor.to(self._device)
        if self.count == 1:
            return [mine]
        everybody = [torch.empty_like(mine) for _ in range(self.count)]
        torch.distributed.all_gather(everybody, mine)
        return everybody

    def share(self, tensors: dict[str, Tensor], state: Any) -> tuple[dict[str, Tensor], Any]:
        """Give all processes the first one's tensors and JSON value."""
        if self.count == 1:
            return tensors, state
        layout = [(name, str(one.dtype).removeprefix("torch."), list(one.shape)) for name, one in tensors.items()]
        text = self._broadcast_text(json.dumps([layout, state]))
        layout, state = json.loads(text)
        return {
            name: self._broadcast(tensors[name] if self.first else torch.empty(shape, dtype=getattr(torch, kind)))
            for name, kind, shape in layout
        }, state

    def end(self) -> None:
        """Part in order: after this nothing can be told."""
        if self.count > 1:
            torch.distributed.destroy_process_group()

    def _broadcast_text(self, text: str) -> str:
        content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        length = int(self._broadcast(torch.tensor([len(content)]))[0])
        shared = self._broadcast(content if self.first else torch.empty(length, dtype=torch.uint8))
        return bytes(shared.tolist()).decode()

    def _broadcast(self, tensor: Tensor) -> Tensor:
        shared = tensor.to(self._device)
        torch.distributed.broadcast(shared, src=0)
        return shared.cpu()
