"""Checkpoints of a training: one safetensors file each, verified when read, the last two kept.

A checkpoint holds tensors and a state that JSON can express, and a SHA-256 over both and over the identity of its
training. What is damaged or belongs to another training is never taken. Several processes may use one folder at once.
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
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from cort.system.files import atomic_file, remove_leftovers

log = logging.getLogger(__name__)

KEPT = 2
NAME = re.compile(r"checkpoint-(\d+)\.safetensors")
# Writing takes seconds: what is temporary and this old (in seconds) was left by a process that was killed on any host.
STALE = 3600.0
# Another process that trains the same may remove the folder when it is done, at the worst moment.
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
    """A training after update `step`; `state` is what JSON can express."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints of one training in `folder`.

    :param identify: names the training; asked once, by the process that reads and writes.
    :param every: seconds between checkpoints.
    """

    def __init__(self, folder: str | Path, identify: Callable[[], str], every: float) -> None:
        self.folder = Path(folder)
        self.every = every
        self._identify = identify
        self._useless: set[Path] = set()

    @cached_property
    def identity(self) -> str:
        """Name of the training."""
        return self._identify()

    def path(self, step: int) -> Path:
        """Where the checkpoint of an update is."""
        return self.folder / f"checkpoint-{step}.safetensors"

    def newest(self) -> Checkpoint | None:
        """Read the newest whole checkpoint of this training; one line says why another was passed over."""
        _despite_others(lambda: self.folder.mkdir(parents=True, exist_ok=True))
        wanted, damaged = self.identity, 0
        for path in self._paths():
            try:
                identity, checkpoint = read_checkpoint(path)
            except FileNotFoundError:
                continue  # another process was faster
            except DamagedError as error:
                damaged += 1
                self._useless.add(path)
                log.warning("%s is no whole checkpoint (%s): the one before is used", path, error)
                continue
            if identity == wanted:
                return checkpoint
            self._useless.add(path)
            log.info("%s belongs to another training: ignored", path)
        if damaged:
            log.warning("%s holds no whole checkpoint of this training: it starts anew", self.folder)
        return None

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and drop all but the last two.

        :raises OSError: it could not be written; those before are as they were.
        """
        path = self.path(checkpoint.step)

        def attempt() -> None:
            with atomic_file(path) as temporary, open(temporary, "wb") as handle:
                write_checkpoint(handle, self.identity, checkpoint)

        _despite_others(attempt)
        self._tidy(path)
        return path

    def remove(self) -> None:
        """Remove all checkpoints, and the folder if nothing else is in it."""
        for path in self._paths():
            path.unlink(missing_ok=True)
        self._sweep()
        with suppress(OSError):  # another process writes there, or took it away
            self.folder.rmdir()

    def remaining(self) -> int | None:
        """Update of the newest checkpoint that was not passed over; None if there is none."""
        steps = [_step(path) for path in self._paths() if path not in self._useless]
        return max(steps, default=None)

    def _tidy(self, written: Path) -> None:
        useless = self._useless - {written}
        self._useless.clear()
        kept = [path for path in self._paths() if path not in useless][:KEPT]
        for path in self._paths():
            if path not in kept and path != written:
                with suppress(OSError):  # it is in nobody's way, next time it may work
                    path.unlink(missing_ok=True)
        self._sweep()

    def _sweep(self) -> None:
        """Remove what killed writers left."""
        temporary = [path for path in self._files() if path.name.startswith(".checkpoint-")]
        remove_leftovers(temporary)
        for path in temporary:
            if _age(path) > STALE:
                shutil.rmtree(path, ignore_errors=True)

    def _paths(self) -> list[Path]:
        """Checkpoints, newest first."""
        found = [path for path in self._files() if NAME.fullmatch(path.name)]
        return sorted(found, key=_step, reverse=True)

    def _files(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except FileNotFoundError:
            return []


class DamagedError(ValueError):
    """A file is no whole checkpoint; the message says why."""


def write_checkpoint(handle: BinaryIO, identity: str, checkpoint: Checkpoint) -> None:
    """Write the safetensors format piece by piece: no second copy of the tensors is needed."""
    state = json.dumps({"step": checkpoint.step, "identity": identity, **checkpoint.state})
    metadata = {"state": state, "sha256": digest(state, checkpoint.tensors)}
    header: dict[str, Any] = {"__metadata__": metadata}
    position = 0
    for name, tensor in sorted(checkpoint.tensors.items()):
        end = position + tensor.nbytes
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    handle.write(len(text).to_bytes(8, "little"))
    handle.write(text)
    for _, tensor in sorted(checkpoint.tensors.items()):
        handle.write(_bytes(tensor))


def read_checkpoint(path: Path) -> tuple[str, Checkpoint]:
    """Read and verify a checkpoint; the identity of its training, and itself.

    :raises FileNotFoundError: there is none.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            # Copies: a tensor that maps the file would keep it alive after it was removed.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        # The file is opened twice, by name; the second time Torch reports whatever is wrong as a RuntimeError.
        if not path.exists():
            raise FileNotFoundError(path) from error
        raise DamagedError(str(error)) from error
    if not {"state", "sha256"} <= metadata.keys():
        raise DamagedError("no checkpoint at all")
    if digest(metadata["state"], tensors) != metadata["sha256"]:
        raise DamagedError("its checksum is wrong")
    state = json.loads(metadata["state"])
    return state.pop("identity"), Checkpoint(state.pop("step"), tensors, state)


def digest(state: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 over all that a checkpoint means: state, names, types, shapes and values."""
    total = hashlib.sha256(state.encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(_bytes(tensor))
    return total.hexdigest()


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put ``prefix.`` before every name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def part(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose name starts with ``prefix.``, without it."""
    return {name.removeprefix(f"{prefix}."): one for name, one in tensors.items() if name.startswith(f"{prefix}.")}


def _despite_others(action: Callable[[], None]) -> None:
    """Act, and act again if the folder vanished meanwhile: pathlib then finds no file, or one that is no folder."""
    for _ in range(ATTEMPTS - 1):
        with suppress(FileNotFoundError, FileExistsError):
            return action()
    return action()


def _bytes(tensor: Tensor) -> memoryview:
    values: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(values)


def _step(path: Path) -> int:
    found = NAME.fullmatch(path.name)
    return int(found[1]) if found else -1


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
