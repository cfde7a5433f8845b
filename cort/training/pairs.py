"""Training of a cross-encoder on pairs: rows of token caches, the loss of each, and the model's validation."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.cross_encoder import CrossEncoder, Pairs, save_cross_encoder
from cort.models.tokenizer import fingerprint, load_template
from cort.system.errors import input_error
from cort.training.forward import Forward
from cort.training.loop import Task
from cort.training.losses import pointwise_loss
from cort.training.microbatches import Chunk, Rows, chunks_by_length
from cort.training.selection import Validation, candidates_of, pair_rows, value_of_scores


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
        queries.rows_of(table["query_id"], path),
        passages.rows_of(table["doc_id"], path),
        table["relevance"].to_numpy(),
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


def pairs_losses(texts: PairTexts, chunk: Chunk, forward: Forward) -> Tensor:
    """Compute the loss of each pair of a chunk; returns (pairs,)."""
    part = texts.rows.take(chunk.examples)
    logits = forward(texts.pairs.sequences(part.queries, part.passages))  # (pairs,)
    return pointwise_loss(logits, torch.from_numpy(part.relevance).to(logits.device))


def make_task(args: argparse.Namespace, model: CrossEncoder) -> Task:
    """Read what the arguments name.

    :raises InputError: files that do not fit each other.
    """
    tokenizer, template = fingerprint(args.base_model), load_template(args.base_model)
    passages, *caches = (Tokens(path, tokenizer) for path in (args.passages, args.queries, args.validation_queries))
    training, validation = (
        PairTexts(read_pairs(path, cache, passages), Pairs(cache, passages, template, model.settings))
        for path, cache in zip((args.pairs, args.validation_pairs), caches, strict=True)
    )
    candidates = candidates_of(args)
    rows = pair_rows(candidates, caches[1], passages, args.validation_run) if candidates else None

    def chunks(examples: Rows, _: int, limit: float) -> list[Chunk]:
        return chunks_by_length(examples, training.tokens(examples), limit)

    def losses(chunk: Chunk, forward: Forward) -> Tensor:
        return pairs_losses(training, chunk, forward)

    def validate(forward: Forward) -> Validation:
        every = np.arange(len(validation))
        parts = chunks_by_length(every, validation.tokens(every), args.tokens_at_once)
        loss = torch.cat([pairs_losses(validation, part, forward) for part in parts]).mean().item()
        if candidates is None or rows is None:
            return Validation(loss)
        scores = forward(validation.pairs.sequences(*rows))  # (candidates,)
        return Validation(loss, value_of_scores(candidates, scores.double().cpu().numpy()))

    def save(name: str) -> None:
        save_cross_encoder(model, args.base_model, Path(args.output) / name)

    per_epoch = len(training) // tables.count_epochs(args.pairs)
    return Task(model, len(training), per_epoch, chunks, losses, validate, save)
