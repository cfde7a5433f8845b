"""Training of an encoder on triples: rows of token caches, the loss of mini-batches, and the model's validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.encoder import Encoder, Texts, new_encoder, save_encoder, texts_of
from cort.models.settings import EncoderSettings
from cort.models.tokenizer import fingerprint, load_template
from cort.models.transformer import counted
from cort.system.errors import input_error, shorten
from cort.system.options import read_options
from cort.system.progress import Counter
from cort.training import losses
from cort.training.guide import Guide, encode_start, report_left_out
from cort.training.loop import Task
from cort.training.microbatches import Forward, MicroBatch, Rows, join_consecutive
from cort.training.selection import Validation, make_pool, read_candidates
from cort.training.settings import OBJECTIVES, EncoderTraining, ObjectiveSettings

Objective: TypeAlias = Callable[["Batch"], Tensor]


def read_triples(path: str, queries: Tokens, passages: Tokens) -> Rows:
    """Look up queries, positives and negatives, shape (3, triples).

    :raises InputError: unknown ids, a passage as positive and negative, an empty table.
    """
    table = tables.read_table(path, tables.TRIPLES)
    if not table.num_rows:
        raise input_error(path, "no triples", "at least one", "sample them again")
    caches = {"query_id": queries, "positive": passages, "negative": passages}
    rows = np.stack([cache.rows_of(table[name], path) for name, cache in caches.items()])
    same = np.flatnonzero(rows[1] == rows[2])
    if same.size:
        found = f"the passage {shorten(table['positive'][same[0]].as_py())} as positive and negative"
        raise input_error(path, found, "two passages", "remove the row", int(same[0]) + 1)
    return rows


class KnownPairs:
    """Pairs of a query and a passage, as rows of the token caches: which are known, and where."""

    def __init__(self, table: pa.Table, source: str, queries: Tokens, passages: Tokens) -> None:
        self._passages = len(passages)
        query_rows, passage_rows = queries.rows_of(table["query_id"], source), passages.rows_of(table["doc_id"], source)
        pairs, self.first = np.unique(query_rows * self._passages + passage_rows, return_index=True)
        # No pair is at the end, so that every search ends before it.
        self._pairs = np.append(pairs, np.iinfo(np.int64).max)

    def find(self, queries: Rows, passages: Rows) -> Rows:
        """Places of pairs among the known ones, sorted; -1 where unknown. Arrays of shapes that fit each other."""
        pairs = queries * self._passages + passages
        # Mini-batches are small and known pairs many: a binary search for each pair, not a pass over all of them.
        places = np.searchsorted(self._pairs, pairs)
        return np.where(self._pairs[places] == pairs, places, -1)


def read_judgements(path: str, relevance_level: int, queries: Tokens, passages: Tokens) -> KnownPairs:
    """Look up what is judged relevant; `relevance_level` is the lowest grade that counts."""
    table = tables.read_table(path, tables.QRELS)
    return KnownPairs(table.filter(pc.greater_equal(table["relevance"], relevance_level)), path, queries, passages)


class Teacher:
    """Scores of a cross-encoder for the pairs of the triples."""

    def __init__(self, path: str, queries: Tokens, passages: Tokens) -> None:
        self._path, self._queries, self._passages = path, queries, passages
        table = tables.read_table(path, tables.SCORES)
        self._known = KnownPairs(table, path, queries, passages)
        self._scores = table["score"].to_numpy()[self._known.first]

    def scores(self, queries: Rows, passages: Rows) -> npt.NDArray[np.float64]:
        """Look up the score of each pair.

        :raises InputError: a pair without a score.
        """
        places = self._known.find(queries, passages)
        if (places < 0).any():
            query, passage = (int(rows[places < 0][0]) for rows in (queries, passages))
            query_id, doc_id = self._queries.ids[query].as_py(), self._passages.ids[passage].as_py()
            found = f"no score of document {shorten(doc_id)} for query {shorten(query_id)}"
            raise input_error(self._path, found, "one for each pair of the triples", "score the triples again")
        scores: npt.NDArray[np.float64] = self._scores[places].astype(np.float64)
        return scores


@dataclass(frozen=True)
class TripleTexts:
    """Triples as `read_triples` reads them, the texts they are rows of, their loss, and what is known of them."""

    triples: Rows
    queries: Texts
    passages: Texts
    objective: Objective
    judgements: KnownPairs | None = None
    teacher: Teacher | None = None
    guide: Guide | None = None

    def __len__(self) -> int:
        return len(self.triples[0])

    def split(self, examples: Rows, size: int, limit: float) -> list[MicroBatch]:
        """Join consecutive mini-batches of `size` triples up to so many tokens."""
        queries, positives, negatives = self.triples[:, examples]
        passages = self.passages.lengths(positives) + self.passages.lengths(negatives)
        return join_consecutive(examples, size, self.queries.lengths(queries) + passages, limit)

    def losses(self, batch: MicroBatch, forward: Forward) -> Tensor:
        """Compute the loss of each mini-batch of a micro-batch; returns (mini-batches,)."""
        rows = self.triples[:, batch]  # (3, mini-batches, n)
        queries = forward(self.queries.sequences(rows[0].reshape(-1)))  # (triples, e)
        passages = forward(self.passages.sequences(rows[1:].reshape(-1)))  # (2 triples, e)
        vectors = (part.reshape(*batch.shape, -1) for part in (queries, *passages.chunk(2)))
        return self.objective(Batch(self, rows, *vectors))


@dataclass(frozen=True)
class Batch:
    """Mini-batches of n triples: their rows, (3, mini-batches, n), and vectors, (mini-batches, n, e) each."""

    texts: TripleTexts
    rows: Rows
    queries: Tensor
    positives: Tensor
    negatives: Tensor

    @property
    def passages(self) -> Tensor:
        """Positives and negatives of each mini-batch, (mini-batches, 2n, e)."""
        return torch.cat([self.positives, self.negatives], dim=-2)

    @property
    def relevant(self) -> Tensor:
        """Which passages are relevant for which query, (mini-batches, n, 2n).

        A passage that is the query's own positive is relevant, whatever the judgements say.
        """
        queries, positives, negatives = self.rows
        passages = np.concatenate([positives, negatives], axis=-1)  # (mini-batches, 2n)
        relevant = positives[..., :, None] == passages[..., None, :]  # (mini-batches, n, 2n)
        if self.texts.judgements:
            relevant |= self.texts.judgements.find(queries[..., :, None], passages[..., None, :]) >= 0
        return torch.from_numpy(relevant).to(self.queries.device)

    @property
    def others(self) -> Tensor:
        """Which passages are relevant, or may be, though not at the place of the query's own, (mini-batches, n, 2n)."""
        found = self.relevant
        if self.texts.guide:
            found |= torch.from_numpy(self.texts.guide.too_near(self.rows)).to(found.device)
        return found & ~torch.eye(*found.shape[-2:], dtype=torch.bool, device=found.device)

    @property
    def margins(self) -> Tensor:
        """Score of the positive less that of the negative, by the teacher, (mini-batches, n)."""
        if self.texts.teacher is None:
            raise ValueError("this loss needs a teacher")
        queries, positives, negatives = self.rows
        margins = self.texts.teacher.scores(queries, positives) - self.texts.teacher.scores(queries, negatives)
        return torch.from_numpy(margins).to(self.queries.device)


def make_objective(settings: ObjectiveSettings, similarity: str) -> Objective:
    """Choose the loss of mini-batches, returned in shape (mini-batches,); `similarity` names that of vectors."""
    chosen, similarity_of = OBJECTIVES[settings.loss], losses.SIMILARITIES[similarity]
    loss: Callable[..., Tensor] = getattr(losses, chosen.loss)
    values = [getattr(settings, name) for name in chosen.of_settings]
    return lambda batch: loss(*(getattr(batch, name) for name in chosen.of_batch), *values, similarity_of)


def _guided(encoder: Encoder, margin: float, size: int, *parts: TripleTexts) -> list[TripleTexts]:
    """Let the encoder as it is now tell which negatives are too near; a passage of several parts is encoded once."""
    rows = np.concatenate([part.triples[1:].reshape(-1) for part in parts])
    passages = encode_start(encoder, parts[0].passages, rows, "passages")
    queries = [encode_start(encoder, part.queries, part.triples[0], "queries") for part in parts]
    guides = [Guide(margin, vectors, passages) for vectors in queries]
    report_left_out(guides[0], parts[0].triples, size)
    return [replace(part, guide=guide) for part, guide in zip(parts, guides, strict=True)]


def make_task(options: EncoderTraining) -> Task:
    """Make the encoder, and read what the options name.

    :raises InputError: files that do not fit each other.
    """
    asked = read_options(EncoderSettings, options)
    encoder = new_encoder(options.base_model, asked, options.seed, options.start)
    settings = encoder.settings
    tokenizer, template = fingerprint(options.base_model), load_template(options.base_model)
    cache, *caches = (
        Tokens(path, tokenizer) for path in (options.passages, options.queries, options.validation_queries)
    )
    passages = texts_of(cache, template, settings, "passage")
    objective = make_objective(options, settings.similarity)

    def read(queries: Tokens, triples: str, qrels: str | None, scores: str | None) -> TripleTexts:
        return TripleTexts(
            read_triples(triples, queries, cache),
            texts_of(queries, template, settings, "query"),
            passages,
            objective,
            read_judgements(qrels, options.relevance_level, queries, cache) if qrels else None,
            Teacher(scores, queries, cache) if scores else None,
        )

    training = read(caches[0], options.triples, options.qrels, options.teacher_scores)
    held_out = options.validation_triples, options.validation_qrels, options.validation_teacher_scores
    validation = read(caches[1], *held_out)
    per_epoch = len(training) // tables.count_epochs(options.triples)
    if options.relative_margin is not None:
        training, validation = _guided(encoder, options.relative_margin, options.batch_size, training, validation)
    candidates = read_candidates(options)
    pool = make_pool(candidates, caches[1], cache) if candidates else None

    def validate(forward: Forward) -> Validation:
        total = validation.triples.size + (len(pool.queries) + len(pool.passages) if pool else 0)
        with Counter(total, "texts in validation") as counter, counted(encoder, counter):
            return measured(forward)

    def measured(forward: Forward) -> Validation:
        # Whole mini-batches as in training, so that both losses count the same number of negatives per query.
        size = min(options.batch_size, len(validation))
        examples = np.arange(len(validation) // size * size)
        parts = validation.split(examples, size, options.tokens_at_once)
        loss = torch.cat([validation.losses(part, forward) for part in parts]).mean().item()
        if pool is None:
            return Validation(loss)
        vectors = forward(validation.queries.sequences(pool.queries)), forward(passages.sequences(pool.passages))
        return Validation(loss, pool.value(*vectors, losses.SIMILARITIES[settings.similarity]))

    def save(name: str) -> None:
        save_encoder(encoder, options.base_model, Path(options.output) / name)

    return Task(encoder, len(training), per_epoch, training.split, training.losses, validate, save)
