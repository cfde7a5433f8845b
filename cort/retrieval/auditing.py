"""Measure searches of an approximate index against exact ones: what they find, what that loses, how long they take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from cort.evaluation.judged import JudgedRanks
from cort.evaluation.measures import Qrels, evaluate_ranks, means, read_qrels
from cort.evaluation.names import parse_measures
from cort.formats.records import Ranking
from cort.retrieval.audits import Exact, Milliseconds, Search
from cort.retrieval.graphs import IndexKind
from cort.retrieval.options import AuditOptions, check_positive
from cort.system import cli
from cort.system.errors import input_error
from cort.system.progress import track

Query = TypeVar("Query")
Asked = TypeVar("Asked", contravariant=True)
Result = TypeVar("Result")
Found = TypeVar("Found", covariant=True)

# Queries that are searched once before time is taken.
WARMING = 20
# Exact search is timed on so many queries at most: its time hardly depends on the query.
TIMED_EXACTLY = 50


class Searching(Protocol[Asked, Found]):
    """A search of one query."""

    def __call__(self, query: Asked, *, width: float, depth: int) -> Found:
        """Search with a width; `depth` results at most."""


def check_options(options: AuditOptions, kind: IndexKind) -> list[float]:
    """Check what an audit is asked for, and return its widths in order.

    :raises InputError: names the first option that cannot be.
    """
    cli.check_depths(options.depths)
    widths = sorted(set(kind.check("--widths", options.widths, options.depths[-1])))
    if options.sample is not None:
        check_positive(options, "sample")
    if options.measures:
        parse_measures(options.measures)
        if not options.qrels:
            raise input_error("--measures", "no --qrels", "judgements to measure by", "name these or no measures")
    return widths


def read_judgements(options: AuditOptions) -> Qrels | None:
    """Read the judgements that an audit measures by, if it does."""
    return read_qrels(options.qrels, options.relevance_level) if options.qrels else None


@dataclass(frozen=True)
class Truth(Generic[Query]):
    """Queries, what exact search finds for them at each depth, and how good that is."""

    queries: Sequence[Query]
    rankings: Mapping[int, list[Ranking]]
    qrels: Qrels
    measures: Sequence[str]
    relevance_level: int

    def values(self, rankings: Iterable[Ranking]) -> dict[str, float]:
        """Mean measures of rankings of these queries."""
        if not self.measures:
            return {}
        ranks = {}
        for query_id, doc_ids, _ in rankings:
            judged = self.qrels[query_id]
            found = {doc_id: rank for rank, doc_id in enumerate(doc_ids) if doc_id in judged}
            ranks[query_id] = JudgedRanks(found, len(doc_ids))
        return means(evaluate_ranks(ranks, self.qrels, self.measures, self.relevance_level), self.measures)


def cut(rankings: Sequence[Ranking], depths: Sequence[int]) -> dict[int, list[Ranking]]:
    """Cut rankings at each depth."""
    return {n: [Ranking(one.query_id, one.doc_ids[:n], one.scores[:n]) for one in rankings] for n in depths}


def audit_searches(
    kind: IndexKind,
    search: Searching[Query, Result],
    name: Callable[[str, Result], Ranking],
    truth: Truth[Query],
    widths: Sequence[float],
) -> Iterator[Search]:
    """Measure an index with each width at each depth that it allows.

    :param name: makes a ranking of the id of a query and what was found.
    """
    pairs = [(width, depth) for width in widths for depth in truth.rankings if kind.allows(width, depth)]
    values_of_best = {depth: truth.values(rankings) for depth, rankings in truth.rankings.items()}
    for width, depth in track(pairs, len(pairs), "searches of all queries"):
        results, milliseconds = timed(partial(search, width=width, depth=depth), truth.queries)
        best = truth.rankings[depth]
        found = [name(exact.query_id, one) for exact, one in zip(best, results, strict=True)]
        values = truth.values(found)
        loss = {name: value - values[name] for name, value in values_of_best[depth].items()}
        both = zip(found, best, strict=True)
        shares = [len({*some.doc_ids} & {*exact.doc_ids}) / len(exact.doc_ids) for some, exact in both]
        yield Search(depth, loss, milliseconds, sum(shares) / len(shares), width)


def audit_exact(search: Callable[..., object], truth: Truth[Query]) -> Iterator[Exact]:
    """Time exact search, one query at a time, at each depth."""
    for depth, rankings in truth.rankings.items():
        _, milliseconds = timed(partial(search, depth=depth), truth.queries[:TIMED_EXACTLY])
        yield Exact(depth, truth.values(rankings), milliseconds)


def timed(search: Callable[[Query], Result], queries: Sequence[Query]) -> tuple[list[Result], Milliseconds]:
    """Search each query alone, after some that do not count; what was found, and the time of one."""
    for query in queries[:WARMING]:
        search(query)
    results, milliseconds = [], []
    for query in queries:
        started = time.perf_counter()
        results.append(search(query))
        milliseconds.append(1000 * (time.perf_counter() - started))
    return results, Milliseconds(statistics.fmean(milliseconds), statistics.median(milliseconds))


def sample_judged(
    ids: Sequence[str], qrels: Qrels | None, number: int | None, seed: int, source: str
) -> npt.NDArray[np.int64]:
    """Draw rows of queries that have judgements, in order; all of them where there are no more than `number`.

    :param qrels: None for any queries.
    :raises InputError: there are none; names `source`.
    """
    judged = np.flatnonzero([qrels is None or query_id in qrels for query_id in ids])
    if len(judged) == 0:
        raise input_error(source, "no query with judgements", "some", "name queries and qrels of one split")
    if number is not None and number < len(judged):
        judged = np.sort(np.random.default_rng(seed).choice(judged, number, replace=False))
    return judged
