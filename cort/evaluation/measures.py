"""Retrieval measures, named as in ir_measures and computed by trec_eval (through pytrec_eval).

They are RR, RR@k, nDCG, nDCG@k, R@k, AP, AP@k, P@k and Success@k, each also in the form `nDCG(judged_only=True)@10`,
where unjudged documents are removed from the ranking first; Judged@k, the share of the top k that is judged; and
R_cap@k, BEIR's capped recall: relevant documents in the top k, as a share of k or of all, if these are fewer.
A grade below 0 counts as 0, but `judged_only` removes its document, too, as trec_eval -J does.
trec_eval ignores the rank column of a run: it orders by descending score (in single precision), and ties by descending
doc_id.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.evaluation.names import JUDGED, JUDGED_ONLY, Measure, parse_measures
from cort.formats import tables
from cort.formats.ids import positions
from cort.formats.runs import Run
from cort.runtime.errors import input_error

Qrels = dict[str, dict[str, int]]
# Query -> measure -> value.
PerQuery = dict[str, dict[str, float]]
# Query -> judged document -> rank from 0.
Ranks = Mapping[str, Mapping[str, int]]

# Dictionaries of all rankings at once would take much memory.
QUERIES_PER_CHUNK = 200
# Depth to which rankings are checked for unjudged documents.
FIRST = 10
# Up to this many judged documents, scanning the ids of a ranking is faster than indexing them.
FEW = 4


@dataclass(frozen=True)
class Judged:
    """Unjudged top results: of the `results` in the top `FIRST` of all queries, `unjudged` are not judged.

    The split has `judgements`, of which `relevant` are at or above the relevance level. `mean` has Judged@k and the
    measures, each followed by its value over judged documents only.
    """

    judgements: int
    relevant: int
    results: int
    unjudged: int
    mean: dict[str, float]


@dataclass(frozen=True)
class Measures:
    """Mean measures of one system on one split, over all judged queries; None where a measure is unknown.

    `queries` includes those without results and those without a relevant passage. `short` counts those with results,
    but fewer than the largest cutoff of the measures.
    """

    system: str
    split: str
    relevance_level: int
    queries: int
    mean: dict[str, float | None]
    without_results: int = 0
    without_relevant: int = 0
    short: int = 0
    judged: Judged | None = None


class JudgedRanks(NamedTuple):
    """The ranks from 0 of a query's judged documents, and the number of its results."""

    ranks: Mapping[str, int]
    results: int


def judged_ranks(run: Run, qrels: Mapping[str, Mapping[str, int]]) -> dict[str, JudgedRanks]:
    """Rank the judged documents in trec_eval's order, for each query with judgements and results."""
    with np.errstate(over="ignore"):
        scores = run.scores.astype(np.float32)
    rankings = {}
    for position, query_id in enumerate(run.query_ids):
        start, end = int(run.offsets[position]), int(run.offsets[position + 1])
        if query_id in qrels and end > start:
            doc_ids = run.doc_ids.slice(start, end - start)
            ranks = _rank_judged(list(qrels[query_id]), doc_ids, scores[start:end])
            rankings[query_id] = JudgedRanks(ranks, end - start)
    return rankings


def _rank_judged(judged: Sequence[str], doc_ids: pa.Array, scores: npt.NDArray[np.floating]) -> dict[str, int]:
    """Rank those judged documents that were retrieved, from 0, by descending score, ties by descending id."""
    ranks = {}
    if len(judged) <= FEW:
        rows = [pc.index(doc_ids, doc_id).as_py() for doc_id in judged]
    else:
        rows = positions(pa.array(judged, "string"), doc_ids).tolist()
    for doc_id, row in zip(judged, rows, strict=True):
        if row >= 0:
            ranks[doc_id] = int(np.count_nonzero(scores > scores[row]))
            tied = np.flatnonzero(scores == scores[row])
            if len(tied) > 1:
                ranks[doc_id] += pc.greater(doc_ids.take(tied), doc_id).true_count
    return ranks


def evaluate_run(run: Run, qrels: Qrels, measures: Sequence[str], relevance_level: int = 1) -> PerQuery:
    """Evaluate every query of the qrels: query_id -> measure -> value, in the order of `qrels` and of `measures`.

    A query without results counts as 0; a query without qrels is ignored.

    :param relevance_level: lowest relevant grade; nDCG ignores it and uses the grades themselves.
    :raises InputError: for unknown measures.
    """
    return evaluate_ranks(judged_ranks(run, qrels), qrels, measures, relevance_level)


def evaluate_ranks(
    rankings: Mapping[str, JudgedRanks], qrels: Qrels, measures: Sequence[str], relevance_level: int = 1
) -> PerQuery:
    """Evaluate like `evaluate_run`, from the ranks of the judged documents."""
    parsed = parse_measures(measures)
    values = {query_id: dict.fromkeys(measures, 0.0) for query_id in qrels}
    for query_id, ranking in rankings.items():
        relevant = [doc_id for doc_id, grade in qrels[query_id].items() if grade >= relevance_level]
        own = [measure for measure in parsed if not measure.request]
        values[query_id] |= {measure.name: _own_value(measure, ranking, relevant) for measure in own}
    for judged_only in (False, True):
        requested = [measure for measure in parsed if measure.request and measure.judged_only == judged_only]
        found = {query_id: ranking.ranks for query_id, ranking in rankings.items() if ranking.ranks and requested}
        ranks = _cut(_condensed(found, qrels) if judged_only else found, requested)
        answered = _evaluate(ranks, qrels, requested, relevance_level)
        for query_id, answers in answered:
            values[query_id] |= {measure.name: _value(measure, answers) for measure in requested}
    return values


def describe_judged(
    rankings: Mapping[str, JudgedRanks], qrels: Qrels, measures: Sequence[str], relevance_level: int = 1
) -> Judged:
    """Count unjudged documents in the top `FIRST`; compute the measures that they affect with and without them."""
    affected = [name for name in measures if re.match(r"(RR|nDCG|AP|P)\b", name)]
    plain = [name for name in dict.fromkeys([f"P@{FIRST}", *affected]) if JUDGED_ONLY not in name]
    both = [version for name in plain for version in (name, re.sub(r"(?=@|\Z)", JUDGED_ONLY, name, count=1))]
    results = sum(min(FIRST, ranking.results) for ranking in rankings.values())
    judged = sum(rank < FIRST for ranking in rankings.values() for rank in ranking.ranks.values())
    grades = [grade for grades in qrels.values() for grade in grades.values()]
    relevant = sum(grade >= relevance_level for grade in grades)
    names = [f"{JUDGED}@{FIRST}", *both]
    mean = means(evaluate_ranks(rankings, qrels, names, relevance_level), names)
    return Judged(len(grades), relevant, results, results - judged, mean)


def recall_by_depth(
    rankings: Mapping[str, JudgedRanks], qrels: Qrels, depth: int, relevance_level: int = 1
) -> list[float]:
    """Compute R@k, averaged over all queries, for k from 1 to `depth`, rounding only once.

    Systems with equal recall therefore compare equal, whichever queries contribute to it.
    """
    gained = [Fraction(0)] * depth
    for query_id, ranking in rankings.items():
        relevant = [doc_id for doc_id, grade in qrels[query_id].items() if grade >= relevance_level]
        for doc_id in relevant:
            if (rank := ranking.ranks.get(doc_id, depth)) < depth:
                gained[rank] += Fraction(1, len(relevant))
    return [float(total / len(qrels)) for total in itertools.accumulate(gained)]


def means(values: Mapping[str, Mapping[str, float]], measures: Sequence[str]) -> dict[str, float]:
    """Average each measure over all queries, as in the ``all`` row of trec_eval -c."""
    return {measure: fmean(row[measure] for row in values.values()) for measure in measures}


def read_qrels(path: str | Path, relevance_level: int) -> Qrels:
    """Read the judgements of a split (`tables.QRELS`), which must include a relevant passage."""
    qrels = qrels_by_query(tables.read_table(path, tables.QRELS), path)
    if without_relevant(qrels, relevance_level) == len(qrels):
        fix = "lower relevance_level or name other qrels"
        raise input_error(path, "no relevant passage", f"one of grade {relevance_level} or higher", fix)
    return qrels


def without_relevant(qrels: Qrels, relevance_level: int) -> int:
    """Count the queries without a relevant passage."""
    return sum(max(grades.values()) < relevance_level for grades in qrels.values())


def qrels_by_query(table: pa.Table, source: str | Path = "qrels") -> Qrels:
    """Turn judgements (a table of `tables.QRELS`) into query_id -> doc_id -> relevance, in order of first appearance.

    :raises InputError: if there are no judgements.
    """
    if table.num_rows == 0:
        raise input_error(source, "no judgement", "at least one", "build the qrels again or name another file")
    qrels: Qrels = {}
    columns = (table[name].to_pylist() for name in ("query_id", "doc_id", "relevance"))
    for query_id, doc_id, relevance in zip(*columns, strict=True):
        qrels.setdefault(query_id, {})[doc_id] = relevance
    return qrels


def _own_value(measure: Measure, ranking: JudgedRanks, relevant: Sequence[str]) -> float:
    """Compute a measure that trec_eval does not have."""
    if measure.name.startswith(JUDGED):
        return _judged_share(ranking, measure.cut)
    cut = measure.cut or 0
    found = sum(ranking.ranks.get(doc_id, cut) < cut for doc_id in relevant)
    return found / min(len(relevant), cut) if relevant else 0.0


def _judged_share(ranking: JudgedRanks, cut: int | None) -> float:
    """Compute Judged@k: the share of judged documents in the top `cut`, or among all results if there are fewer."""
    first = ranking.results if cut is None else min(cut, ranking.results)
    return sum(rank < first for rank in ranking.ranks.values()) / first


def _condensed(ranks: Ranks, qrels: Qrels) -> Ranks:
    """Remove documents without a grade of 0 or more from rankings (Sakai, SIGIR 2007); others have ranks 0, 1, ..."""
    kept = {
        query_id: [doc_id for doc_id in sorted(rank_of, key=rank_of.__getitem__) if qrels[query_id][doc_id] >= 0]
        for query_id, rank_of in ranks.items()
    }
    return {query_id: {doc_id: rank for rank, doc_id in enumerate(first)} for query_id, first in kept.items() if first}


def _cut(ranks: Ranks, measures: Sequence[Measure]) -> Ranks:
    """Drop what no measure sees, and queries of which nothing is left."""
    if not all(measure.cut for measure in measures):
        return ranks
    cut = max((measure.cut or 0 for measure in measures), default=0)
    first = {query: {doc: rank for doc, rank in rank_of.items() if rank < cut} for query, rank_of in ranks.items()}
    return {query_id: rank_of for query_id, rank_of in first.items() if rank_of}


def _evaluate(
    ranks: Ranks, qrels: Qrels, measures: Sequence[Measure], relevance_level: int
) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Evaluate rankings given by the ranks of their judged documents, in chunks.

    No measure depends on the id of an unjudged document, nor on what follows the last judged one. Each document is
    therefore named by its rank, and rankings end there: far less to build, sort and look up than all ids.
    """
    import pytrec_eval

    requests = {measure.request for measure in measures}
    query_ids = list(ranks)
    for start in range(0, len(query_ids), QUERIES_PER_CHUNK):
        chunk = {query_id: ranks[query_id] for query_id in query_ids[start : start + QUERIES_PER_CHUNK]}
        judged = {query_id: _by_rank(qrels[query_id], rank_of) for query_id, rank_of in chunk.items()}
        evaluator = pytrec_eval.RelevanceEvaluator(judged, requests, relevance_level=relevance_level)
        lengths = {query_id: max(rank_of.values()) + 1 for query_id, rank_of in chunk.items()}
        longest = [(str(rank), -float(rank)) for rank in range(max(lengths.values()))]
        yield from evaluator.evaluate(
            {query_id: dict(longest[:length]) for query_id, length in lengths.items()}
        ).items()


def _by_rank(grades: Mapping[str, int], rank_of: Mapping[str, int]) -> dict[str, int]:
    """Name judged documents by their ranks; those that were not retrieved get other names.

    A query without a grade of 0 or more makes trec_eval write outside its memory.
    """
    return {str(rank_of.get(doc_id, f"not {doc_id}")): max(grade, 0) for doc_id, grade in grades.items()}


def _value(measure: Measure, answers: Mapping[str, float]) -> float:
    value = answers[measure.request.replace(".", "_")]
    if measure.request == "recip_rank" and measure.cut is not None:
        # trec_eval has no such cut; truncating rankings with -M k keeps 1/rank up to rank k, and gives 0 beyond.
        return value if value >= 1.0 / measure.cut else 0.0
    return value
