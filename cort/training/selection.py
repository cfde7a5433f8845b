"""Choosing the best model by a measure over the validation queries.

An encoder ranks the same pool of passages for every query: the top candidates of all queries and all relevant passages.
A re-ranker ranks each query's own candidates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from cort.evaluation.measures import Qrels, evaluate_run, means, qrels_by_query
from cort.evaluation.names import parse_measures
from cort.formats import tables
from cort.formats.ids import positions
from cort.formats.runs import Run, read_run, top
from cort.formats.shards import Tokens
from cort.runtime.errors import input_error
from cort.training.losses import Similarity
from cort.training.microbatches import Rows
from cort.training.settings import TrainingOptions

# No measure for choosing models goes deeper.
MAXIMUM_DEPTH = 1_000
QUERIES_AT_ONCE = 256
# Numbers of the vectors of a block of passages: a quarter of a gigabyte. Vectors of a vocabulary's size are large.
NUMBERS_AT_ONCE = 1 << 26


class Validation(NamedTuple):
    """The mean loss, and the measure if there is one."""

    loss: float
    measure: float | None = None


@dataclass(frozen=True)
class Candidates:
    """Top results, from the run `source`, of the validation queries with relevant passages; and their judgements."""

    run: Run
    source: str
    qrels: Qrels
    measure: str
    relevance_level: int

    def rows(self, queries: Tokens, passages: Tokens) -> tuple[Rows, Rows]:
        """Look up the query and the passage of each candidate."""
        rows = queries.rows_of(pa.array(self.run.query_ids, pa.string()), self.source)
        return rows[self.run.query_numbers()], passages.rows_of(self.run.doc_ids, self.source)

    def value(self, run: Run) -> float:
        """Return the mean of the measure over the judged queries."""
        values = evaluate_run(run, self.qrels, [self.measure], self.relevance_level)
        return means(values, [self.measure])[self.measure]


def read_candidates(options: TrainingOptions) -> Candidates | None:
    """Read the top results of the judged queries; None if the loss chooses the best model.

    :raises InputError: an unknown measure, no query with both results and a relevant passage.
    """
    source, qrels, relevance_level = options.validation_run, options.validation_qrels, options.relevance_level
    if not options.by_measure or source is None or qrels is None:
        return None
    parse_measures([options.best_model_metric])
    table = tables.read_table(qrels, tables.QRELS)
    relevant = table.filter(pc.greater_equal(table["relevance"], relevance_level))
    if not relevant.num_rows:
        raise input_error(qrels, "no relevant passage", "at least one", "lower relevance_level or name other qrels")
    run = read_run(source)
    judged = np.flatnonzero(positions(pa.array(run.query_ids, pa.string()), pc.unique(relevant["query_id"])) >= 0)
    if not judged.size:
        raise input_error(source, "no query of the validation qrels", "their results", "name the run of the same split")
    first = top(run, options.pool_depth).select([run.query_ids[place] for place in judged], judged)
    return Candidates(first, source, qrels_by_query(relevant, qrels), options.best_model_metric, relevance_level)


@dataclass(frozen=True)
class Pool:
    """Rows of the queries, and of the passages that are ranked for each of them."""

    candidates: Candidates
    query_ids: list[str]
    doc_ids: pa.Array
    queries: Rows
    passages: Rows

    def blocks(self, size: int) -> list[Rows]:
        """Divide the passages into blocks whose vectors, of this size, are in memory at once."""
        most = max(NUMBERS_AT_ONCE // size, 1)
        return np.split(self.passages, range(most, len(self.passages), most))

    def value(self, queries: Tensor, blocks: Iterable[Tensor], similarity_of: Similarity) -> float:
        """Measure how vectors (queries, e) rank all passages, whose vectors (block, e) come in blocks."""
        depth, first = min(MAXIMUM_DEPTH, len(self.passages)), 0
        scores, places = queries.new_empty(len(queries), 0), queries.new_empty(len(queries), 0, dtype=torch.int64)
        for passages in blocks:
            parts = (similarity_of(part, passages) for part in torch.split(queries, QUERIES_AT_ONCE))
            best = [part.topk(min(depth, len(passages)), dim=1) for part in parts]
            values, columns = (torch.cat(tensors) for tensors in zip(*best, strict=True))
            scores, places = torch.cat([scores, values], dim=1), torch.cat([places, first + columns], dim=1)
            scores, order = scores.topk(min(depth, scores.shape[1]), dim=1)  # (queries, depth) each
            places, first = places.gather(1, order), first + len(passages)
        found, rows = scores.reshape(-1).cpu().double().numpy(), pa.array(places.reshape(-1).cpu().numpy())
        offsets = np.arange(0, len(found) + 1, depth)
        return self.candidates.value(Run(self.query_ids, offsets, self.doc_ids.take(rows), found))


def make_pool(candidates: Candidates, queries: Tokens, passages: Tokens) -> Pool:
    """Look up all judged queries, all candidates and all relevant passages."""
    query_ids, source = list(candidates.qrels), candidates.source
    relevant = [doc_id for judged in candidates.qrels.values() for doc_id in judged]
    doc_ids = pc.unique(pa.concat_arrays([candidates.run.doc_ids, pa.array(relevant, pa.string())]))
    doc_ids = doc_ids.take(pc.sort_indices(doc_ids))
    rows = queries.rows_of(pa.array(query_ids, pa.string()), source), passages.rows_of(doc_ids, source)
    return Pool(candidates, query_ids, doc_ids, *rows)
