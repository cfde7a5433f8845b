"""Comparison of an approximate index with exact search, for `audit`."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from cort.evaluation.measures import Qrels, evaluate_run, means, read_qrels
from cort.formats.artifacts import write_artifact
from cort.formats.records import Ranking
from cort.formats.runs import Run, as_written, run_of, top
from cort.retrieval.audits import Audit, Exact, Milliseconds, Search
from cort.retrieval.documents import as_documents
from cort.retrieval.graph_search import Graph
from cort.retrieval.indexes import INDEXES
from cort.retrieval.rankings import Index, Results, Rows, rank
from cort.retrieval.search_options import AuditOptions
from cort.retrieval.vectors import PassageVectors
from cort.runtime.errors import input_error
from cort.runtime.memory import free_memory
from cort.runtime.progress import track
from cort.runtime.sampling import sample_rows

if TYPE_CHECKING:
    from cort.retrieval.exact import ExactIndex
    from cort.retrieval.ivfpq import IvfPq

log = logging.getLogger(__name__)

#: of some passages for a query
Scores = npt.NDArray[np.floating]
Result = TypeVar("Result")
#: ids and vectors of some queries, or their token vectors
Batch = tuple[Sequence[str], Any]
# Queries that are searched for before timing.
WARMING = 20
# Exact search is timed on at most this many queries, because its time hardly depends on the query.
TIMED_EXACTLY = 50


def sample_queries(options: AuditOptions, ids: Sequence[str], source: str | Path) -> tuple[Rows, Qrels]:
    """Draw rows of judged queries, in order, or take all if there are fewer; return their judgements, too.

    Without judgements, any queries are taken.

    :raises InputError: if there are none; names `source`.
    """
    qrels = read_qrels(options.qrels, options.relevance_level) if options.qrels else {key: {} for key in ids}
    judged = np.flatnonzero([query_id in qrels for query_id in ids])
    if len(judged) == 0:
        raise input_error(source, "no query with judgements", "some", "name queries and qrels of one split")
    if options.sample is not None:
        judged = judged[sample_rows(len(judged), options.sample, options.seed)]
    return judged, {ids[row]: qrels[ids[row]] for row in judged.tolist()}


def evaluate(options: AuditOptions, run: Run, qrels: Qrels) -> dict[str, float]:
    """Return the means of the measures asked for, if any, of the run as it would be written."""
    measures = sorted(options.measures)
    if not measures:
        return {}
    values = evaluate_run(as_documents(as_written(run), options.aggregate), qrels, measures, options.relevance_level)
    return means(values, measures)


def timed(search: Callable[[Any], Result], queries: Sequence[Any]) -> tuple[list[Result], Milliseconds]:
    """Search for one query at a time, after a warm-up; return the results, and the time per query."""
    for query in queries[:WARMING]:
        search(query)
    results, milliseconds = [], []
    for query in queries:
        started = time.perf_counter()
        results.append(search(query))
        milliseconds.append(1000 * (time.perf_counter() - started))
    return results, Milliseconds(statistics.fmean(milliseconds), statistics.median(milliseconds))


def audit_index(
    options: AuditOptions,
    index_kind: str,
    index: Graph | IvfPq,
    passages: int,
    search: Index,
    batches: Sequence[Batch],
    qrels: Qrels,
    candidates: int | None = None,
    exact_of: Callable[[Any, Results], Scores] = lambda query, results: results[0],
) -> None:
    """Measure both searches, the index with each width at each depth that it allows, and write the audit.

    :param index_kind: name of the kind of the index.
    :param search: exact search, of which `batches` are the queries.
    :param exact_of: the exact scores of what the index found for a query; default: its own are exact.
    """
    import torch

    kind, exact, searches = INDEXES[index_kind], list[Exact](), list[Search]()
    torch.set_num_threads(options.threads)
    deepest = run_of([*rank(search, batches, options.depths[-1])])
    torch.set_num_threads(1)
    best = {depth: top(deepest, depth) for depth in options.depths}
    queries = [vectors[row : row + 1] for _, vectors in batches for row in range(len(vectors))]
    for depth, run in best.items():
        _, milliseconds = timed(partial(search.search, depth=depth), queries[:TIMED_EXACTLY])
        exact.append(Exact(depth, evaluate(options, run, qrels), milliseconds))
    widths = sorted({*map(kind.typed, options.widths)})
    pairs = [(width, one) for width in widths for one in exact if kind.allows(width, one.depth)]
    for width, one in track(pairs, len(pairs), "searches of all queries"):
        own_search = partial(index.search, width=width, depth=one.depth)
        results, milliseconds = timed(own_search, [query[0] for query in queries])
        rankings = zip(deepest.query_ids, results, strict=True)
        found = run_of([Ranking(query_id, index.ids(rows), scores) for query_id, (scores, rows) in rankings])
        least = [(len(ranking.scores), ranking.scores.min()) for ranking in best[one.depth]]
        recall = statistics.fmean(
            np.count_nonzero(exact_of(query[0], own) >= score) / count
            for query, own, (count, score) in zip(queries, results, least, strict=True)
        )
        values = evaluate(options, found, qrels)
        loss = {measure: value - values[measure] for measure, value in one.measures.items()}
        searches.append(Search(one.depth, loss, milliseconds, recall, width))
        words = (kind.parameter, width, one.depth, recall, milliseconds.mean)
        log.info("%s %g, depth %d: recall %.4f, %.2f ms per query", *words)
    audit = Audit(
        encoder=options.encoder,
        exact=exact,
        index=index_kind,
        model=index.meta.model,
        parameter=kind.parameter,
        passages=passages,
        queries=len(queries),
        searches=searches,
        split=options.split,
        storage_bytes=sum(index.meta.bytes.values()),
        vectors_per_token=candidates,
    )
    write_artifact(options.output, audit)


def exact_search(
    options: AuditOptions, passages: PassageVectors, queries: PassageVectors
) -> tuple[ExactIndex, list[Batch], Qrels]:
    """Return exact search, and some of the queries with their judgements."""
    from cort.retrieval.exact import ExactIndex

    rows, qrels = sample_queries(options, queries.ids.to_pylist(), queries.source)
    # Half, because other processes need memory, too.
    index = ExactIndex(passages, memory_mb=free_memory() >> 21, one_by_one=True)
    return index, [*queries.batches(rows)], qrels
