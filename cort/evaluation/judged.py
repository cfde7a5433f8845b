"""Where the judged documents stand in rankings, and how much of these is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.ids import positions
from cort.formats.runs import Run

# Query -> document -> rank from 0.
Ranks: TypeAlias = Mapping[str, Mapping[str, int]]

# How many results of a query count as the first ones.
FIRST = 10
# Judged documents of a query.
FEW = 4


@dataclass(frozen=True)
class Judged:
    """How much is judged of what a system ranks: of its `results`, the first `FIRST` of each query, not `unjudged`.

    The split has as many `judgements`, of which so many are `relevant`. The means are Judged@k and measures, each
    followed by the same over judged documents only.
    """

    judgements: int
    relevant: int
    results: int
    unjudged: int
    mean: dict[str, float]


class JudgedRanks(NamedTuple):
    """Where the judged documents of a query stand among its results: doc_id -> rank from 0."""

    ranks: Mapping[str, int]
    results: int


def judged_ranks(run: Run, qrels: Mapping[str, Mapping[str, int]]) -> dict[str, JudgedRanks]:
    """Find the judged documents among the results of each query that has judgements and results.

    Ranks are in trec_eval's order.
    """
    with np.errstate(over="ignore"):
        scores = run.scores.astype(np.float32)
    found = {}
    for position, query_id in enumerate(run.query_ids):
        start, end = int(run.offsets[position]), int(run.offsets[position + 1])
        if query_id in qrels and end > start:
            doc_ids = run.doc_ids.slice(start, end - start)
            ranks = _ranks(_rows(list(qrels[query_id]), doc_ids), doc_ids, scores[start:end])
            found[query_id] = JudgedRanks(ranks, end - start)
    return found


def judged_share(one: JudgedRanks, cut: int | None) -> float:
    """Share of the first `cut` results that are judged, or of all if they are fewer: Judged@k of ir_measures."""
    first = one.results if cut is None else min(cut, one.results)
    return sum(rank < first for rank in one.ranks.values()) / first


def condensed(ranks: Ranks) -> Ranks:
    """Remove what is not judged from rankings (Sakai, SIGIR 2007), so that judged documents have the ranks 0, 1, ..."""
    return {
        query_id: {doc_id: rank for rank, doc_id in enumerate(sorted(one, key=one.__getitem__))}
        for query_id, one in ranks.items()
    }


def _rows(judged: Sequence[str], doc_ids: pa.Array) -> dict[str, int]:
    """Find where judged documents stand; those that are nowhere are left out."""
    if len(judged) <= FEW:
        # Looking through all ids takes less time than making an index of them.
        places = [pc.index(doc_ids, doc_id).as_py() for doc_id in judged]
    else:
        places = positions(pa.array(judged, pa.string()), doc_ids).tolist()
    return {doc_id: place for doc_id, place in zip(judged, places, strict=True) if place >= 0}


def _ranks(rows: Mapping[str, int], doc_ids: pa.Array, scores: npt.NDArray[np.float32]) -> dict[str, int]:
    """Rank documents from 0 by their scores, among equal scores by descending doc id."""
    ranks = {}
    for doc_id, row in rows.items():
        ranks[doc_id] = int(np.count_nonzero(scores > scores[row]))
        tied = np.flatnonzero(scores == scores[row])
        if len(tied) > 1:
            alike = doc_ids if len(tied) == len(doc_ids) else doc_ids.take(pa.array(tied))
            ranks[doc_id] += pc.greater(alike, doc_id).true_count
    return ranks
