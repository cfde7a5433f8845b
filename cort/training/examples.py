"""Trainings that see each of some examples once in every epoch: of models that expand passages or weigh their terms."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from cort.models.transformer import TOKENIZER_FILES
from cort.system.files import atomic_folder
from cort.training.loop import Task
from cort.training.microbatches import Forward, MicroBatch, Rows
from cort.training.selection import Validation
from cort.training.settings import ExpanderTraining, WeigherTraining


class Examples(Protocol):
    """Examples by position; `order` says which one each position is."""

    @property
    def order(self) -> Rows:
        """Of all epochs, one after the other."""

    def split(self, examples: Rows, _: int, limit: float) -> list[MicroBatch]:
        """Join examples up to so many tokens."""

    def losses(self, batch: MicroBatch, forward: Forward) -> Tensor:
        """Compute the loss of each example of a micro-batch; returns (examples,)."""


def in_epochs(count: int, epochs: int, seed: int) -> Rows:
    """Order so many examples anew for each epoch."""
    return np.concatenate([np.random.default_rng([seed, epoch]).permutation(count) for epoch in range(epochs)])


def mean_loss(examples: Examples, forward: Forward, tokens_at_once: int) -> Validation:
    """Average the loss of all examples."""
    parts = examples.split(np.arange(len(examples.order)), 1, tokens_at_once)
    return Validation(torch.cat([examples.losses(part, forward) for part in parts]).mean().item())


def task_of(
    model: nn.Module,
    training: Examples,
    validate: Callable[[Forward], Validation],
    write: Callable[[Path], None],
    options: ExpanderTraining | WeigherTraining,
) -> Task:
    """Make a task of examples; `write` writes the model into a folder, to which its tokenizer is copied."""

    def save(name: str) -> None:
        with atomic_folder(Path(options.output) / name) as folder:
            write(folder)
            for file in TOKENIZER_FILES:
                shutil.copyfile(Path(options.base_model) / file, folder / file)

    examples = len(training.order)
    return Task(model, examples, examples // options.epochs, training.split, training.losses, validate, save)
