"""Training of a cross-encoder on pairs: rows of token caches, the loss of each, and the model's validation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

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
from cort.training.selection import Validation, read_candidates
from cort.training.settings import RerankerTraining


@dataclass(frozen=True)
class PairTexts:
    """Pairs as rows of the token caches, with their labels, and how to join their texts."""

    queries: Rows
    passages: Rows
    relevance: npt.NDArray[np.int32]
    pairs: Pairs

    def __len__(self) -> int:
        return len(self.queries)

    def split(self, examples: Rows, _: int, limit: float) -> list[MicroBatch]:
        """Join pairs of similar length up to so many tokens."""
        tokens = self.pairs.lengths(self.queries[examples], self.passages[examples])
        return join_by_length(examples, tokens, limit)

    def losses(self, batch: MicroBatch, forward: Forward) -> Tensor:
        """Compute the loss of each pair of a micro-batch; returns (pairs,)."""
        some = batch[:, 0]
        logits = forward(self.pairs.sequences(self.queries[some], self.passages[some]))  # (pairs,)
        return pointwise_loss(logits, torch.from_numpy(self.relevance[some]).to(logits.device))


def read_pairs(path: str, pairs: Pairs) -> PairTexts:
    """Look up the rows of all pairs; refuse unknown ids and empty tables."""
    table = tables.read_table(path, tables.PAIRS)
    if not table.num_rows:
        raise input_error(path, "no pairs", "at least one", "sample them again")
    rows = pairs.queries.rows_of(table["query_id"], path), pairs.passages.rows_of(table["doc_id"], path)
    relevance = table["relevance"].to_numpy()
    if (wrong := np.flatnonzero((relevance != 0) & (relevance != 1))).size:
        place = int(wrong[0])
        raise input_error(path, f"the relevance {relevance[place]}", "0 or 1", "sample them again", place + 1)
    return PairTexts(*rows, relevance, pairs)


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
        read_pairs(path, Pairs(queries, passages, template, model.settings))
        for path, queries in zip((options.pairs, options.validation_pairs), caches, strict=True)
    )
    candidates = read_candidates(options)
    rows = candidates.rows(caches[1], passages) if candidates else None

    def validate(forward: Forward) -> Validation:
        parts = validation.split(np.arange(len(validation)), 1, options.tokens_at_once)
        loss = torch.cat([validation.losses(part, forward) for part in parts]).mean().item()
        if candidates is None or rows is None:
            return Validation(loss)
        scores = forward(validation.pairs.sequences(*rows))  # (candidates,)
        return Validation(loss, candidates.value(replace(candidates.run, scores=scores.double().cpu().numpy())))

    def save(name: str) -> None:
        save_cross_encoder(model, options.base_model, Path(options.output) / name)

    per_epoch = len(training) // tables.count_epochs(options.pairs)
    return Task(model, len(training), per_epoch, training.split, training.losses, validate, save)
