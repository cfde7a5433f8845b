"""Compare an approximate index with exact search: recall, time per query, and loss of effectiveness.

For each search width (epsilon of an ONNG, ef of an HNSW index, probes of an IVF-PQ index) and each depth: the share of
exact results that is found, the time per query, and how far the experiment's measures fall below those of the exact
ranking. Queries are timed one at a time in one thread, after a warm-up, with the vectors of exact search in memory if
they fit. They are a sample of the judged queries. An ef below the depth is skipped, because hnswlib refuses it.

Usage: python -m cort.audit graph --passages 1-of-2.arrow 2-of-2.arrow --queries queries.arrow --qrels qrels.parquet
           --kind hnsw --index hnsw --widths 1000 2000 --depths 10 100 1000 --measures RR@10 R@1000 --sample 500
           --seed 42 --encoder cort --split dev --output audit.json
       python -m cort.audit ivfpq --model rerankers/late/best --queries queries.dev.arrow
           --passages 1-of-2.arrow 2-of-2.arrow --qrels qrels.parquet --index ivfpq --widths 8 16 32 --candidates 1024
           --depths 10 100 1000 --measures RR@10 --sample 500 --seed 42 --encoder late --split dev --output audit.json
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from cort.evaluation.measures import Qrels, evaluate_run, means, read_qrels
from cort.formats.artifacts import write_artifact
from cort.formats.records import Integers, Ranking
from cort.formats.runs import run_of, strictly_decreasing
from cort.formats.shards import (
    Shard,
    Tokens,
    all_vectors,
    open_both,
    open_shards,
)
from cort.models.tokenizer import fingerprint
from cort.retrieval.audits import Audit, Exact, Milliseconds, Search
from cort.retrieval.documents import as_documents
from cort.retrieval.graph_search import Graph, open_index, open_queries, unit_lengths
from cort.retrieval.indexes import INDEXES
from cort.retrieval.options import AuditOptions, GraphOptions, IvfPqOptions
from cort.retrieval.rankings import batches_of, rank
from cort.retrieval.vectors import PassageVectors
from cort.runtime.commands import Commands, main_of_commands
from cort.runtime.devices import lease
from cort.runtime.errors import input_error
from cort.runtime.memory import free_memory
from cort.runtime.options import options_class, required
from cort.runtime.progress import track

if TYPE_CHECKING:
    from cort.retrieval.ivfpq import IvfPq

log = logging.getLogger(__name__)

Result = TypeVar("Result")
# Queries that are searched for before timing.
WARMING = 20
# Exact search is timed on at most this many queries, because its time hardly depends on the query.
TIMED_EXACTLY = 50


@options_class
class GraphAuditOptions(GraphOptions, AuditOptions):
    """Compare a graph index with exact search over the same vectors.

    Reads:  embedding shards of passages and queries, the index, qrels.parquet
    Writes: audit.json (see cort/retrieval/audits.py)
    """

    passages: tuple[str, ...] = required("ARROW", "all embedding shards")
    queries: tuple[str, ...] = required("ARROW", "embedding shards of the queries")


@options_class
class IvfPqAuditOptions(IvfPqOptions, AuditOptions):
    """Compare an IVF-PQ index with exact search: with --model by late interaction, without it of an encoder's vectors.

    Times do not include the encoding of queries.

    Reads:  a re-ranker folder, a token cache of the queries, token vectors of all passages, or embedding shards of
            both; the index, qrels.parquet
    Writes: audit.json (see cort/retrieval/audits.py)
    """


@dataclass(frozen=True)
class Truth:
    """Queries of an audit, their judgements, and their exact rankings of the largest depth."""

    options: AuditOptions
    queries: Sequence[Any]
    qrels: Qrels
    rankings: Sequence[Ranking]

    def values(self, rankings: Iterable[Ranking]) -> dict[str, float]:
        """Return the mean measures of rankings for these queries."""
        measures = sorted(self.options.measures)
        if not measures:
            return {}
        run = run_of([ranking._replace(scores=strictly_decreasing(ranking.scores)) for ranking in rankings])
        run = as_documents(run, self.options.aggregate)
        return means(evaluate_run(run, self.qrels, measures, self.options.relevance_level), measures)


def sample_queries(options: AuditOptions, ids: Sequence[str], source: Path) -> tuple[Integers, Qrels]:
    """Draw rows of judged queries, in order, or take all if there are fewer; return their judgements, too.

    Without judgements, any queries are taken.

    :raises InputError: if there are none; names `source`.
    """
    qrels = read_qrels(options.qrels, options.relevance_level) if options.qrels else {key: {} for key in ids}
    judged = np.flatnonzero([query_id in qrels for query_id in ids])
    if len(judged) == 0:
        raise input_error(source, "no query with judgements", "some", "name queries and qrels of one split")
    if options.sample is not None and options.sample < len(judged):
        judged = np.sort(np.random.default_rng(options.seed).choice(judged, options.sample, replace=False))
    return judged, {ids[row]: qrels[ids[row]] for row in judged.tolist()}


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


def measure(
    options: GraphAuditOptions | IvfPqAuditOptions,
    index: Graph | IvfPq,
    passages: int,
    truth: Truth,
    search_exactly: Callable[..., object],
    candidates: int | None = None,
) -> None:
    """Measure both searches, the index with each width at each depth that it allows, and write the audit.

    :param search_exactly: takes a query and a `depth`.
    """
    kind, searches = INDEXES[options.kind], list[Search]()
    best = {
        depth: [Ranking(one.query_id, one.doc_ids[:depth], one.scores[:depth]) for one in truth.rankings]
        for depth in options.depths
    }
    exact = []
    for depth, rankings in best.items():
        _, milliseconds = timed(partial(search_exactly, depth=depth), truth.queries[:TIMED_EXACTLY])
        exact.append(Exact(depth, truth.values(rankings), milliseconds))
    widths = sorted({*map(kind.typed, options.widths)})
    pairs = [(width, one) for width in widths for one in exact if kind.allows(width, one.depth)]
    for width, one in track(pairs, len(pairs), "searches of all queries"):
        results, milliseconds = timed(partial(index.search, width=width, depth=one.depth), truth.queries)
        both = list(zip(best[one.depth], results, strict=True))
        found = [Ranking(truly.query_id, index.ids(rows), scores) for truly, (scores, rows) in both]
        values = truth.values(found)
        recalls = [
            len({*own.doc_ids} & {*truly.doc_ids}) / len(truly.doc_ids)
            for own, (truly, _) in zip(found, both, strict=True)
        ]
        loss = {measure: value - values[measure] for measure, value in one.measures.items()}
        searches.append(Search(one.depth, loss, milliseconds, sum(recalls) / len(recalls), width))
        words = (kind.parameter, width, one.depth, searches[-1].recall, milliseconds.mean)
        log.info("%s %g, depth %d: recall %.4f, %.2f ms per query", *words)
    audit = Audit(
        encoder=options.encoder,
        exact=exact,
        index=options.kind,
        model=index.meta.model,
        parameter=kind.parameter,
        passages=passages,
        queries=len(truth.queries),
        searches=searches,
        split=options.split,
        storage_bytes=sum(index.meta.bytes.values()),
        vectors_per_token=candidates,
    )
    write_artifact(options.output, audit)


def _search_vectors(
    options: AuditOptions, passages: Sequence[Shard], shards: Sequence[Shard]
) -> tuple[Truth, Callable[..., object]]:
    """Draw queries from embedding shards and search exactly for them; return the results and the search."""
    import torch

    from cort.retrieval.exact import ExactIndex

    table = pa.concat_tables([shard.table for shard in shards])
    rows, qrels = sample_queries(options, table["id"].to_pylist(), shards[0].path)
    queries = [replace(shards[0], table=table.take(rows).combine_chunks())]
    torch.set_num_threads(options.threads)
    best = list(rank(ExactIndex(passages, threads=options.threads), batches_of(queries), options.depths[-1]))
    torch.set_num_threads(1)
    # Half, because other processes need memory, too.
    index = ExactIndex(passages, memory_mb=free_memory() >> 21, one_by_one=True)
    truth = Truth(options, list(all_vectors(queries)), qrels, best)
    return truth, lambda query, depth: index.search(query[None], depth)


def audit_graph(options: GraphAuditOptions) -> None:
    """Search exactly and with the index, and write how these differ."""
    graph = open_index(options.kind, options.index)
    passages = open_shards(options.passages, model=graph.meta.model)
    lengths = unit_lengths(PassageVectors(passages))
    count = np.count_nonzero(lengths) if options.kind == "onng" else len(lengths)
    if count != graph.meta.count:
        expected = f"{graph.meta.count} as in {options.index}"
        raise input_error(passages[0].path, f"{count} passages", expected, "build the index again")
    queries = open_queries(options.queries, graph.meta)
    measure(options, graph, int(count), *_search_vectors(options, passages, queries))


def _search_tokens(options: IvfPqAuditOptions, folder: str) -> tuple[IvfPq, Truth, Callable[..., object]]:
    """Open an index of token vectors, and encode queries and search exactly for them."""
    import torch

    from cort.models.transformer import choose_device
    from cort.retrieval.ivfpq import open_ivfpq
    from cort.retrieval.token_queries import TokenQueries

    encoder = TokenQueries(folder, options.passages, options.precision)
    tokens = Tokens(options.queries, fingerprint(folder))
    index = open_ivfpq(options.index, encoder.index, options.candidates)
    rows, qrels = sample_queries(options, tokens.ids.to_pylist(), tokens.path)
    with lease() as leased:
        encoder.place(choose_device(options.threads, leased))
        batches = list(encoder.encode(tokens, rows))
    encoder.index.device = "cpu"
    torch.set_num_threads(options.threads)
    best = list(rank(encoder.index, batches, options.depths[-1]))
    truth = Truth(options, [query for _, queries in batches for query in queries], qrels, best)
    return index, truth, lambda query, depth: encoder.index.search([query], depth)


def audit_ivfpq(options: IvfPqAuditOptions) -> None:
    """Search exactly and with the index, and write how these differ."""
    from cort.retrieval.exact import StoredVectors
    from cort.retrieval.ivfpq import one_thread_each, open_ivfpq, single_threaded

    options.check_candidates(options.depths[-1])
    if options.model is None:
        passages, queries = open_both(options.passages, [options.queries])
        index = open_ivfpq(options.index, StoredVectors(passages), options.candidates)
        truth, search_exactly = _search_vectors(options, passages, queries)
    else:
        index, truth, search_exactly = _search_tokens(options, options.model)
    with one_thread_each():
        single_threaded()
        measure(options, index, index.meta.passages, truth, search_exactly, options.candidates)


COMMANDS: Commands = {"graph": (GraphAuditOptions, audit_graph), "ivfpq": (IvfPqAuditOptions, audit_ivfpq)}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
