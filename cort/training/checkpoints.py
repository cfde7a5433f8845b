"""Checkpoints of a training: one safetensors file each, verified when read, the last two kept.

A checkpoint holds tensors, a state that JSON can express, and a SHA-256 over both and the identity of its training.
Damaged checkpoints and those of another training are never used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from operator import methodcaller
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cort.runtime.files import atomic_file, remove_leftovers

log = logging.getLogger(__name__)

KEPT = 2
NAME = re.compile(r"checkpoint-(\d+)\.safetensors")
# Of a file's metadata.
KEY = "checkpoint"


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
        self.folder.mkdir(parents=True, exist_ok=True)
        wanted, damaged = self._identity(), False
        for path in self._paths().values():
            try:
                identity, checkpoint = read_checkpoint(path)
                if identity == wanted:
                    return checkpoint
                log.info("%s belongs to another training: ignored", path)
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
        with atomic_file(path) as temporary:
            write_checkpoint(temporary, self._identity(), checkpoint)
        paths = list(self._paths().values())
        kept = [other for other in paths if other == path or other not in self._unusable][:KEPT]
        self._unusable.clear()
        for old in {*paths} - {*kept, path}:
            with suppress(OSError):  # the next call tries again
                old.unlink(missing_ok=True)
        remove_leftovers(self._files())
        return path

    def remove(self) -> None:
        """Remove all checkpoints, and the folder if nothing else is in it."""
        for path in self._paths().values():
            path.unlink(missing_ok=True)
        remove_leftovers(self._files())
        with suppress(OSError):  # another process writes there, or has removed it
            self.folder.rmdir()

    def remaining(self) -> int | None:
        """Return the update of the newest usable checkpoint, or None."""
        return next((step for step, path in self._paths().items() if path not in self._unusable), None)

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


def write_checkpoint(path: Path, identity: str, checkpoint: Checkpoint) -> None:
    """Write safetensors, with the state and the checksum as metadata."""
    from safetensors.torch import save_file

    # Copies, because tied weights share memory, which the library refuses.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in checkpoint.tensors.items()}
    state = {"step": checkpoint.step, "identity": identity, **checkpoint.state}
    text = json.dumps(state, default=methodcaller("tolist"))
    save_file(tensors, path, {KEY: f"{digest(text, tensors)} {text}"})


def read_checkpoint(path: Path) -> tuple[str, Checkpoint]:
    """Read and verify a checkpoint; return the identity of its training as well.

    :raises DamagedError: it is not complete.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            written, _, text = (file.metadata() or {}).get(KEY, "").partition(" ")
            # Copies, because tensors that map the file would keep its disk space in use after it is removed.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise DamagedError(str(error)) from error
    if not text:
        raise DamagedError("not a checkpoint")
    if digest(text, tensors) != written:
        raise DamagedError("its checksum is wrong")
    state = json.loads(text)
    return state.pop("identity"), Checkpoint(state.pop("step"), tensors, state)


def digest(state: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 over the content of a checkpoint: state, names, types, shapes and values."""
    total = hashlib.sha256(state.encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
