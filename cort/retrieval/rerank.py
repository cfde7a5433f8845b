"""Candidates of a run in the order of a re-ranker's scores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.ids import positions
from cort.formats.records import Ranking
from cort.formats.runs import Run, order, strictly_decreasing
from cort.system.errors import input_error, shorten

Scores = npt.NDArray[np.float64]


def rerank(candidates: Ranking, scores: Scores, depth: int) -> Ranking:
    """Order the first `depth` candidates by (-score, doc_id) and leave the rest as they are below them.

    The result's scores are strictly decreasing: the re-ranker's own as far as it is asked, lower ones after that.

    :param scores: the re-ranker's, one per candidate; only the first `depth` are read.
    """
    head = np.asarray(scores[:depth], dtype=np.float64)
    by = order(candidates.doc_ids[:depth], head)
    doc_ids = [candidates.doc_ids[position] for position in by] + candidates.doc_ids[depth:]
    tail = head.min(initial=np.inf) - np.arange(1.0, len(doc_ids) - len(head) + 1)
    return Ranking(candidates.query_id, doc_ids, strictly_decreasing(np.concatenate([head[by], tail])))


def rerank_run(run: Run, scores: Scores, depth: int) -> Iterator[Ranking]:
    """Re-rank every query.

    :param scores: the re-ranker's, one per result of `run`, as `candidate_scores` gives them.
    """
    for position, ranking in enumerate(run):
        start, end = int(run.offsets[position]), int(run.offsets[position + 1])
        yield rerank(ranking, scores[start:end], depth)


def candidate_scores(run: Run, table: pa.Table, depth: int, source: str | Path) -> Scores:
    """Look up the re-ranker's score of every result of `run`; NaN below `depth` where there is none.

    :param table: pairs and scores (`tables.SCORES`), read from `source`.
    :raises InputError: a pair scored twice, a score that is no finite number, one of the first `depth` without a score.
    """
    _refuse_bad_scores(table, source)
    query_ids, doc_ids = pa.array(run.query_ids, pa.string()), pc.unique(run.doc_ids)
    wanted = run.query_numbers() * len(doc_ids) + positions(run.doc_ids, doc_ids)
    # Pairs of other queries or documents get the number -1 and match nothing.
    scored_queries, scored_docs = positions(table["query_id"], query_ids), positions(table["doc_id"], doc_ids)
    known = (scored_queries >= 0) & (scored_docs >= 0)
    pairs = np.where(known, scored_queries * len(doc_ids) + scored_docs, -1)
    by = np.argsort(pairs, kind="stable")
    _refuse_repeated_pairs(pairs, by, table, source)
    place = np.searchsorted(pairs, wanted, sorter=by)
    found = np.full(len(wanted), np.nan)
    inside = np.flatnonzero(place < len(by))
    rows = by[place[inside]]
    hits = pairs[rows] == wanted[inside]
    found[inside[hits]] = table["score"].to_numpy()[rows[hits]]
    _refuse_missing_scores(run, found, depth, source)
    return found


def _refuse_bad_scores(table: pa.Table, source: str | Path) -> None:
    bad = np.flatnonzero(~np.isfinite(table["score"].to_numpy()))
    if len(bad):
        row = int(bad[0])
        found = f"the score {table['score'][row].as_py()}"
        raise input_error(source, found, "a finite number", "score the candidates again", row + 1)


def _refuse_repeated_pairs(
    pairs: npt.NDArray[np.int64], by: npt.NDArray[np.intp], table: pa.Table, source: str | Path
) -> None:
    ordered = pairs[by]
    repeated = by[1:][(ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)]
    if len(repeated):
        row = int(repeated.min())
        query_id, doc_id = table["query_id"][row].as_py(), table["doc_id"][row].as_py()
        found = f"document {shorten(doc_id)} scored again for query {shorten(query_id)}"
        raise input_error(source, found, "each pair once", "score the candidates again", row + 1)


def _refuse_missing_scores(run: Run, scores: Scores, depth: int, source: str | Path) -> None:
    missing = np.flatnonzero(np.isnan(scores) & (run.ranks() <= depth))
    if len(missing):
        row = int(missing[0])
        query_id = run.query_ids[int(np.searchsorted(run.offsets, row, side="right")) - 1]
        found = f"no score for document {shorten(run.doc_ids[row].as_py())} of query {shorten(query_id)}"
        expected = f"the first {depth} candidates scored ({len(missing)} are not)"
        raise input_error(source, found, expected, "score these candidates, or lower the depth")
