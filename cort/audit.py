"""Compare an approximate index with exact search: recall, time per query, and loss of effectiveness.

For each search width (epsilon of an ONNG, ef of an HNSW index, probes of an IVF-PQ index) and each depth: the share of
exact results that is found, the time per query, and how far the experiment's measures fall below those of the exact
ranking. Queries are timed one at a time in one thread, with index and vectors in memory, after a warm-up. They are a
sample of the judged queries. An ef below the depth is skipped, because hnswlib refuses it.

Usage: python -m cort.audit graph --passages 1-of-2.arrow 2-of-2.arrow --queries queries.arrow --qrels qrels.parquet
           --kind hnsw --index hnsw --widths 1000 2000 --depths 10 100 1000 --measures RR@10 R@1000 --sample 500
           --seed 42 --encoder cort --split dev --output audit.json
       python -m cort.audit tokens --model rerankers/late/best --queries queries.dev.arrow
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
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import pyarrow as pa

from cort.evaluation.measures import Qrels, evaluate_run, means, read_qrels
from cort.evaluation.names import parse_measures
from cort.formats.artifacts import write_artifact
from cort.formats.embeddings import all_vectors, count_rows, open_shards
from cort.formats.precisions import Precision, precision_of_queries
from cort.formats.records import Integers, Ranking
from cort.formats.runs import run_of, strictly_decreasing
from cort.formats.token_embeddings import open_token_shards
from cort.formats.tokens import Tokens
from cort.models.tokenizer import fingerprint
from cort.retrieval.audits import Audit, Exact, Milliseconds, Search
from cort.retrieval.documents import as_documents
from cort.retrieval.graph import refuse_other_queries
from cort.retrieval.graph_search import Found, open_index, to_ranking
from cort.retrieval.graphs import INDEXES, IndexKind
from cort.retrieval.options import AuditOptions, GraphOptions, IvfPqOptions
from cort.system import cli
from cort.system.commands import Commands, main_of_commands
from cort.system.devices import lease
from cort.system.errors import input_error
from cort.system.options import options_class, required
from cort.system.progress import track

if TYPE_CHECKING:
    from cort.models.late_interaction import LateInteraction
    from cort.retrieval.max_similarity import QueryVectors
    from cort.retrieval.vectors import Rows, Vectors

log = logging.getLogger(__name__)

Query = TypeVar("Query")
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
class TokenAuditOptions(IvfPqOptions, AuditOptions):
    """Compare an IVF-PQ index of token vectors with exact search by late interaction.

    Times do not include the encoding of queries.

    Reads:  a re-ranker folder, a token cache of the queries, token vectors of all passages, their index, qrels.parquet
    Writes: audit.json (see cort/retrieval/audits.py)
    """


@dataclass(frozen=True)
class Truth(Generic[Query]):
    """Queries, their exact rankings by depth, and what is needed to evaluate rankings."""

    queries: Sequence[Query]
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
    options: AuditOptions, queries: Sequence[Query], rankings: Sequence[Ranking], qrels: Qrels | None
) -> Truth[Query]:
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


def _check_options(options: AuditOptions, kind: IndexKind) -> list[float]:
    """Check the options, and return the widths in ascending order."""
    cli.check_depths(options.depths)
    widths = sorted(set(kind.check("--widths", options.widths, options.depths[-1])))
    if options.measures:
        parse_measures(options.measures)
        if not options.qrels:
            raise input_error("--measures", "no --qrels", "judgements to evaluate with", "add these or drop --measures")
    return widths


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


def audit_searches(
    kind: IndexKind,
    search: Callable[..., Result],
    name: Callable[[str, Result], Ranking],
    truth: Truth[Query],
    widths: Sequence[float],
) -> Iterator[Search]:
    """Measure an index with each width at each depth that it allows.

    :param search: takes a query, `width` and `depth`.
    :param name: turns a query_id and the result of its search into a ranking.
    """
    pairs = [(width, depth) for width in widths for depth in truth.rankings if kind.allows(width, depth)]
    exact_values = {depth: truth.values(rankings) for depth, rankings in truth.rankings.items()}
    for width, depth in track(pairs, len(pairs), "searches of all queries"):
        results, milliseconds = timed(partial(search, width=width, depth=depth), truth.queries)
        exact = truth.rankings[depth]
        rankings = [name(best.query_id, result) for best, result in zip(exact, results, strict=True)]
        values = truth.values(rankings)
        loss = {measure: value - values[measure] for measure, value in exact_values[depth].items()}
        recalls = [
            len({*ranking.doc_ids} & {*best.doc_ids}) / len(best.doc_ids)
            for ranking, best in zip(rankings, exact, strict=True)
        ]
        yield Search(depth, loss, milliseconds, sum(recalls) / len(recalls), width)


def audit_exact(search: Callable[..., object], truth: Truth[Query]) -> Iterator[Exact]:
    """Time exact search at each depth, one query at a time."""
    for depth, rankings in truth.rankings.items():
        _, milliseconds = timed(partial(search, depth=depth), truth.queries[:TIMED_EXACTLY])
        yield Exact(depth, truth.values(rankings), milliseconds)


def timed(search: Callable[[Query], Result], queries: Sequence[Query]) -> tuple[list[Result], Milliseconds]:
    """Search for one query at a time, after a warm-up; return the results, and the time per query."""
    for query in queries[:WARMING]:
        search(query)
    results, milliseconds = [], []
    for query in queries:
        started = time.perf_counter()
        results.append(search(query))
        milliseconds.append(1000 * (time.perf_counter() - started))
    return results, Milliseconds(statistics.fmean(milliseconds), statistics.median(milliseconds))


def _write(audit: Audit, path: str) -> None:
    write_artifact(path, audit)
    for search in audit.searches:
        words = (audit.parameter, search.width, search.depth, search.recall, search.milliseconds.mean)
        log.info("%s %g, depth %d: recall %.4f, %.2f ms per query", *words)


def audit_graph(options: GraphAuditOptions) -> None:
    """Search exactly and with the index, and write how these differ."""
    import torch

    from cort.retrieval.exact import ExactIndex, retrieve

    kind = INDEXES[options.kind]
    widths = _check_options(options, kind)
    graph = open_index(options.kind, options.index)
    model = graph.meta.model
    passages = open_shards(options.passages, model=model)
    count = count_rows(passages)
    if count != graph.meta.count:
        expected = f"{graph.meta.count} as in {options.index}"
        raise input_error(passages[0].path, f"{count} passages", expected, "build the index again")
    shards = open_shards(options.queries, model=model)
    refuse_other_queries(shards, graph.meta, options.index)
    qrels = read_qrels(options.qrels, options.relevance_level) if options.qrels else None
    table = pa.concat_tables([shard.table for shard in shards])
    rows = sample_judged(table["id"].to_pylist(), qrels, options.sample, options.seed, shards[0].path)
    queries = replace(shards[0], table=table.take(rows).combine_chunks())
    torch.set_num_threads(options.threads)
    best = list(retrieve(ExactIndex(passages, threads=options.threads), [queries], options.depths[-1]))
    truth = make_truth(options, list(all_vectors([queries])), best, qrels)
    torch.set_num_threads(1)
    index = ExactIndex(passages, memory_mb=sys.maxsize, one_by_one=True)
    exact = list(audit_exact(lambda query, depth: index.search(query[None], depth), truth))

    def name(query_id: str, found: Found) -> Ranking:
        return to_ranking(query_id, graph.ids, found)

    audit = Audit(
        encoder=options.encoder,
        exact=exact,
        index=options.kind,
        model=model,
        parameter=kind.parameter,
        passages=count,
        queries=len(rows),
        searches=list(audit_searches(kind, graph.search, name, truth, widths)),
        split=options.split,
        storage_bytes=sum(graph.meta.bytes.values()),
    )
    _write(audit, options.output)


def _encode(
    options: TokenAuditOptions, model: LateInteraction, precision: Precision, qrels: Qrels | None
) -> tuple[list[str], list[QueryVectors]]:
    """Draw judged queries and encode them; return their ids and vectors."""
    from cort.models.transformer import choose_device
    from cort.retrieval.max_similarity import encoded

    queries = Tokens(options.queries, fingerprint(options.model))
    ids = queries.ids.to_pylist()
    rows = sample_judged(ids, qrels, options.sample, options.seed, queries.path)
    with lease() as leased:
        device = choose_device(options.threads, leased)
        model.place(device, precision)
        texts = model.texts(queries, "query")
        parts = encoded(lambda rows: texts.vectors(model, rows, device), queries, rows)
        return [ids[row] for row in rows], [query for _, vectors in parts for query in vectors]


def audit_tokens(options: TokenAuditOptions) -> None:
    """Search exactly and with the index, and write how these differ."""
    import torch

    from cort.models.late_interaction import load_late_interaction, origin_of
    from cort.retrieval.ivfpq import one_thread_each, open_ivfpq, single_threaded
    from cort.retrieval.max_similarity import TokenIndex

    kind = INDEXES[options.kind]
    widths = _check_options(options, kind)
    model = load_late_interaction(options.model, options.precision)
    shards = open_token_shards(options.passages, origin_of(options.model, model))
    passages = TokenIndex(shards, model.similarity)
    index = open_ivfpq(options.index, shards, passages)
    qrels = read_qrels(options.qrels, options.relevance_level) if options.qrels else None
    precision = precision_of_queries(shards[0].precision, options.precision)
    ids, queries = _encode(options, model, precision, qrels)

    def search(query: QueryVectors, *, width: float, depth: int) -> tuple[Vectors, Rows]:
        return index.search(query, int(width), options.candidates, depth)

    def name(query_id: str, found: tuple[Vectors, Rows]) -> Ranking:
        return Ranking(query_id, passages.ids(found[1]), found[0].astype(np.float64))

    torch.set_num_threads(options.threads)
    best = list(map(name, ids, passages.search(queries, options.depths[-1])))
    truth = make_truth(options, queries, best, qrels)
    with one_thread_each():
        single_threaded()
        exact = list(audit_exact(lambda query, depth: passages.search([query], depth), truth))
        searches = list(audit_searches(kind, search, name, truth, widths))
    audit = Audit(
        encoder=options.encoder,
        exact=exact,
        index=options.kind,
        model=index.meta.model,
        parameter=kind.parameter,
        passages=len(passages),
        queries=len(ids),
        searches=searches,
        split=options.split,
        storage_bytes=sum(index.meta.bytes.values()),
        vectors_per_token=options.candidates,
    )
    _write(audit, options.output)


COMMANDS: Commands = {"graph": (GraphAuditOptions, audit_graph), "tokens": (TokenAuditOptions, audit_tokens)}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
