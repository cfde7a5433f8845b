"""Training of a cross-encoder on pairs: rows of token caches, the loss of each, and the model's validation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.cross_encoder import Pairs, save_cross_encoder
from cort.models.rerankers import new_reranker
from cort.models.settings import PairSettings
from cort.models.tokenizer import fingerprint, load_template
from cort.system.errors import input_error
from cort.system.options import read_options
from cort.training.loop import Task
from cort.training.losses import pointwise_loss
from cort.training.microbatches import Forward, MicroBatch, Rows, join_by_length
from cort.training.selection import Validation, pair_rows, read_candidates, value_of_scores
from cort.training.settings import RerankerTraining


class PairRows(NamedTuple):
    """Pairs as rows of the token caches, with their labels."""

    queries: Rows
    passages: Rows
    relevance: npt.NDArray[np.int32]

    def take(self, examples: Rows) -> PairRows:
        """Choose some, in this order."""
        return PairRows(self.queries[examples], self.passages[examples], self.relevance[examples])


def read_pairs(path: str, queries: Tokens, passages: Tokens) -> PairRows:
    """Look up the rows of all pairs; refuse unknown ids and empty tables."""
    table = tables.read_table(path, tables.PAIRS)
    if not table.num_rows:
        raise input_error(path, "no pairs", "at least one", "sample them again")
    return PairRows(
        queries.rows_of(table["query_id"], path), passages.rows_of(table["doc_id"], path), table["relevance"].to_numpy()
    )


@dataclass(frozen=True)
class PairTexts:
    """Pairs, and the texts they are rows of."""

    rows: PairRows
    pairs: Pairs

    def __len__(self) -> int:
        return len(self.rows.queries)

    def tokens(self, examples: Rows) -> npt.NDArray[np.integer]:
        """Count the tokens of each pair."""
        part = self.rows.take(examples)
        return self.pairs.lengths(part.queries, part.passages)


def pairs_losses(texts: PairTexts, batch: MicroBatch, forward: Forward) -> Tensor:
    """Compute the loss of each pair of a micro-batch; returns (pairs,)."""
    part = texts.rows.take(batch.examples)
    logits = forward(texts.pairs.sequences(part.queries, part.passages))  # (pairs,)
    return pointwise_loss(logits, torch.from_numpy(part.relevance).to(logits.device))


def make_task(options: RerankerTraining) -> Task:
    """Make the cross-encoder, and read what the options name.

    :raises InputError: files that do not fit each other.
    """
    model = new_reranker(options.base_model, read_options(PairSettings, options), options.seed)
    tokenizer, template = fingerprint(options.base_model), load_template(options.base_model)
    passages, *caches = (
        Tokens(path, tokenizer) for path in (options.passages, options.queries, options.validation_queries)
    )
    training, validation = (
        PairTexts(read_pairs(path, cache, passages), Pairs(cache, passages, template, model.settings))
        for path, cache in zip((options.pairs, options.validation_pairs), caches, strict=True)
    )
    candidates = read_candidates(options)
    rows = pair_rows(candidates, caches[1], passages) if candidates else None

    def split(examples: Rows, _: int, limit: float) -> list[MicroBatch]:
        return join_by_length(examples, training.tokens(examples), limit)

    def losses(batch: MicroBatch, forward: Forward) -> Tensor:
        return pairs_losses(training, batch, forward)

    def validate(forward: Forward) -> Validation:
        every = np.arange(len(validation))
        parts = join_by_length(every, validation.tokens(every), options.tokens_at_once)
        loss = torch.cat([pairs_losses(validation, part, forward) for part in parts]).mean().item()
        if candidates is None or rows is None:
            return Validation(loss)
        scores = forward(validation.pairs.sequences(*rows))  # (candidates,)
        return Validation(loss, value_of_scores(candidates, scores.double().cpu().numpy()))

    def save(name: str) -> None:
        save_cross_encoder(model, options.base_model, Path(options.output) / name)

    per_epoch = len(training) // tables.count_epochs(options.pairs)
    return Task(model, len(training), per_epoch, split, losses, validate, save)
