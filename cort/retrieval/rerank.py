"""Re-ranking: the candidates of a run in the order of a re-ranker's scores."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.formats.ordering import ranked
from cort.formats.pairs import Pairs, match
from cort.formats.records import Ranking
from cort.formats.runs import Run, strictly_decreasing, top
from cort.retrieval.pool import NONE, Scores, min_max, untied, weigh
from cort.runtime.errors import input_error, shorten


def mix(run: Run, scores: Scores, depth: int, weight: float, own: Mapping[str, float] = NONE) -> Scores:
    """Interpolate a re-ranker's scores of the top `depth` candidates with their own, both scaled from 0 to 1.

    :param scores: of the re-ranker, one per result of `run`, as from `candidate_scores`.
    :param weight: of the re-ranker; with 1 its scores are unchanged.
    :param own: weights of queries that have one of their own.
    :return: the mixed scores; NaN below `depth`.
    """
    if weight == 1 and not own:
        return scores
    first, kept = top(run, depth), run.ranks() <= depth
    sizes = np.diff(first.offsets)
    both = [
        min_max(untied(values, first.offsets), first.offsets, np.zeros(len(run), dtype=bool))[0]
        for values in (first.scores, scores[kept])
    ]
    weights = np.repeat([own.get(query_id, weight) for query_id in run.query_ids], sizes)
    mixed = np.full(len(scores), np.nan)
    mixed[kept] = np.where(weights == 1, scores[kept], weigh(both, (1 - weights, weights)))
    return mixed


def rerank(candidates: Ranking, scores: Scores, depth: int) -> Ranking:
    """Order the top `depth` candidates by (-score, doc_id) and keep the others below them, in their order.

    The scores of the result decrease strictly: those of the re-ranker for the top `depth`, and lower ones below.

    :param scores: of the re-ranker, one per candidate; only the first `depth` are read.
    """
    head = np.asarray(scores[:depth], dtype=np.float64)
    by = ranked(head, pa.array(candidates.doc_ids[:depth], "string"))
    doc_ids = [candidates.doc_ids[position] for position in by] + candidates.doc_ids[depth:]
    tail = head.min(initial=np.inf) - np.arange(1.0, len(doc_ids) - len(head) + 1)
    return Ranking(candidates.query_id, doc_ids, strictly_decreasing(np.concatenate([head[by], tail])))


def rerank_run(
    run: Run, scores: Scores, depth: int, weight: float = 1.0, own: Mapping[str, float] = NONE
) -> Iterator[Ranking]:
    """Re-rank the candidates of every query by the scores that `mix` gives."""
    mixed = mix(run, scores, depth, weight, own)
    for position, ranking in enumerate(run):
        yield rerank(ranking, mixed[int(run.offsets[position]) : int(run.offsets[position + 1])], depth)


def candidate_scores(run: Run, table: pa.Table, depth: int, source: str | Path) -> Scores:
    """Look up the re-ranker's score of every result of `run`; NaN below `depth` if there is none.

    :param table: pairs, each once, and scores (`tables.SCORES`), read from `source`.
    :raises InputError: if one of the top `depth` has no score.
    """
    # NaN where there is none: at -1.
    known = np.append(table["score"].to_numpy().astype(np.float64), np.nan)
    scores: Scores = known[match(run.pairs(), Pairs.of(table))]
    missing = np.flatnonzero(np.isnan(scores) & (run.ranks() <= depth))
    if len(missing):
        row = int(missing[0])
        query_id = run.query_ids[int(run.query_numbers()[row])]
        found = f"no score for document {shorten(run.doc_ids[row].as_py())} of query {shorten(query_id)}"
        expected = f"scores for the top {depth} ({len(missing)} are missing)"
        raise input_error(source, found, expected, "score these candidates, or lower the depth")
    return scores
