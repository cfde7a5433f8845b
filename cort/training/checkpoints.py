"""The checkpoint of a training: a safetensors file, replaced atomically.

It holds tensors, a state that JSON can express, the identity of its training, and a digest of all this. One of another
training, or a damaged one, is not used.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cort.runtime.files import atomic_file

log = logging.getLogger(__name__)

FILE = "checkpoint.safetensors"
# Of the file's metadata; the order of several would be random.
METADATA_KEY = "checkpoint"


class Checkpoint(NamedTuple):
    """Tensors of a training by name, and the rest as JSON, in which arrays are read back as lists."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


def digest_of(tensors: Mapping[str, Tensor], state: object) -> str:
    """Hash tensors and a state as JSON."""
    digest = hashlib.blake2b(json.dumps(state).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {[*tensor.shape]}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


class Checkpoints:
    """The checkpoint of one training in a folder, written `every` so many seconds.

    :param identify: returns the identity of the training; called once.
    """

    def __init__(self, folder: str | Path, identify: Callable[[], str], every: float) -> None:
        self.path, self.every, self._identity = Path(folder) / FILE, every, cache(identify)

    def newest(self) -> Checkpoint | None:
        """Read the checkpoint of this training, if there is one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            return None
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path, "pt") as file:
                digest, state = json.loads((file.metadata() or {})[METADATA_KEY])
                if state["identity"] != self._identity():
                    log.info("%s belongs to another training: ignored", self.path)
                    return None
                # Copies, because tensors that map the file would keep its disk space in use after it is replaced.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
                if digest != digest_of(tensors, state):
                    raise ValueError("other contents than were written")
                del state["identity"]
                return Checkpoint(tensors, state)
        except (SafetensorError, OSError, ValueError, LookupError) as error:
            log.warning("%s is not a complete checkpoint (%s): it starts from the beginning", self.path, error)
            return None

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint.

        :raises OSError: it could not be written; the one before is unchanged.
        """
        from safetensors.torch import save_file

        # Copies, because tied weights share memory, which the library refuses.
        tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in checkpoint.tensors.items()}
        text = json.dumps({"identity": self._identity(), **checkpoint.state}, default=methodcaller("tolist"))
        state = json.loads(text)
        with atomic_file(self.path) as temporary:
            save_file(tensors, temporary, {METADATA_KEY: json.dumps([digest_of(tensors, state), state])})

    def remove(self) -> None:
        """Remove the checkpoint, and the folder if nothing else is in it."""
        self.path.unlink(missing_ok=True)
        with suppress(OSError):  # another process writes there, or has removed it
            self.path.parent.rmdir()
