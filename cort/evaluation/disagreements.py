"""The queries on which two systems disagree most.

The disagreement of a query is the difference between the reciprocal ranks of the two runs' best-ranked relevant
passages (0 where none was retrieved).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cort.evaluation.measures import Qrels
from cort.formats.runs import RunByQuery

Document = Callable[[str], str]


@dataclass(frozen=True)
class Relevant:
    """The relevant passage of an example, with its ranks from 1; None where it was not retrieved.

    If passages are aggregated, it is the passage that counted for a relevant document, with the ranks of the document.
    """

    doc_id: str
    text: str
    rank_first: int | None
    rank_second: int | None


@dataclass(frozen=True)
class Top:
    """The top passage of a system; `relevant` is None if it is unjudged."""

    doc_id: str
    text: str
    relevant: bool | None


@dataclass(frozen=True)
class Example:
    """A query on which two systems disagree; `advantage` is positive if the first system is better.

    `top_first` and `top_second` are None if nothing was retrieved.
    """

    query_id: str
    query: str
    advantage: float
    relevant: Relevant
    top_first: Top | None
    top_second: Top | None


@dataclass(frozen=True)
class Disagreements:
    """On how many judged queries each of two systems is better, and the examples with the largest advantages."""

    split: str
    first: str
    second: str
    queries: int
    better_first: int
    better_second: int
    examples: list[Example]


class Disagreement(NamedTuple):
    """A query as ranked by two systems; ranks count from 1, None if the passage was not retrieved.

    `doc_id` is the best-ranked relevant passage of the better system.
    """

    query_id: str
    advantage: float
    doc_id: str
    rank_first: int | None
    rank_second: int | None
    top_first: str | None
    top_second: str | None


def compare(
    query_id: str,
    first: Sequence[str],
    second: Sequence[str],
    judged: Mapping[str, int],
    relevance_level: int = 1,
    document: Document = str,
) -> Disagreement | None:
    """Compare two rankings (doc ids, best first) of one query; None if neither is better.

    :param judged: doc_id -> relevance; grades below `relevance_level` count as not relevant.
    :param document: maps what is ranked to what is judged: passages to documents, if they are aggregated.
    :return: a positive advantage where `first` ranks a relevant passage higher, a negative one where `second` does.
    """
    relevant = {doc_id for doc_id, grade in judged.items() if grade >= relevance_level}
    rankings = (first, second)
    found = ((rank for rank, id_ in enumerate(ranking, 1) if document(id_) in relevant) for ranking in rankings)
    best = [next(ranks, math.inf) for ranks in found]
    advantage = 1 / best[0] - 1 / best[1]
    if advantage == 0:
        return None
    doc_id = rankings[advantage < 0][int(min(best)) - 1]
    same = ([document(id_) == document(doc_id) for id_ in ranking] for ranking in rankings)
    rank_first, rank_second = (places.index(True) + 1 if any(places) else None for places in same)
    tops = (ranking[0] if ranking else None for ranking in rankings)
    return Disagreement(query_id, advantage, doc_id, rank_first, rank_second, *tops)


def compare_runs(
    first: RunByQuery, second: RunByQuery, qrels: Qrels, relevance_level: int = 1, document: Document = str
) -> Iterator[Disagreement]:
    """Yield the disagreements on judged queries, in the order of `qrels`."""
    for query, judged in qrels.items():
        if compared := compare(query, first[query], second[query], judged, relevance_level, document):
            yield compared


def largest(disagreements: Iterable[Disagreement], number: int) -> list[Disagreement]:
    """Take the `number` largest advantages of the first system, then those of the second; ties by query_id."""
    by_size = sorted(disagreements, key=lambda query: (-abs(query.advantage), query.query_id))
    sides = ([query for query in by_size if sign * query.advantage > 0] for sign in (1, -1))
    return [query for side in sides for query in side[:number]]


def make_example(
    query: Disagreement,
    judged: Mapping[str, int],
    relevance_level: int,
    text: str,
    passages: Mapping[str, str],
    document: Document = str,
) -> Example:
    """Add the texts, and whether the top passages are relevant."""

    def top(doc_id: str | None) -> Top | None:
        if doc_id is None:
            return None
        grade = judged.get(document(doc_id))
        return Top(doc_id, passages[doc_id], None if grade is None else grade >= relevance_level)

    relevant = Relevant(query.doc_id, passages[query.doc_id], query.rank_first, query.rank_second)
    return Example(query.query_id, text, query.advantage, relevant, top(query.top_first), top(query.top_second))
