"""Choosing the best model by what it retrieves: a measure over the validation queries and a pool of passages.

An encoder ranks, for every query, the passages of the pool: the first candidates of all queries and what is judged
relevant. A cross-encoder ranks each query's own candidates.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from cort.evaluation.measures import Qrels, evaluate_run, means, parse_measures, qrels_by_query
from cort.formats import tables
from cort.formats.ids import positions
from cort.formats.runs import Run, read_run
from cort.formats.tokens import Tokens
from cort.system.errors import input_error
from cort.training.losses import Similarity
from cort.training.microbatches import Rows

LOSS = "loss"
# No measure that models are chosen by looks deeper.
MOST = 1_000
QUERIES_AT_ONCE = 256


class Validation(NamedTuple):
    """What a validation found: the mean loss, and the measure if one is asked for."""

    loss: float
    measure: float | None = None


@dataclass(frozen=True)
class Candidates:
    """The first results of the validation queries that have relevant passages, and these judgements."""

    run: Run
    qrels: Qrels
    measure: str
    relevance_level: int

    def value(self, run: Run) -> float:
        """Mean of the measure over the judged queries."""
        values = evaluate_run(run, self.qrels, [self.measure], self.relevance_level)
        return means(values, [self.measure])[self.measure]


def candidates_of(args: argparse.Namespace) -> Candidates | None:
    """Read what a stage's arguments name; None if they choose by the loss."""
    if args.best_model_metric == LOSS:
        return None
    return read_candidates(
        args.validation_run, args.validation_qrels, args.relevance_level, args.pool_depth, args.best_model_metric
    )


def read_candidates(run: str, qrels: str, relevance_level: int, depth: int, measure: str) -> Candidates:
    """Read the first `depth` results of the queries of the qrels.

    :raises InputError: an unknown measure, no query with both results and a relevant passage.
    """
    parse_measures([measure])
    if depth < 1:
        raise input_error("pool_depth", str(depth), "1 or more", "change it")
    table = tables.read_table(qrels, tables.QRELS)
    relevant = table.filter(pc.greater_equal(table["relevance"], relevance_level))
    if not relevant.num_rows:
        raise input_error(qrels, "no relevant passage", "at least one", "lower relevance_level or name other qrels")
    found = read_run(run)
    judged = positions(pa.array(found.query_ids, pa.string()), pc.unique(relevant["query_id"])) >= 0
    if not judged.any():
        raise input_error(run, "no query of the validation qrels", "their results", "name the run of the same split")
    kept = np.flatnonzero((found.ranks() <= depth) & judged[found.query_numbers()])
    sizes = np.bincount(found.query_numbers()[kept], minlength=len(found))[judged]
    query_ids = [query_id for query_id, one in zip(found.query_ids, judged, strict=True) if one]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    first = Run(query_ids, offsets, found.doc_ids.take(pa.array(kept)), found.scores[kept])
    return Candidates(first, qrels_by_query(relevant, qrels), measure, relevance_level)


@dataclass(frozen=True)
class Pool:
    """Rows of the queries, and of the passages that all of them rank."""

    candidates: Candidates
    query_ids: list[str]
    doc_ids: pa.Array
    queries: Rows
    passages: Rows

    def value(self, queries: Tensor, passages: Tensor, similarity_of: Similarity) -> float:
        """Measure how vectors (queries, e) rank vectors (passages, e)."""
        depth = min(MOST, len(passages))
        parts = []
        for some in torch.split(queries, QUERIES_AT_ONCE):
            best = similarity_of(some, passages).topk(depth, dim=1)  # (some, depth)
            parts.append((best.values.double().cpu().numpy(), best.indices.cpu().numpy()))
        scores, columns = (np.concatenate(arrays).reshape(-1) for arrays in zip(*parts, strict=True))
        offsets = np.arange(0, len(scores) + 1, depth)
        return self.candidates.value(Run(self.query_ids, offsets, self.doc_ids.take(pa.array(columns)), scores))


def make_pool(candidates: Candidates, queries: Tokens, passages: Tokens, source: str | Path) -> Pool:
    """Look up all judged queries, all candidates and all relevant passages."""
    query_ids = list(candidates.qrels)
    relevant = [doc_id for judged in candidates.qrels.values() for doc_id in judged]
    both = pa.concat_arrays([candidates.run.doc_ids, pa.array(relevant, pa.string())])
    doc_ids = pc.unique(both)
    doc_ids = doc_ids.take(pc.sort_indices(doc_ids))
    rows = queries.rows_of(pa.array(query_ids, pa.string()), source), passages.rows_of(doc_ids, source)
    return Pool(candidates, query_ids, doc_ids, *rows)


def pair_rows(candidates: Candidates, queries: Tokens, passages: Tokens, source: str | Path) -> tuple[Rows, Rows]:
    """Look up the query and the passage of each candidate."""
    run = candidates.run
    rows = queries.rows_of(pa.array(run.query_ids, pa.string()), source)
    return rows[run.query_numbers()], passages.rows_of(run.doc_ids, source)


def value_of_scores(candidates: Candidates, scores: npt.NDArray[np.float64]) -> float:
    """Measure the candidates in the order of new scores, one per candidate."""
    run = candidates.run
    return candidates.value(Run(run.query_ids, run.offsets, run.doc_ids, scores))
