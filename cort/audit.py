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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

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
from cort.retrieval.indexes import INDEXES, IndexKind
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
#: exact search for a query to a `depth`
SearchExactly: TypeAlias = Callable[..., object]

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
    """Queries, their exact rankings by depth, and what is needed to evaluate rankings."""

    queries: Sequence[Any]
    rankings: Mapping[int, list[Ranking]]
    qrels: Qrels
    measures: Sequence[str]
    relevance_level: int
    aggregate: str = "none"

    def values(self, rankings: Iterable[Ranking]) -> dict[str, float]:
        """Return the mean measures of rankings for these queries."""
        if not self.measures:
            return {}
        run = run_of([ranking._replace(scores=strictly_decreasing(ranking.scores)) for ranking in rankings])
        run = as_documents(run, self.aggregate)
        return means(evaluate_run(run, self.qrels, self.measures, self.relevance_level), self.measures)


def make_truth(
    options: AuditOptions, queries: Sequence[Any], rankings: Sequence[Ranking], qrels: Qrels | None
) -> Truth:
    """Truncate exact rankings, of the largest depth, to each depth.

    :param qrels: None if there are no judgements.
    """
    cut = {
        n: [Ranking(ranking.query_id, ranking.doc_ids[:n], ranking.scores[:n]) for ranking in rankings]
        for n in options.depths
    }
    judged = {ranking.query_id: (qrels or {}).get(ranking.query_id, {}) for ranking in rankings}
    measures = sorted(options.measures)
    return Truth(queries, cut, judged, measures, options.relevance_level, options.aggregate)


def sample_judged(ids: Sequence[str], qrels: Qrels | None, number: int | None, seed: int, source: Path) -> Integers:
    """Draw `number` rows of judged queries, in order, or take all if there are fewer.

    :param qrels: None to take any queries.
    :raises InputError: if there are none; names `source`.
    """
    judged = np.flatnonzero([qrels is None or query_id in qrels for query_id in ids])
    if len(judged) == 0:
        raise input_error(source, "no query with judgements", "some", "name queries and qrels of one split")
    if number is not None and number < len(judged):
        judged = np.sort(np.random.default_rng(seed).choice(judged, number, replace=False))
    return judged


def audit_searches(kind: IndexKind, index: Graph | IvfPq, truth: Truth, widths: Sequence[float]) -> Iterator[Search]:
    """Measure an index with each width at each depth that it allows."""
    pairs = [(width, depth) for width in widths for depth in truth.rankings if kind.allows(width, depth)]
    exact_values = {depth: truth.values(rankings) for depth, rankings in truth.rankings.items()}
    for width, depth in track(pairs, len(pairs), "searches of all queries"):
        results, milliseconds = timed(partial(index.search, width=width, depth=depth), truth.queries)
        both = list(zip(truth.rankings[depth], results, strict=True))
        rankings = [Ranking(best.query_id, index.ids(rows), scores) for best, (scores, rows) in both]
        values = truth.values(rankings)
        loss = {measure: value - values[measure] for measure, value in exact_values[depth].items()}
        recalls = [
            len({*ranking.doc_ids} & {*best.doc_ids}) / len(best.doc_ids)
            for ranking, (best, _) in zip(rankings, both, strict=True)
        ]
        yield Search(depth, loss, milliseconds, sum(recalls) / len(recalls), width)


def audit_exact(search: Callable[..., object], truth: Truth) -> Iterator[Exact]:
    """Time exact search at each depth, one query at a time."""
    for depth, rankings in truth.rankings.items():
        _, milliseconds = timed(partial(search, depth=depth), truth.queries[:TIMED_EXACTLY])
        yield Exact(depth, truth.values(rankings), milliseconds)


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


def _measure(
    options: GraphAuditOptions | IvfPqAuditOptions,
    index: Graph | IvfPq,
    passages: int,
    truth: Truth,
    search_exactly: SearchExactly,
    candidates: int | None = None,
) -> None:
    """Measure both searches and write the audit."""
    kind = INDEXES[options.kind]
    widths = sorted({*map(kind.typed, options.widths)})
    audit = Audit(
        encoder=options.encoder,
        exact=list(audit_exact(search_exactly, truth)),
        index=options.kind,
        model=index.meta.model,
        parameter=kind.parameter,
        passages=passages,
        queries=len(truth.queries),
        searches=list(audit_searches(kind, index, truth, widths)),
        split=options.split,
        storage_bytes=sum(index.meta.bytes.values()),
        vectors_per_token=candidates,
    )
    write_artifact(options.output, audit)
    for search in audit.searches:
        words = (audit.parameter, search.width, search.depth, search.recall, search.milliseconds.mean)
        log.info("%s %g, depth %d: recall %.4f, %.2f ms per query", *words)


def _search_vectors(
    options: AuditOptions, passages: Sequence[Shard], shards: Sequence[Shard]
) -> tuple[Truth, SearchExactly]:
    """Draw judged queries from embedding shards and search exactly for them; return the results and the search."""
    import torch

    from cort.retrieval.exact import ExactIndex

    qrels = read_qrels(options.qrels, options.relevance_level) if options.qrels else None
    table = pa.concat_tables([shard.table for shard in shards])
    rows = sample_judged(table["id"].to_pylist(), qrels, options.sample, options.seed, shards[0].path)
    queries = [replace(shards[0], table=table.take(rows).combine_chunks())]
    torch.set_num_threads(options.threads)
    best = list(rank(ExactIndex(passages, threads=options.threads), batches_of(queries), options.depths[-1]))
    truth = make_truth(options, list(all_vectors(queries)), best, qrels)
    torch.set_num_threads(1)
    # Half, because other processes need memory, too.
    index = ExactIndex(passages, memory_mb=free_memory() >> 21, one_by_one=True)
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
    _measure(options, graph, int(count), *_search_vectors(options, passages, queries))


def _search_tokens(options: IvfPqAuditOptions, folder: str) -> tuple[IvfPq, Truth, SearchExactly]:
    """Open an index of token vectors, and encode judged queries and search exactly for them."""
    import torch

    from cort.models.transformer import choose_device
    from cort.retrieval.ivfpq import open_ivfpq
    from cort.retrieval.token_queries import TokenQueries

    encoder = TokenQueries(folder, options.passages, options.precision)
    passages = encoder.index
    index = open_ivfpq(options.index, passages, options.candidates)
    qrels = read_qrels(options.qrels, options.relevance_level) if options.qrels else None
    tokens = Tokens(options.queries, fingerprint(folder))
    rows = sample_judged(tokens.ids.to_pylist(), qrels, options.sample, options.seed, tokens.path)
    with lease() as leased:
        encoder.place(choose_device(options.threads, leased))
        batches = list(encoder.encode(tokens, rows))
    passages.device = "cpu"
    torch.set_num_threads(options.threads)
    best = list(rank(passages, batches, options.depths[-1]))
    truth = make_truth(options, [query for _, queries in batches for query in queries], best, qrels)
    return index, truth, lambda query, depth: passages.search([query], depth)


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
        _measure(options, index, index.meta.passages, truth, search_exactly, options.candidates)


COMMANDS: Commands = {"graph": (GraphAuditOptions, audit_graph), "ivfpq": (IvfPqAuditOptions, audit_ivfpq)}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
