"""The checkpoint of a training: a safetensors file, replaced atomically.

It holds tensors, a state that JSON can express, and the identity of its training. One of another training, or an
incomplete one, is not used.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

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
                state = json.loads((file.metadata() or {})[METADATA_KEY])
                if state.pop("identity") != self._identity():
                    log.info("%s belongs to another training: ignored", self.path)
                    return None
                # Copies, because tensors that map the file would keep its disk space in use after it is replaced.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
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
        with atomic_file(self.path) as temporary:
            save_file(tensors, temporary, {METADATA_KEY: text})

    def remove(self) -> None:
        """Remove the checkpoint, and the folder if nothing else is in it."""
        self.path.unlink(missing_ok=True)
        with suppress(OSError):  # another process writes there, or has removed it
            self.path.parent.rmdir()
