"""What trains a model that weighs terms: passages with the recall of their words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.tokenizer import fingerprint
from cort.models.weigher import Words, load_vocabulary, load_weigher
from cort.system.errors import input_error
from cort.training.examples import in_epochs, mean_loss, task_of
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
    return Examples(words, words.tokens.rows_of(table["doc_id"], path), recall, in_epochs(len(table), epochs, seed))


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
        return mean_loss(validation, forward, options.tokens_at_once)

    classifier: Any = model.classifier
    return task_of(model, training, validate, classifier.save_pretrained, options)
