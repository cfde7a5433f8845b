"""All random states of a process as tensors, so that they can be stored without pickle and put back bit by bit."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor

# What numpy and Python call the words of the Mersenne twister's state; the position follows them.
NUMPY_WORDS = 624
PYTHON_WORDS = 625
PYTHON_VERSION = 3


def random_states(device: torch.device) -> dict[str, Tensor]:
    """States of torch on the CPU and on `device`, of Python's `random`, and of numpy's legacy generator."""
    _, words, position, has_normal, normal = np.random.get_state()  # noqa: NPY002 - libraries still draw from it
    _, python_words, python_normal = random.getstate()
    # Doubles hold 32-bit words exactly.
    numbers = [*words, position, has_normal, normal]
    python_numbers = [*python_words, python_normal is not None, python_normal or 0.0]
    states = {
        "torch": torch.get_rng_state(),
        "numpy": torch.tensor(numbers, dtype=torch.float64),
        "python": torch.tensor(python_numbers, dtype=torch.float64),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Put back what `random_states` returned; a GPU's state is left out where there is none."""
    torch.set_rng_state(states["torch"])
    words = states["numpy"][:NUMPY_WORDS].numpy().astype(np.uint32)
    position, has_normal, normal = states["numpy"][NUMPY_WORDS:].tolist()
    np.random.set_state(("MT19937", words, int(position), int(has_normal), normal))  # noqa: NPY002
    python_words = tuple(map(int, states["python"][:PYTHON_WORDS].tolist()))
    has_normal, normal = states["python"][PYTHON_WORDS:].tolist()
    random.setstate((PYTHON_VERSION, python_words, normal if has_normal else None))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
