"""What trains a model that says which queries passages answer: passages and the queries they are relevant to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import torch
from torch import Tensor

from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.expander import Asked, Passages, frame_query, load_expander
from cort.models.tokenizer import fingerprint
from cort.models.transformer import counted
from cort.system.errors import input_error
from cort.system.progress import Counter
from cort.training.examples import in_epochs, mean_loss, task_of
from cort.training.loop import Task
from cort.training.microbatches import Forward, MicroBatch, Rows, join_by_length
from cort.training.selection import Validation
from cort.training.settings import ExpanderTraining


@dataclass(frozen=True)
class Examples:
    """Relevant passages and their queries by rows in token caches, and which pair each example is."""

    passages: Passages
    queries: Tokens
    passage_rows: Rows
    query_rows: Rows
    order: Rows
    end: int
    query_length: int

    def query(self, row: int) -> npt.NDArray[np.int64]:
        """Frame a query of the cache."""
        return frame_query(self.queries[row], self.end, self.query_length)

    def split(self, examples: Rows, _: int, limit: float) -> list[MicroBatch]:
        """Join examples of similar length up to so many tokens."""
        return join_by_length(examples, self._lengths(self.order[examples]), limit)

    def losses(self, batch: MicroBatch, forward: Forward) -> Tensor:
        """Compute the loss of each example of a micro-batch, the cross-entropy of its tokens; returns (examples,).

        Divided by the mean number of tokens of a query: the mean over all examples is that over their tokens.
        """
        pairs = self.order[batch[:, 0]]
        sequences = Asked(
            self._lengths(pairs),
            lambda row: self.passages.frame(int(self.passage_rows[pairs[row]])),
            self.passages.template,
            self.passages.source,
            query=lambda row: self.query(int(self.query_rows[pairs[row]])),
        )
        return forward(sequences) / self._mean_length

    @cached_property
    def _mean_length(self) -> float:
        return float(self._query_lengths(np.arange(len(self.query_rows))).mean())

    def _lengths(self, pairs: Rows) -> npt.NDArray[np.integer]:
        return self.passages.lengths(self.passage_rows[pairs]) + self._query_lengths(pairs)

    def _query_lengths(self, pairs: Rows) -> npt.NDArray[np.integer]:
        return np.minimum(self.queries.lengths[self.query_rows[pairs]] + 1, self.query_length)


def read_examples(
    qrels: str, queries: Tokens, passages: Passages, end: int, options: ExpanderTraining, epochs: int
) -> Examples:
    """Read who is relevant to what; each epoch sees every pair once, in an order of its own.

    :raises InputError: no relevant passage.
    """
    table = tables.read_table(qrels, tables.QRELS)
    table = table.filter(pc.greater_equal(table["relevance"], options.relevance_level))
    if not len(table):
        raise input_error(qrels, "no relevant passage", "at least one", "lower relevance_level or name other qrels")
    rows = passages.tokens.rows_of(table["doc_id"], qrels), queries.rows_of(table["query_id"], qrels)
    order = in_epochs(len(table), epochs, options.seed)
    return Examples(passages, queries, *rows, order, end, options.query_length)


def make_task(options: ExpanderTraining) -> Task:
    """Make the model, and read what the options name.

    :raises InputError: files that do not fit each other.
    """
    torch.manual_seed(options.seed)
    model, template = load_expander(options.base_model, options.passage_length, options.query_length)
    tokenizer = fingerprint(options.base_model)
    passages = Passages(Tokens(options.passages, tokenizer), template, options.passage_length)
    training, validation = (
        read_examples(qrels, Tokens(queries, tokenizer), passages, model.end, options, epochs)
        for qrels, queries, epochs in (
            (options.qrels, options.queries, options.epochs),
            (options.validation_qrels, options.validation_queries, 1),
        )
    )

    def validate(forward: Forward) -> Validation:
        with Counter(len(validation.order), "queries in validation") as counter, counted(model, counter):
            return mean_loss(validation, forward, options.tokens_at_once)

    return task_of(model, training, validate, model.transformer.save_pretrained, options)
