"""Training of an encoder on triples: rows of token caches, the loss of mini-batches, and the model's validation."""

from __future__ import annotations

import argparse
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
from cort.models.encoder import Encoder, Texts, save_encoder, texts_of
from cort.models.tokenizer import fingerprint, load_template
from cort.system.errors import input_error, shorten
from cort.training.forward import Forward
from cort.training.loop import Task
from cort.training.losses import (
    SIMILARITIES,
    batch_triplet_loss,
    info_nce_loss,
    margin_mse_loss,
    multilabel_margin_loss,
)
from cort.training.microbatches import Chunk, Rows, consecutive_chunks
from cort.training.selection import Validation, candidates_of, make_pool

Objective: TypeAlias = "Callable[[Tensor, Tensor, Tensor, TripleRows], Tensor]"


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
    """Triples, and the texts they are rows of."""

    triples: TripleRows
    queries: Texts
    passages: Texts

    def __len__(self) -> int:
        return len(self.triples.queries)

    def tokens(self, examples: Rows) -> npt.NDArray[np.integer]:
        """Count the tokens of each triple."""
        part = self.triples.take(examples)
        passages = self.passages.lengths(part.positives) + self.passages.lengths(part.negatives)
        return self.queries.lengths(part.queries) + passages


def triples_losses(texts: TripleTexts, chunk: Chunk, forward: Forward, objective: Objective) -> Tensor:
    """Compute the loss of each mini-batch of a chunk; returns (mini-batches,)."""
    part = texts.triples.take(chunk.examples)
    queries = forward(texts.queries.sequences(part.queries))  # (triples, e)
    both = np.concatenate([part.positives, part.negatives])
    positives, negatives = forward(texts.passages.sequences(both)).chunk(2)  # (triples, e) each
    queries, positives, negatives = (
        one.reshape(len(chunk), chunk.size, -1) for one in (queries, positives, negatives)
    )  # (mini-batches, n, e) each
    return objective(queries, positives, negatives, part.grouped(chunk.size))


def make_objective(
    args: argparse.Namespace, judgements: Judgements | None = None, teacher: Teacher | None = None
) -> Objective:
    """Choose the loss of mini-batches: a function of the vectors of queries, positives and negatives, and their rows.

    :param judgements: for "multilabel_margin"; "info_nce" can do without. `teacher`: for "margin_mse".
    """
    similarity_of = SIMILARITIES[args.similarity]

    def triplet(queries: Tensor, positives: Tensor, negatives: Tensor, _: TripleRows) -> Tensor:
        return batch_triplet_loss(queries, positives, negatives, args.margin, similarity_of)

    def multilabel_margin(queries: Tensor, positives: Tensor, negatives: Tensor, triples: TripleRows) -> Tensor:
        passages, relevant = _all_passages(positives, negatives, triples, judgements)
        return multilabel_margin_loss(queries, passages, relevant, similarity_of)

    def info_nce(queries: Tensor, positives: Tensor, negatives: Tensor, triples: TripleRows) -> Tensor:
        passages, relevant = _all_passages(positives, negatives, triples, judgements)
        own = torch.eye(*relevant.shape[-2:], dtype=torch.bool, device=relevant.device)  # (n, 2n)
        return info_nce_loss(queries, passages, relevant & ~own, args.temperature, similarity_of)

    def margin_mse(queries: Tensor, positives: Tensor, negatives: Tensor, triples: TripleRows) -> Tensor:
        if teacher is None:
            raise ValueError("margin_mse needs a teacher")
        margins = torch.from_numpy(teacher.margins(triples)).to(queries.device)  # (mini-batches, n)
        return margin_mse_loss(queries, positives, negatives, margins, similarity_of)

    losses = {one.__name__: one for one in (triplet, multilabel_margin, info_nce, margin_mse)}
    return losses[args.loss]


def _all_passages(
    positives: Tensor, negatives: Tensor, triples: TripleRows, judgements: Judgements | None
) -> tuple[Tensor, Tensor]:
    """Join the passages of each mini-batch (..., 2n, e), and tell which are relevant for which query (..., n, 2n).

    A passage that is the query's own positive is relevant, whatever the judgements say.
    """
    rows = np.concatenate([triples.positives, triples.negatives], axis=-1)  # (..., 2n)
    relevant = triples.positives[..., :, None] == rows[..., None, :]  # (..., n, 2n)
    if judgements:
        relevant |= judgements.relevant(triples.queries, rows)
    return torch.cat([positives, negatives], dim=-2), torch.from_numpy(relevant).to(positives.device)


def make_task(args: argparse.Namespace, encoder: Encoder) -> Task:
    """Read what the arguments name.

    :raises InputError: files that do not fit each other.
    """
    tokenizer, template = fingerprint(args.base_model), load_template(args.base_model)
    caches = [Tokens(path, tokenizer) for path in (args.passages, args.queries, args.validation_queries)]
    passages = texts_of(caches[0], template, encoder.settings, "passage")
    texts, objectives = [], []
    for cache, path, qrels, scores in (
        (caches[1], args.triples, args.qrels, args.teacher_scores),
        (caches[2], args.validation_triples, args.validation_qrels, args.validation_teacher_scores),
    ):
        rows = read_triples(path, cache, caches[0])
        texts.append(TripleTexts(rows, texts_of(cache, template, encoder.settings, "query"), passages))
        judgements = Judgements(qrels, args.relevance_level, cache, caches[0]) if args.qrels else None
        teacher = Teacher(scores, cache, caches[0]) if scores else None
        objectives.append(make_objective(args, judgements, teacher))
    training, validation = texts
    candidates = candidates_of(args)
    pool = make_pool(candidates, caches[2], caches[0], args.validation_run) if candidates else None

    def chunks(examples: Rows, size: int, limit: float) -> list[Chunk]:
        return consecutive_chunks(examples, size, training.tokens(examples), limit)

    def losses(chunk: Chunk, forward: Forward) -> Tensor:
        return triples_losses(training, chunk, forward, objectives[0])

    def validate(forward: Forward) -> Validation:
        # Whole mini-batches as in training, so that both losses count the same number of negatives per query.
        size = min(args.batch_size, len(validation))
        held_out = np.arange(len(validation) // size * size)
        parts = consecutive_chunks(held_out, size, validation.tokens(held_out), args.tokens_at_once)
        found = torch.cat([triples_losses(validation, part, forward, objectives[1]) for part in parts])
        if pool is None:
            return Validation(found.mean().item())
        vectors = forward(validation.queries.sequences(pool.queries)), forward(passages.sequences(pool.passages))
        return Validation(found.mean().item(), pool.value(*vectors, SIMILARITIES[args.similarity]))

    def save(name: str) -> None:
        save_encoder(encoder, args.base_model, Path(args.output) / name)

    per_epoch = len(training) // tables.count_epochs(args.triples)
    return Task(encoder, len(training), per_epoch, chunks, losses, validate, save)
