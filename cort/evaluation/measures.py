"""Retrieval measures, named as ir_measures names them and computed by trec_eval (through pytrec_eval).

Known: RR, RR@k, nDCG, nDCG@k, R@k, AP, AP@k, P@k, Success@k. trec_eval ignores the rank column of a run: it orders by
score (in single precision), descending, and among equal scores by doc id, descending.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.artifacts import Node
from cort.formats.ids import positions
from cort.formats.records import LARGEST_GRADE
from cort.formats.runs import Run
from cort.system.errors import input_error, shorten

Qrels: TypeAlias = dict[str, dict[str, int]]
JudgedRanks: TypeAlias = Mapping[str, Mapping[str, int]]
# Query -> measure -> value.
PerQuery: TypeAlias = dict[str, dict[str, float]]

# trec_eval's name of each measure: over the whole ranking, and with a cut (None where there is no such measure).
TREC_NAMES: Mapping[str, tuple[str | None, str | None]] = {
    "RR": ("recip_rank", "recip_rank"),
    "nDCG": ("ndcg", "ndcg_cut.{}"),
    "R": (None, "recall.{}"),
    "AP": ("map", "map_cut.{}"),
    "P": (None, "P.{}"),
    "Success": (None, "success.{}"),
}
MEASURE = re.compile(r"([A-Za-z]+)(?:@([1-9][0-9]{0,8}))?")
KNOWN = "RR, RR@k, nDCG, nDCG@k, R@k, AP, AP@k, P@k or Success@k with k from 1"

# Python dictionaries of all rankings at once would take much memory.
QUERIES_PER_CHUNK = 200
# Judged documents of a query.
FEW = 4


@dataclass(frozen=True)
class Measures:
    """The mean measures of one system on one split, over all its judged queries; a measure may be unknown (None).

    Queries without results, and those without a relevant passage, are among these `queries`.
    """

    system: str
    split: str
    relevance_level: int
    queries: int
    mean: dict[str, float | None]
    without_results: int = 0
    without_relevant: int = 0

    def check(self, node: Node) -> None:
        """Refuse means of no measure, and counts that contradict each other."""
        for measure, value in self.mean.items():
            if value is not None:
                node["mean"][measure].within(float, 0, 1)
        node["relevance_level"].within(int, 1, LARGEST_GRADE)
        for name in ("without_results", "without_relevant"):
            node[name].within(int, 0, self.queries)


class Measure(NamedTuple):
    """One measure: its name here, trec_eval's name in the request, and the cut if there is one."""

    name: str
    request: str
    cut: int | None


def parse_measures(names: Sequence[str]) -> list[Measure]:
    """Parse measure names, in order.

    :raises InputError: names every unknown and every repeated measure.
    """
    parsed, unknown = [], []
    for name in names:
        match = MEASURE.fullmatch(name)
        whole, with_cut = TREC_NAMES.get(match[1], (None, None)) if match else (None, None)
        request, cut = (with_cut, int(match[2])) if match and match[2] else (whole, None)
        if request is None:
            unknown.append(name)
        else:
            parsed.append(Measure(name, request.format(cut), cut))
    if unknown or not names:
        found = ", ".join(map(shorten, unknown)) or "no measure"
        raise input_error("measures", found, KNOWN, "fix the names (upper and lower case matter)")
    repeated = [name for position, name in enumerate(names) if name in names[:position]]
    if repeated:
        found = ", ".join(map(shorten, repeated)) + " again"
        raise input_error("measures", found, "each measure once", "drop the repetition")
    return parsed


def evaluate_run(run: Run, qrels: Qrels, measures: Sequence[str], relevance_level: int = 1) -> PerQuery:
    """Measure every query of the qrels: query_id -> measure -> value, in the order of `qrels` and of `measures`.

    Scores are used as they stand in the run. A query without results counts 0; a query without qrels is ignored.

    :param relevance_level: lowest grade that counts as relevant; nDCG ignores it and uses the grades themselves.
    :raises InputError: for unknown measures.
    """
    return evaluate_ranks(judged_ranks(run, qrels), qrels, measures, relevance_level)


def evaluate_ranks(ranks: JudgedRanks, qrels: Qrels, measures: Sequence[str], relevance_level: int = 1) -> PerQuery:
    """Measure every query from what `judged_ranks` found in a run, as `evaluate_run` does."""
    parsed = parse_measures(measures)
    values = {query_id: dict.fromkeys(measures, 0.0) for query_id in qrels}
    query_ids = list(ranks)
    for start in range(0, len(query_ids), QUERIES_PER_CHUNK):
        chunk = {query_id: ranks[query_id] for query_id in query_ids[start : start + QUERIES_PER_CHUNK]}
        for query_id, answers in _evaluate_chunk(chunk, qrels, parsed, relevance_level).items():
            values[query_id] = {measure.name: _value(measure, answers) for measure in parsed}
    return values


def judged_ranks(run: Run, qrels: Qrels) -> JudgedRanks:
    """Find the judged documents among the results of each query: query_id -> doc_id -> rank from 0.

    Ranks are in trec_eval's order. Queries without any are left out.
    """
    with np.errstate(over="ignore"):
        scores = run.scores.astype(np.float32)
    ranks = {}
    for position, query_id in enumerate(run.query_ids):
        judged = list(qrels.get(query_id, ()))
        start, end = int(run.offsets[position]), int(run.offsets[position + 1])
        doc_ids = run.doc_ids.slice(start, end - start)
        rows = _rows(judged, doc_ids)
        if rows:
            ranks[query_id] = _ranks(rows, doc_ids, scores[start:end])
    return ranks


def recall_by_depth(ranks: JudgedRanks, qrels: Qrels, depth: int, relevance_level: int = 1) -> list[float]:
    """Mean recall of every query at depths 1 to `depth`: R@k, exact but for the last rounding.

    So equal recall is equal here, whatever queries it comes from.
    """
    gained = [Fraction(0)] * depth
    for query_id, found in ranks.items():
        relevant = [doc_id for doc_id, grade in qrels[query_id].items() if grade >= relevance_level]
        for doc_id in relevant:
            if found.get(doc_id, depth) < depth:
                gained[found[doc_id]] += Fraction(1, len(relevant))
    return [float(total / len(qrels)) for total in itertools.accumulate(gained)]


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


def means(values: Mapping[str, Mapping[str, float]], measures: Sequence[str]) -> dict[str, float]:
    """Mean over all queries of each measure: what trec_eval prints under ``all`` when called with -c."""
    return {measure: fmean(row[measure] for row in values.values()) for measure in measures}


def read_qrels(path: str | Path, relevance_level: int) -> Qrels:
    """Read the judgements of a split (`tables.QRELS`), of which one at least must say that a passage is relevant."""
    check_level(relevance_level)
    qrels = qrels_by_query(tables.read_table(path, tables.QRELS), path)
    if without_relevant(qrels, relevance_level) == len(qrels):
        fix = "lower relevance_level or name other qrels"
        raise input_error(path, "no relevant passage", f"one of grade {relevance_level} or higher", fix)
    return qrels


def check_level(relevance_level: int) -> None:
    """Refuse to count passages as relevant that are judged not to be."""
    if relevance_level < 1:
        raise input_error("--relevance-level", str(relevance_level), "1 or more", "give the lowest relevant grade")


def without_relevant(qrels: Qrels, relevance_level: int) -> int:
    """Count the queries of which no passage is relevant."""
    return sum(max(grades.values()) < relevance_level for grades in qrels.values())


def qrels_by_query(table: pa.Table, source: str | Path = "qrels") -> Qrels:
    """Turn judgements (a table of `tables.QRELS`) into query_id -> doc_id -> relevance, in order of first mention.

    :raises InputError: when there is no judgement, one pair is judged twice, or a grade is out of bounds.
    """
    if table.num_rows == 0:
        raise input_error(source, "no judgement", "at least one", "build the qrels again or name another file")
    qrels: Qrels = {}
    columns = (table[name].to_pylist() for name in ("query_id", "doc_id", "relevance"))
    for row, (query_id, doc_id, relevance) in enumerate(zip(*columns, strict=True), start=1):
        judgements = qrels.setdefault(query_id, {})
        if doc_id in judgements:
            found = f"document {shorten(doc_id)} judged again for query {shorten(query_id)}"
            raise input_error(source, found, "each pair once", "drop one of the two", row)
        if abs(relevance) > LARGEST_GRADE:
            expected = f"at most {LARGEST_GRADE} either side of 0"
            raise input_error(source, f"the grade {relevance}", expected, "correct the judgements", row)
        judgements[doc_id] = relevance
    return qrels


def _evaluate_chunk(ranks: JudgedRanks, qrels: Qrels, measures: Sequence[Measure], relevance_level: int) -> PerQuery:
    """Evaluate rankings given by the ranks of their judged documents.

    No measure depends on what an unjudged document is, nor on what comes after the last judged one. So a document is
    named by its rank, and a ranking ends there: far less to build, sort and look up than with ids of all results.
    """
    import pytrec_eval

    evaluator = pytrec_eval.RelevanceEvaluator(
        {
            query_id: {
                str(found[doc_id]) if doc_id in found else f"not {doc_id}": grade
                for doc_id, grade in qrels[query_id].items()
            }
            for query_id, found in ranks.items()
        },
        {measure.request for measure in measures},
        relevance_level=relevance_level,
    )
    lengths = {query_id: max(found.values()) + 1 for query_id, found in ranks.items()}
    longest = [(str(rank), -float(rank)) for rank in range(max(lengths.values()))]
    rankings = {query_id: dict(longest[:length]) for query_id, length in lengths.items()}
    answers: PerQuery = evaluator.evaluate(rankings)
    return answers


def _value(measure: Measure, answers: Mapping[str, float]) -> float:
    value = answers[measure.request.replace(".", "_")]
    if measure.request == "recip_rank" and measure.cut is not None:
        # trec_eval has no cut here; cutting the ranking with -M k leaves 1/rank alone up to k, and makes it 0 beyond.
        return value if value >= 1.0 / measure.cut else 0.0
    return value
