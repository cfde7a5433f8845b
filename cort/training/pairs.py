"""Training a re-ranker on pairs: rows of token caches, the loss of pairs or groups, and validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cort.formats import tables
from cort.models.batching import Lengths, consecutive, sent
from cort.models.cross_encoder import Pairs
from cort.models.rerankers import new_reranker
from cort.models.settings import PairSettings
from cort.models.transformer import counted
from cort.runtime.command_line import take
from cort.runtime.errors import input_error
from cort.training.loop import Task, save_trained
from cort.training.losses import RERANKER_OBJECTIVES
from cort.training.microbatches import Forward, MicroBatch, Room, Rows, join_consecutive, open_caches
from cort.training.selection import Validation, read_candidates
from cort.training.settings import RerankerTraining

# Validation candidates are scored in blocks, because late interaction keeps the vectors of a block in memory.
PAIRS_AT_ONCE = 8_192


@dataclass(frozen=True)
class PairTexts:
    """Pairs as rows of the token caches, with their labels, how to score their texts, and the loss of examples.

    Example i consists of the pairs from ``starts[i]`` to ``starts[i + 1]``: a single pair, or a group.
    """

    queries: Rows
    passages: Rows
    relevance: npt.NDArray[np.int32]
    starts: Rows
    pairs: Pairs
    loss: Callable[[Tensor, Tensor], Tensor]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def split(self, examples: Rows, _: int, room: Room) -> list[MicroBatch]:
        """Join examples as far as there is room: those of similar length or, if pairs share texts, consecutive ones."""
        if not self.pairs.shared:
            rows, sizes = self._rows(examples)
            lengths = self.pairs.lengths(self.queries[rows], self.passages[rows])
            examples = examples[np.argsort(-np.add.reduceat(lengths, np.cumsum(sizes) - sizes), kind="stable")]
        return join_consecutive(examples, 1, lambda some: room.tokens(self.passes(some)), room.limit)

    def losses(self, batch: MicroBatch, forward: Forward) -> Tensor:
        """Compute the loss of each example of a micro-batch; returns (examples,)."""
        rows, sizes = self._rows(batch[:, 0])
        scores = self.pairs.scores(forward, self.queries[rows], self.passages[rows])  # (pairs,)
        # One row per example, padded.
        inside = np.arange(sizes.max()) < sizes[:, None]  # (examples, most)
        relevance = np.zeros(inside.shape, np.int32)
        relevance[inside] = self.relevance[rows]
        places, labels = (sent(torch.from_numpy(array), scores.device) for array in (inside, relevance))
        return self.loss(scores.new_full(inside.shape, -torch.inf).masked_scatter(places, scores), labels)

    def passes(self, examples: Rows) -> list[Lengths]:
        """Return the lengths of the texts that go through the model for some examples, for each pass."""
        rows, _ = self._rows(examples)
        return self.pairs.passes(self.queries[rows], self.passages[rows])

    def _rows(self, examples: Rows) -> tuple[Rows, Rows]:
        """Return the rows of the examples' pairs, and the number of pairs of each example."""
        sizes = np.diff(self.starts)[examples]
        return consecutive(self.starts[examples], sizes), sizes


def read_pairs(path: str, pairs: Pairs, options: RerankerTraining) -> PairTexts:
    """Look up the rows of all pairs.

    :raises InputError: unknown ids, a group without a positive, or of several queries.
    """
    table = tables.read_table(path, tables.PAIRS)
    queries, passages = pairs.queries.rows_of(table["query_id"], path), pairs.passages.rows_of(table["doc_id"], path)
    relevance, objective = table["relevance"].to_numpy(), RERANKER_OBJECTIVES[options.loss]
    starts = np.arange(len(queries) + 1)
    if objective.grouped:
        starts = np.unique([0, *np.flatnonzero(relevance), len(queries)])
        firsts = np.repeat(starts[:-1], np.diff(starts))  # the first pair of each pair's group
        if (wrong := np.flatnonzero((relevance[firsts] == 0) | (queries != queries[firsts]))).size:
            found = "a negative without a positive of its query before it"
            fix = "choose another value of pairs.positives, or the loss pointwise"
            raise input_error(path, found, "groups", fix, int(wrong[0]) + 1)
    settings = take(objective.settings, options)
    return PairTexts(
        queries, passages, relevance, starts, pairs, lambda logits, labels: objective.loss(logits, labels, settings)
    )


def make_task(options: RerankerTraining) -> Task:
    """Make the re-ranker and read its pairs.

    :raises InputError: files that do not fit together.
    """
    model = new_reranker(options.base_model, take(PairSettings, options), options.seed, options.cleaning)
    passages, *caches = open_caches(options)
    training, validation = (
        read_pairs(path, model.pairs(queries, passages), options)
        for path, queries in zip((options.pairs, options.validation_pairs), caches, strict=True)
    )
    candidates = read_candidates(options)
    blocks: list[tuple[Rows, Rows]] = []
    if candidates:
        rows = candidates.rows(caches[1], passages)
        cuts = range(PAIRS_AT_ONCE, len(rows[0]), PAIRS_AT_ONCE)
        blocks = list(zip(*(np.split(column, cuts) for column in rows), strict=True))

    def validate(forward: Forward) -> Validation:
        parts = validation.split(np.arange(len(validation)), 1, forward.room)
        passes = [validation.passes(part[:, 0]) for part in parts] + [
            validation.pairs.passes(*block) for block in blocks
        ]
        total = sum(len(lengths) for texts in passes for lengths in texts)
        with counted(model, total, "texts in validation"):
            loss = torch.cat([validation.losses(part, forward) for part in parts]).mean().item()
            if candidates is None:
                return Validation(loss)
            scores = torch.cat([validation.pairs.scores(forward, *block) for block in blocks])  # (candidates,)
            return Validation(loss, candidates.value(replace(candidates.run, scores=scores.double().cpu().numpy())))

    save = partial(save_trained, model, options)
    unranked = candidates.value(candidates.run) if candidates else None
    per_epoch = len(training) // tables.count_epochs(options.pairs)
    return Task(model, len(training), per_epoch, training.split, training.losses, validate, save, unranked)
