"""What trains a model that weighs terms: passages with the recall of their words."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.tokenizer import fingerprint
from cort.models.transformer import TOKENIZER_FILES
from cort.models.weigher import Words, load_vocabulary, load_weigher
from cort.system.errors import input_error
from cort.system.files import atomic_folder
from cort.training.loop import Task
from cort.training.losses import term_recall_loss
from cort.training.microbatches import Forward, MicroBatch, Rows, join_by_length
from cort.training.selection import Validation
from cort.training.settings import WeigherTraining


@dataclass(frozen=True)
class Examples:
    """Passages by their rows in the token cache, the recall of the terms of each, and which one each example is."""

    words: Words
    rows: Rows
    recall: list[dict[str, float]]
    order: Rows

    def split(self, examples: Rows, _: int, limit: float) -> list[MicroBatch]:
        """Join examples of similar length up to so many tokens."""
        return join_by_length(examples, self.words.lengths(self.rows[self.order[examples]]), limit)

    def losses(self, batch: MicroBatch, forward: Forward) -> Tensor:
        """Compute the loss of each example of a micro-batch; returns (examples,)."""
        chosen = self.order[batch[:, 0]]
        numbers = forward(self.words.sequences(self.rows[chosen]))  # (examples, length)
        targets, counted = np.zeros((2, *numbers.shape), np.float32)
        for place, example in enumerate(chosen):
            words, first = self.words.of(int(self.rows[example]))
            recall = self.recall[example]
            targets[place, first] = [recall.get(word, 0.0) for word in words]
            counted[place, first] = 1.0
        return term_recall_loss(numbers, *(torch.from_numpy(one).to(numbers.device) for one in (targets, counted)))


def read_examples(path: str, words: Words, epochs: int, seed: int) -> Examples:
    """Read the recall of terms; each epoch sees every passage once, in an order of its own."""
    table = tables.read_table(path, tables.TERM_RECALL)
    if not len(table):
        raise input_error(path, "no passage", "some", "make it again")
    recall = [
        dict(zip(terms, values, strict=True))
        for terms, values in zip(table["terms"].to_pylist(), table["recall"].to_pylist(), strict=True)
    ]
    order: list[npt.NDArray[np.int64]] = [
        np.random.default_rng([seed, epoch]).permutation(len(table)) for epoch in range(epochs)
    ]
    return Examples(words, words.tokens.rows_of(table["doc_id"], path), recall, np.concatenate(order))


def make_task(options: WeigherTraining) -> Task:
    """Make the model, and read what the options name.

    :raises InputError: files that do not fit each other.
    """
    torch.manual_seed(options.seed)
    model, template = load_weigher(options.base_model, options.passage_length, trained=False)
    tokens = Tokens(options.passages, fingerprint(options.base_model))
    words = Words(tokens, template, load_vocabulary(options.base_model), options.passage_length)
    training = read_examples(options.targets, words, options.epochs, options.seed)
    validation = read_examples(options.validation_targets, words, 1, options.seed)

    def validate(forward: Forward) -> Validation:
        parts = validation.split(np.arange(len(validation.order)), 1, options.tokens_at_once)
        return Validation(torch.cat([validation.losses(part, forward) for part in parts]).mean().item())

    def save(name: str) -> None:
        classifier: Any = model.classifier
        with atomic_folder(Path(options.output) / name) as folder:
            classifier.save_pretrained(folder)
            for file in TOKENIZER_FILES:
                shutil.copyfile(Path(options.base_model) / file, folder / file)

    examples = len(training.order)
    return Task(model, examples, examples // options.epochs, training.split, training.losses, validate, save)
