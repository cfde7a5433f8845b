"""Retrieval measures, named as ir_measures names them and computed by trec_eval (through pytrec_eval).

Known: RR, RR@k, nDCG, nDCG@k, R@k, AP, AP@k, P@k, Success@k; each of them as `nDCG(judged_only=True)@10`, of rankings
from which documents without a judgement are removed; Judged@k, the share of the first k results that have one.
trec_eval ignores the rank column of a run: it orders by score (in single precision), descending, and among equal scores
by doc id, descending.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import pyarrow as pa

from cort.evaluation.judged import FIRST, Judged, JudgedRanks, Ranks, condensed, judged_ranks, judged_share
from cort.evaluation.names import JUDGED, JUDGED_ONLY, Measure, parse_measures
from cort.formats import tables
from cort.formats.artifacts import Node
from cort.formats.records import LARGEST_GRADE
from cort.formats.runs import Run
from cort.system.errors import input_error, shorten

Qrels: TypeAlias = dict[str, dict[str, int]]
# Query -> measure -> value.
PerQuery: TypeAlias = dict[str, dict[str, float]]

# Python dictionaries of all rankings at once would take much memory.
QUERIES_PER_CHUNK = 200


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
    judged: Judged | None = None

    def check(self, node: Node) -> None:
        """Refuse means of no measure, and counts that contradict each other."""
        for measure, value in self.mean.items():
            if value is not None:
                node["mean"][measure].within(float, 0, 1)
        node["relevance_level"].within(int, 1, LARGEST_GRADE)
        for name in ("without_results", "without_relevant"):
            node[name].within(int, 0, self.queries)


def evaluate_run(run: Run, qrels: Qrels, measures: Sequence[str], relevance_level: int = 1) -> PerQuery:
    """Measure every query of the qrels: query_id -> measure -> value, in the order of `qrels` and of `measures`.

    Scores are used as they stand in the run. A query without results counts 0; a query without qrels is ignored.

    :param relevance_level: lowest grade that counts as relevant; nDCG ignores it and uses the grades themselves.
    :raises InputError: for unknown measures.
    """
    return evaluate_ranks(judged_ranks(run, qrels), qrels, measures, relevance_level)


def evaluate_ranks(
    found: Mapping[str, JudgedRanks], qrels: Qrels, measures: Sequence[str], relevance_level: int = 1
) -> PerQuery:
    """Measure every query from what `judged_ranks` found in a run, as `evaluate_run` does."""
    parsed = parse_measures(measures)
    values = {query_id: dict.fromkeys(measures, 0.0) for query_id in qrels}
    for query_id, one in found.items():
        values[query_id] |= {measure.name: judged_share(one, measure.cut) for measure in parsed if not measure.request}
    for judged_only in (False, True):
        asked = [measure for measure in parsed if measure.request and measure.judged_only == judged_only]
        ranks = {query_id: one.ranks for query_id, one in found.items() if one.ranks and asked}
        for query_id, answers in _evaluate(condensed(ranks) if judged_only else ranks, qrels, asked, relevance_level):
            values[query_id] |= {measure.name: _value(measure, answers) for measure in asked}
    return values


def describe_judged(
    found: Mapping[str, JudgedRanks], qrels: Qrels, measures: Sequence[str], relevance_level: int = 1
) -> Judged:
    """Tell how much is judged of the first results, and what the measures that this can change are without the rest."""
    names = [f"P@{FIRST}"]
    names += [one.name for one in parse_measures(measures) if re.match(r"(RR|nDCG|AP|P)\b", one.name)]
    whole = [name for name in dict.fromkeys(names) if JUDGED_ONLY not in name]
    both = [name for one in whole for name in (one, re.sub(r"(?=@|\Z)", JUDGED_ONLY, one, count=1))]
    firsts = [min(FIRST, one.results) for one in found.values()]
    judged = [sum(rank < FIRST for rank in one.ranks.values()) for one in found.values()]
    grades = [grade for one in qrels.values() for grade in one.values()]
    relevant = sum(grade >= relevance_level for grade in grades)
    asked = [f"{JUDGED}@{FIRST}", *both]
    mean = means(evaluate_ranks(found, qrels, asked, relevance_level), asked)
    return Judged(len(grades), relevant, sum(firsts), sum(firsts) - sum(judged), mean)


def recall_by_depth(
    ranks: Mapping[str, JudgedRanks], qrels: Qrels, depth: int, relevance_level: int = 1
) -> list[float]:
    """Mean recall of every query at depths 1 to `depth`: R@k, exact but for the last rounding.

    So equal recall is equal here, whatever queries it comes from.
    """
    gained = [Fraction(0)] * depth
    for query_id, found in ranks.items():
        relevant = [doc_id for doc_id, grade in qrels[query_id].items() if grade >= relevance_level]
        for doc_id in relevant:
            if found.ranks.get(doc_id, depth) < depth:
                gained[found.ranks[doc_id]] += Fraction(1, len(relevant))
    return [float(total / len(qrels)) for total in itertools.accumulate(gained)]


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


def _evaluate(
    ranks: Ranks, qrels: Qrels, measures: Sequence[Measure], relevance_level: int
) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Evaluate rankings, not too many at a time."""
    query_ids = list(ranks)
    for start in range(0, len(query_ids), QUERIES_PER_CHUNK):
        chunk = {query_id: ranks[query_id] for query_id in query_ids[start : start + QUERIES_PER_CHUNK]}
        yield from _evaluate_chunk(chunk, qrels, measures, relevance_level).items()


def _evaluate_chunk(ranks: Ranks, qrels: Qrels, measures: Sequence[Measure], relevance_level: int) -> PerQuery:
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
