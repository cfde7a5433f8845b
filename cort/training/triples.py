"""Training an encoder on triples: rows of token caches, the loss of mini-batches, and validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from cort.config.models import Sparsity
from cort.formats import tables
from cort.formats.records import offsets_of
from cort.formats.shards import Tokens
from cort.models.batching import sent
from cort.models.encoder import Encoder, new_encoder
from cort.models.modules import Texts
from cort.models.precision import settle
from cort.models.settings import EncoderSettings
from cort.models.sparse_encoder import SparseEncoder, idf, new_sparse_encoder
from cort.models.tokenizer import load_template
from cort.models.transformer import counted
from cort.runtime.command_line import take
from cort.runtime.errors import input_error, shorten
from cort.runtime.sections import Section
from cort.training.guide import ByRow, Guide, encode_start, report_left_out
from cort.training.loop import Task, save_trained
from cort.training.losses import ENCODER_OBJECTIVES, SIMILARITIES, Batch, nested
from cort.training.microbatches import Forward, MicroBatch, Room, Rows, join_consecutive, meet, open_caches
from cort.training.selection import Validation, make_pool, read_candidates
from cort.training.settings import EncoderTraining


def read_triples(path: str, queries: Tokens, passages: Tokens, negatives: int = 1) -> Rows:
    """Look up queries, positives and the negatives of each, shape (2 + negatives, examples).

    :param negatives: per example, which is as many consecutive rows.
    :raises InputError: unknown ids, other groups of rows.
    """
    table = tables.read_table(path, tables.TRIPLES)
    caches = {"query_id": queries, "positive": passages, "negative": passages}
    rows = np.stack([cache.rows_of(table[name], path) for name, cache in caches.items()])
    groups = rows[:, : len(rows[0]) // negatives * negatives].reshape(3, -1, negatives)
    if groups.size < rows.size or (groups[:2] != groups[:2, :, :1]).any():
        expected = f"{negatives} negatives of one query and positive in consecutive rows"
        raise input_error(path, "fewer", expected, "sample the triples again with as many")
    return np.stack([*groups[:2, :, 0], *groups[2].T])


class KnownPairs:
    """Query-passage pairs of a table, as rows of the token caches, whose position in the table can be looked up."""

    def __init__(self, table: pa.Table, source: str, queries: Tokens, passages: Tokens) -> None:
        self._passages = len(passages)
        query_rows, passage_rows = queries.rows_of(table["query_id"], source), passages.rows_of(table["doc_id"], source)
        pairs, places = np.unique(query_rows * self._passages + passage_rows, return_index=True)
        # A sentinel: every search ends before it.
        self._pairs, self._places = np.append(pairs, np.iinfo(np.int64).max), np.append(places, -1)

    def find(self, queries: Rows, passages: Rows) -> Rows:
        """Return the rows of the table with these pairs, -1 for unknown pairs; the two shapes are broadcast."""
        pairs = queries * self._passages + passages
        # A binary search per pair: mini-batches are small, and the table is large.
        places = np.searchsorted(self._pairs, pairs)
        return np.where(self._pairs[places] == pairs, self._places[places], -1)


def read_judgements(path: str, relevance_level: int, queries: Tokens, passages: Tokens) -> KnownPairs:
    """Look up the relevant pairs; `relevance_level` is the lowest relevant grade."""
    table = tables.read_table(path, tables.QRELS)
    return KnownPairs(table.filter(pc.greater_equal(table["relevance"], relevance_level)), path, queries, passages)


def read_scores(path: str, triples: Rows, queries: Tokens, passages: Tokens) -> npt.NDArray[np.float64]:
    """Look up a re-ranker's scores of the positives and negatives of each query, (1 + k, examples).

    :raises InputError: a pair without a score.
    """
    table = tables.read_table(path, tables.SCORES)
    places = KnownPairs(table, path, queries, passages).find(triples[0], triples[1:])  # (1 + k, examples)
    for kind, row in np.argwhere(places < 0)[:1]:
        query_id, doc_id = queries.ids[triples[0, row]].as_py(), passages.ids[triples[1 + kind, row]].as_py()
        found = f"no score of document {shorten(doc_id)} for query {shorten(query_id)}"
        raise input_error(path, found, "one for each pair of the triples", "score the triples again")
    scores: npt.NDArray[np.float64] = table["score"].to_numpy()[places].astype(np.float64)
    return scores


def numbered(texts: Texts, rows: Rows) -> ByRow:
    """Give passages that a model reads as the same text, although their ids differ, the same number."""
    rows = np.unique(rows)
    counts = np.minimum(texts.tokens.lengths[rows], texts.max_length - texts.template.extra)
    ids = texts.tokens.beginnings(rows, counts)
    buffers = [None, pa.py_buffer(ids.itemsize * offsets_of(counts)), pa.py_buffer(ids)]
    read = pa.Array.from_buffers(pa.large_binary(), len(counts), buffers)
    return ByRow(rows, read.dictionary_encode().indices.to_numpy())


def flops(vectors: Tensor) -> Tensor:
    """Sum up the squared mean weight of each token (Paria et al., 2020): (..., texts, vocabulary) gives (...)."""
    return vectors.mean(-2).square().sum(-1)


class Regularizer(Sparsity):
    """The FLOPS of queries and passages, times weights that first grow quadratically (Formal et al., 2021)."""

    def __call__(self, queries: Tensor, passages: Tensor, progress: npt.NDArray[np.floating]) -> Tensor:
        """Compute the penalty of each mini-batch, (mini-batches,).

        :param queries: (mini-batches, n, vocabulary); `passages` (mini-batches, (1 + k) n, vocabulary).
        :param progress: of each mini-batch, (mini-batches,).
        """
        penalty = self.query_flops * flops(queries) + self.passage_flops * flops(passages)
        growth = np.minimum(progress / self.flops_warmup, 1) ** 2 if self.flops_warmup else np.ones_like(progress)
        return penalty * torch.from_numpy(growth).to(penalty)


@dataclass(frozen=True)
class TripleTexts:
    """Triples as returned by `read_triples`, their texts, their loss, and what the loss needs to know about them."""

    triples: Rows
    queries: Texts
    passages: Texts
    objective: Callable[[Batch], Tensor]
    judgements: KnownPairs | None = None
    scores: npt.NDArray[np.float64] | None = None
    texts: ByRow | None = None
    guide: Guide | None = None
    regularizer: Regularizer | None = None

    def __len__(self) -> int:
        return len(self.triples[0])

    def split(self, examples: Rows, size: int, room: Room) -> list[MicroBatch]:
        """Join consecutive mini-batches of `size` examples as far as there is room."""

        def tokens(some: Rows) -> int:
            queries, *passages = self.triples[:, some]
            return room.tokens([self.queries.lengths(queries), self.passages.lengths(np.concatenate(passages))])

        return join_consecutive(examples, size, tokens, room.limit)

    def losses(self, batch: MicroBatch, forward: Forward) -> Tensor:
        """Compute the loss of each mini-batch of a micro-batch; returns (mini-batches,)."""
        rows = self.triples[:, batch]  # (2 + k, mini-batches, n)
        texts = self.queries.sequences(rows[0].reshape(-1)), self.passages.sequences(rows[1:].reshape(-1))
        queries, passages = forward.both(*texts)  # (examples, e), ((1 + k) examples, e)
        parts = [part.reshape(*batch.shape, -1) for part in passages.chunk(len(rows) - 1)]
        vectors = queries.reshape(*batch.shape, -1), torch.cat(parts, dim=-2)  # (…, n, e), (…, (1 + k) n, e)
        scores = np.full((1, *batch.shape), np.nan) if self.scores is None else self.scores[:, batch]
        arrays = *self.relevance(rows), np.moveaxis(scores, 0, -1)
        known = (sent(torch.from_numpy(array), queries.device) for array in arrays)
        losses = self.objective(Batch(*vectors, *known))
        if self.regularizer:
            losses = losses + self.regularizer(*vectors, batch[:, 0] / len(self))
        return losses

    def relevance(self, rows: Rows) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Tell which passages are relevant to which query, and which but its own positive are, or may be, relevant.

        The own positive is always relevant, whatever the judgements say; passages with the text of a relevant one may
        be relevant.

        :param rows: of queries, positives and k negatives, (2 + k, mini-batches, n).
        :returns: (mini-batches, n, (1 + k) n) each.
        """
        passages = np.concatenate(rows[1:], axis=-1)[..., None, :]  # (mini-batches, 1, (1 + k) n)
        relevant = others = rows[1][..., :, None] == passages
        if self.judgements:
            relevant = others = relevant | (self.judgements.find(rows[0][..., :, None], passages) >= 0)
        if self.texts:
            texts = self.texts.of(passages)  # (mini-batches, 1, (1 + k) n)
            others = (others.astype(np.float32) @ (texts == texts.swapaxes(-1, -2))) > 0
        if self.guide:
            others = others | self.guide.too_near(rows)
        return relevant, others & ~np.eye(*others.shape[-2:], dtype=np.bool_)


def make_objective(
    loss: str, options: Section, similarity: str, sizes: Sequence[int] = ()
) -> Callable[[Batch], Tensor]:
    """Make the function that computes the loss of each mini-batch, (mini-batches,).

    :param options: have the settings of the loss, and perhaps others.
    :param similarity: name of the similarity of vectors.
    :param sizes: numbers of each vector that are to be a vector, too; () for whole vectors only.
    """
    objective = ENCODER_OBJECTIVES[loss]
    settings, similarity_of = take(objective.settings, options), SIMILARITIES[similarity]

    def whole(batch: Batch) -> Tensor:
        return objective.loss(batch, settings, similarity_of)

    return nested(whole, sizes) if sizes else whole


def sizes_of(options: EncoderTraining, encoder: Encoder | SparseEncoder) -> Sequence[int]:
    """Return the sizes of vectors that are trained, the whole one last; () if that is all.

    :raises InputError: for sizes that the vectors do not have.
    """
    wanted = options.matryoshka
    if not wanted:
        return ()
    if not isinstance(encoder, Encoder):
        raise input_error("--matryoshka", wanted, "none for a sparse encoder", "leave it out")
    if wanted[-1] > encoder.dimension:
        expected = f"at most the {encoder.dimension} numbers of a vector"
        raise input_error("--matryoshka", wanted[-1], expected, "lower it, or raise dimension")
    return sorted({*wanted, encoder.dimension})


def _guided(encoder: Encoder, margin: float, precision: str, *parts: TripleTexts) -> list[TripleTexts]:
    """Find likely false negatives with the encoder before training; passages of several parts are encoded once."""
    rows = np.concatenate([part.triples[1:].reshape(-1) for part in parts])
    passages = encode_start(encoder, parts[0].passages, rows, "passages", precision)
    queries = [encode_start(encoder, part.queries, part.triples[0], "queries", precision) for part in parts]
    guides = [Guide(margin, vectors, passages) for vectors in queries]
    report_left_out(guides[0], parts[0].triples)
    return [replace(part, guide=guide) for part, guide in zip(parts, guides, strict=True)]


def _start(options: EncoderTraining, passages: Tokens) -> Encoder | SparseEncoder:
    """Make the encoder to train."""
    settings = take(EncoderSettings, options)
    made_from = options.base_model, settings, options.seed, options.start, options.cleaning
    dense = options.kind == "dense"
    weighted = options.pooling == "weighted_mean" if dense else options.query_encoder == "none"
    weights = idf(passages, load_template(options.base_model).vocabulary) if weighted else None
    return new_encoder(*made_from, weights) if dense else new_sparse_encoder(*made_from, weights)


def make_task(options: EncoderTraining) -> Task:
    """Make the encoder and read its triples.

    :raises InputError: files that do not fit together.
    """
    cache, *caches = open_caches(options)
    encoder = _start(options, cache)
    # That of a released base model, which is a similarity of sentence-transformers.
    similarity = encoder.similarity
    passages = encoder.texts(cache, "passage")
    objective = make_objective(options.loss, options, similarity, sizes_of(options, encoder))

    def read(queries: Tokens, triples: str, qrels: str | None, scores: str | None) -> TripleTexts:
        rows = read_triples(triples, queries, cache, options.negatives)
        return TripleTexts(
            rows,
            encoder.texts(queries, "query"),
            passages,
            objective,
            read_judgements(qrels, options.relevance_level, queries, cache) if qrels else None,
            read_scores(scores, rows, queries, cache) if scores else None,
            numbered(passages, rows[1:]) if ENCODER_OBJECTIVES[options.loss].guided else None,
        )

    training = read(caches[0], options.triples, options.qrels, options.teacher_scores)
    held_out = options.validation_triples, options.validation_qrels, options.validation_teacher_scores
    validation = read(caches[1], *held_out)
    if isinstance(encoder, SparseEncoder):
        regularizer = take(Regularizer, options)
        training = replace(training, regularizer=regularizer)
        # The weights do not grow in validation, so that its losses can be compared.
        validation = replace(validation, regularizer=regularizer.model_copy(update={"flops_warmup": 0.0}))
    per_epoch = len(training) // tables.count_epochs(options.triples)
    margin: float | None = vars(options)["relative_margin"]
    if margin is not None and isinstance(encoder, Encoder):
        precision = settle(options.precision, meet().device, options.checkpoints)
        training, validation = _guided(encoder, margin, precision, training, validation)
    candidates = read_candidates(options)
    pool = make_pool(candidates, caches[1], cache) if candidates else None

    def validate(forward: Forward) -> Validation:
        # Complete mini-batches as in training, so that both losses have the same number of negatives per query.
        size = min(options.batch_size, len(validation))
        examples = np.arange(len(validation) // size * size)
        parts = validation.split(examples, size, forward.room)
        total = validation.triples.size + (len(pool.queries) + len(pool.passages) if pool else 0)
        with counted(encoder, total, "texts in validation"):
            loss = torch.cat([validation.losses(part, forward) for part in parts]).mean().item()
            if pool is None:
                return Validation(loss)
            queries = forward(validation.queries.sequences(pool.queries))  # (queries, e)
            blocks = (forward(passages.sequences(rows)) for rows in pool.blocks(queries.shape[1]))
            return Validation(loss, pool.value(queries, blocks, SIMILARITIES[similarity]))

    save = partial(save_trained, encoder, options)
    return Task(encoder, len(training), per_epoch, training.split, training.losses, validate, save)
