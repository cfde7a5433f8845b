"""Checkpoints of a training: one safetensors file each, verified when read, the last two kept.

A checkpoint holds tensors, a state that JSON can express, and a SHA-256 over both and the identity of its training.
Damaged checkpoints and those of another training are never used. Several processes may use one folder at a time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from operator import methodcaller
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from cort.runtime.files import atomic_file, remove_leftovers

log = logging.getLogger(__name__)

KEPT = 2
NAME = re.compile(r"checkpoint-(\d+)\.safetensors")
# Writing takes seconds; temporary files older than this (in seconds) were left by a killed process, perhaps elsewhere.
STALE = 3600.0
# Another process with the same training may finish, and remove the folder, at any moment.
ATTEMPTS = 5
ALIGNMENT = 8
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class Checkpoint:
    """A training after update `step`; `state` is JSON, with arrays that are read back as lists."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints of one training in `folder`, written `every` so many seconds.

    :param identify: returns the identity of the training; called once, by the process that reads and writes.
    """

    def __init__(self, folder: str | Path, identify: Callable[[], str], every: float) -> None:
        self.folder, self.every, self._identity = Path(folder), every, cache(identify)
        self._unusable: set[Path] = set()

    def path(self, step: int) -> Path:
        """Path of the checkpoint of an update."""
        return self.folder / f"checkpoint-{step}.safetensors"

    def newest(self) -> Checkpoint | None:
        """Read the newest complete checkpoint of this training; log each newer file that is skipped."""
        _despite_others(lambda: self.folder.mkdir(parents=True, exist_ok=True))
        wanted, damaged = self._identity(), False
        for path in self._paths().values():
            try:
                identity, checkpoint = read_checkpoint(path)
                if identity == wanted:
                    return checkpoint
                log.info("%s belongs to another training: ignored", path)
            except FileNotFoundError:
                continue  # another process removed it
            except DamagedError as error:
                damaged = True
                log.warning("%s is not a complete checkpoint (%s): the previous one is used", path, error)
            self._unusable.add(path)
        if damaged:
            log.warning("%s has no complete checkpoint of this training: it starts from the beginning", self.folder)
        return None

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and remove all but the last two.

        :raises OSError: it could not be written; the previous ones are unchanged.
        """
        path = self.path(checkpoint.step)

        def attempt() -> None:
            with atomic_file(path) as temporary, open(temporary, "wb") as handle:
                write_checkpoint(handle, self._identity(), checkpoint)

        _despite_others(attempt)
        paths = list(self._paths().values())
        kept = [other for other in paths if other == path or other not in self._unusable][:KEPT]
        self._unusable.clear()
        for old in {*paths} - {*kept, path}:
            with suppress(OSError):  # the next call tries again
                old.unlink(missing_ok=True)
        self._sweep()
        return path

    def remove(self) -> None:
        """Remove all checkpoints, and the folder if nothing else is in it."""
        for path in self._paths().values():
            path.unlink(missing_ok=True)
        self._sweep()
        with suppress(OSError):  # another process writes there, or has removed it
            self.folder.rmdir()

    def remaining(self) -> int | None:
        """Return the update of the newest usable checkpoint, or None."""
        return next((step for step, path in self._paths().items() if path not in self._unusable), None)

    def _sweep(self) -> None:
        """Remove temporary files of killed processes."""
        temporary = [path for path in self._files() if path.name.startswith(".checkpoint-")]
        remove_leftovers(temporary)
        for path in temporary:
            with suppress(OSError):  # it is already gone
                if time.time() - path.stat().st_mtime > STALE:
                    shutil.rmtree(path, ignore_errors=True)

    def _paths(self) -> dict[int, Path]:
        """Map updates to the paths of their checkpoints, newest first."""
        paths = {int(match[1]): path for path in self._files() if (match := NAME.fullmatch(path.name))}
        return dict(sorted(paths.items(), reverse=True))

    def _files(self) -> list[Path]:
        with suppress(FileNotFoundError):
            return list(self.folder.iterdir())
        return []


class DamagedError(ValueError):
    """A file is not a complete checkpoint; the message says why."""


def write_checkpoint(handle: BinaryIO, identity: str, checkpoint: Checkpoint) -> None:
    """Write safetensors tensor by tensor; the library itself would need a copy of all GPU tensors at once."""
    state = {"step": checkpoint.step, "identity": identity, **checkpoint.state}
    text = json.dumps(state, default=methodcaller("tolist"))
    header: dict[str, Any] = {"__metadata__": {"state": text, "sha256": digest(text, checkpoint.tensors)}}
    position, tensors = 0, sorted(checkpoint.tensors.items())
    for name, tensor in tensors:
        end = position + tensor.nbytes
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    content = json.dumps(header).encode()
    content += b" " * (-len(content) % ALIGNMENT)
    handle.write(len(content).to_bytes(8, "little") + content)
    for _, tensor in tensors:
        handle.write(_bytes(tensor))


def read_checkpoint(path: Path) -> tuple[str, Checkpoint]:
    """Read and verify a checkpoint; return the identity of its training as well.

    :raises FileNotFoundError: there is none.
    :raises DamagedError: it is not complete.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            # Copies, because tensors that map the file would keep its disk space in use after it is removed.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        # Safetensors opens the file by name twice; the second time, torch reports any failure as a RuntimeError.
        if not path.exists():
            raise FileNotFoundError(path) from error
        raise DamagedError(str(error)) from error
    if not {"state", "sha256"} <= metadata.keys():
        raise DamagedError("not a checkpoint")
    if digest(metadata["state"], tensors) != metadata["sha256"]:
        raise DamagedError("its checksum is wrong")
    state = json.loads(metadata["state"])
    return state.pop("identity"), Checkpoint(state.pop("step"), tensors, state)


def digest(state: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 over the content of a checkpoint: state, names, types, shapes and values."""
    total = hashlib.sha256(state.encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(_bytes(tensor))
    return total.hexdigest()


def _despite_others(action: Callable[[], None]) -> None:
    """Retry if another process removes the folder meanwhile, for which pathlib has two errors."""
    for _ in range(ATTEMPTS - 1):
        with suppress(FileNotFoundError, FileExistsError):
            return action()
    return action()


def _bytes(tensor: Tensor) -> memoryview:
    values: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(values)
