"""Training of an encoder on triples: rows of token caches, the loss of mini-batches, and the model's validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.encoder import Texts, new_encoder, save_encoder, texts_of
from cort.models.settings import EncoderSettings
from cort.models.tokenizer import fingerprint, load_template
from cort.system.errors import input_error, shorten
from cort.system.options import read_options
from cort.training.loop import Task
from cort.training.losses import SIMILARITIES
from cort.training.microbatches import Forward, MicroBatch, Rows, join_consecutive
from cort.training.objectives import Batch, make_objective
from cort.training.selection import Validation, make_pool, read_candidates
from cort.training.settings import EncoderTraining

Objective: TypeAlias = Callable[[Batch], Tensor]


class TripleRows(NamedTuple):
    """Triples as rows of the token caches."""

    queries: Rows
    positives: Rows
    negatives: Rows

    def take(self, examples: Rows) -> TripleRows:
        """Choose some, in this order."""
        return TripleRows(*(rows[examples] for rows in self))

    def grouped(self, size: int) -> TripleRows:
        """Cut into mini-batches; arrays of shape (mini-batches, size)."""
        return TripleRows(*(rows.reshape(-1, size) for rows in self))


def read_triples(path: str, queries: Tokens, passages: Tokens) -> TripleRows:
    """Look up the rows of all triples; refuse unknown ids and empty tables."""
    table = tables.read_table(path, tables.TRIPLES)
    if not table.num_rows:
        raise input_error(path, "no triples", "at least one", "sample them again")
    return TripleRows(
        queries.rows_of(table["query_id"], path),
        passages.rows_of(table["positive"], path),
        passages.rows_of(table["negative"], path),
    )


class PairNumbers:
    """Pairs of a query and a passage, as rows of the token caches: which are known, and where."""

    def __init__(self, table: pa.Table, source: str, queries: Tokens, passages: Tokens) -> None:
        self._passages = len(passages)
        query_rows, passage_rows = (
            cache.rows_of(table[name], source) for cache, name in ((queries, "query_id"), (passages, "doc_id"))
        )
        self._pairs, self.first = np.unique(query_rows * self._passages + passage_rows, return_index=True)

    def find(self, queries: Rows, passages: Rows) -> Rows:
        """Places of pairs among the known ones, sorted; -1 where unknown. Arrays of shapes that fit each other."""
        pairs = queries * self._passages + passages
        if len(self._pairs) == 0:
            return np.full(pairs.shape, -1)
        # Mini-batches are small and known pairs many: a binary search for each pair, not a pass over all of them.
        places = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        return np.where(self._pairs[places] == pairs, places, -1)


class Judgements:
    """Which passages are relevant for which queries, as rows of the token caches."""

    def __init__(self, path: str, relevance_level: int, queries: Tokens, passages: Tokens) -> None:
        """:param relevance_level: lowest grade that counts."""
        table = tables.read_table(path, tables.QRELS)
        relevant = table.filter(pc.greater_equal(table["relevance"], relevance_level))
        self._pairs = PairNumbers(relevant, path, queries, passages)

    def relevant(self, queries: Rows, passages: Rows) -> npt.NDArray[np.bool_]:
        """Look up all pairs of each mini-batch, rows of (..., n) and (..., m); returns (..., n, m)."""
        return self._pairs.find(queries[..., :, None], passages[..., None, :]) >= 0


class Teacher:
    """Scores of a cross-encoder for the pairs of the triples."""

    def __init__(self, path: str, queries: Tokens, passages: Tokens) -> None:
        self._path, self._queries, self._passages = path, queries, passages
        table = tables.read_table(path, tables.SCORES)
        self._pairs = PairNumbers(table, path, queries, passages)
        self._scores = table["score"].to_numpy()[self._pairs.first]

    def margins(self, triples: TripleRows) -> npt.NDArray[np.float64]:
        """Score of the positive less that of the negative; shape of the triples.

        :raises InputError: a pair without a score.
        """
        near, far = (self._scores_of(triples.queries, rows) for rows in (triples.positives, triples.negatives))
        return near - far

    def _scores_of(self, queries: Rows, passages: Rows) -> npt.NDArray[np.float64]:
        places = self._pairs.find(queries, passages)
        if (places < 0).any():
            query, passage = (int(rows[places < 0][0]) for rows in (queries, passages))
            query_id, doc_id = self._queries.ids[query].as_py(), self._passages.ids[passage].as_py()
            found = f"no score of document {shorten(doc_id)} for query {shorten(query_id)}"
            raise input_error(self._path, found, "one for each pair of the triples", "score the triples again")
        scores: npt.NDArray[np.float64] = self._scores[places].astype(np.float64)
        return scores


@dataclass(frozen=True)
class TripleTexts:
    """Triples, the texts they are rows of, and what is known of them besides."""

    triples: TripleRows
    queries: Texts
    passages: Texts
    judgements: Judgements | None = None
    teacher: Teacher | None = None

    def __len__(self) -> int:
        return len(self.triples.queries)

    def tokens(self, examples: Rows) -> npt.NDArray[np.integer]:
        """Count the tokens of each triple."""
        part = self.triples.take(examples)
        passages = self.passages.lengths(part.positives) + self.passages.lengths(part.negatives)
        return self.queries.lengths(part.queries) + passages

    def relevant(self, triples: TripleRows) -> Tensor:
        """Tell which passages of mini-batches (..., n) are relevant for which query; returns (..., n, 2n).

        A passage that is the query's own positive is relevant, whatever the judgements say.
        """
        rows = np.concatenate([triples.positives, triples.negatives], axis=-1)  # (..., 2n)
        relevant = triples.positives[..., :, None] == rows[..., None, :]  # (..., n, 2n)
        if self.judgements:
            relevant |= self.judgements.relevant(triples.queries, rows)
        return torch.from_numpy(relevant)

    def margins(self, triples: TripleRows) -> Tensor:
        """Score of the positive less that of the negative, by the teacher; shape of the triples."""
        if self.teacher is None:
            raise ValueError("this loss needs a teacher")
        return torch.from_numpy(self.teacher.margins(triples))


def triples_losses(texts: TripleTexts, batch: MicroBatch, forward: Forward, objective: Objective) -> Tensor:
    """Compute the loss of each mini-batch of a micro-batch; returns (mini-batches,)."""
    part = texts.triples.take(batch.examples)
    queries = forward(texts.queries.sequences(part.queries))  # (triples, e)
    both = np.concatenate([part.positives, part.negatives])
    positives, negatives = forward(texts.passages.sequences(both)).chunk(2)  # (triples, e) each
    shape = len(batch), batch.size, -1
    grouped, device = part.grouped(batch.size), queries.device
    return objective(
        Batch(
            queries.reshape(shape),
            positives.reshape(shape),
            negatives.reshape(shape),
            relevant=lambda: texts.relevant(grouped).to(device),
            margins=lambda: texts.margins(grouped).to(device),
        )
    )


def make_task(options: EncoderTraining) -> Task:
    """Make the encoder, and read what the options name.

    :raises InputError: files that do not fit each other.
    """
    settings = read_options(EncoderSettings, options)
    encoder = new_encoder(options.base_model, settings, options.seed, options.start)
    tokenizer, template = fingerprint(options.base_model), load_template(options.base_model)
    cache, *caches = (
        Tokens(path, tokenizer) for path in (options.passages, options.queries, options.validation_queries)
    )
    passages = texts_of(cache, template, settings, "passage")

    def read(queries: Tokens, triples: str, qrels: str | None, scores: str | None) -> TripleTexts:
        return TripleTexts(
            read_triples(triples, queries, cache),
            texts_of(queries, template, settings, "query"),
            passages,
            Judgements(qrels, options.relevance_level, queries, cache) if qrels else None,
            Teacher(scores, queries, cache) if scores else None,
        )

    training = read(caches[0], options.triples, options.qrels, options.teacher_scores)
    held_out = options.validation_triples, options.validation_qrels, options.validation_teacher_scores
    validation = read(caches[1], *held_out)
    objective = make_objective(options, settings.similarity)
    candidates = read_candidates(options)
    pool = make_pool(candidates, caches[1], cache) if candidates else None

    def split(examples: Rows, size: int, limit: float) -> list[MicroBatch]:
        return join_consecutive(examples, size, training.tokens(examples), limit)

    def losses(batch: MicroBatch, forward: Forward) -> Tensor:
        return triples_losses(training, batch, forward, objective)

    def validate(forward: Forward) -> Validation:
        # Whole mini-batches as in training, so that both losses count the same number of negatives per query.
        size = min(options.batch_size, len(validation))
        examples = np.arange(len(validation) // size * size)
        parts = join_consecutive(examples, size, validation.tokens(examples), options.tokens_at_once)
        loss = torch.cat([triples_losses(validation, part, forward, objective) for part in parts]).mean().item()
        if pool is None:
            return Validation(loss)
        vectors = forward(validation.queries.sequences(pool.queries)), forward(passages.sequences(pool.passages))
        return Validation(loss, pool.value(*vectors, SIMILARITIES[settings.similarity]))

    def save(name: str) -> None:
        save_encoder(encoder, options.base_model, Path(options.output) / name)

    per_epoch = len(training) // tables.count_epochs(options.triples)
    return Task(encoder, len(training), per_epoch, split, losses, validate, save)
