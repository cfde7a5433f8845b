"""Measure a graph index against exact search: what it finds of the exact results, how fast, and what that costs.

For each width of the search (epsilon of an ONNG, ef of an HNSW index) and each depth: which part of the exact first
results is found, the time of one query, and how much lower the experiment's measures are than those of the exact
ranking. Everything is timed one query at a time in one thread, with index and vectors in memory, after a round that
warms them. Of queries with judgements a sample is taken. An ef below the depth is left out, as hnswlib cannot have it.

Reads:  embedding shards of passages and queries, the folder that `onng` or `hnsw` wrote, qrels.parquet
Writes: audit.json (see cort/retrieval/audits.py)
Usage:  python -m cort.audit --passages 1-of-2.arrow 2-of-2.arrow --queries queries.arrow --qrels qrels.parquet
            --kind hnsw --index hnsw --widths 1000 2000 --depths 10 100 1000 --measures RR@10 R@1000 --sample 500
            --seed 42 --encoder cort --split dev --output audit.json
"""

from __future__ import annotations

import logging
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cort.evaluation.judged import JudgedRanks
from cort.evaluation.measures import Qrels, evaluate_ranks, means, parse_measures, read_qrels
from cort.formats.artifacts import write_artifact
from cort.formats.embeddings import Shard, all_vectors, open_shards
from cort.formats.records import Ranking
from cort.retrieval.audits import Audit, Exact, Milliseconds, Search
from cort.retrieval.graph import Vectors, refuse_other_queries
from cort.retrieval.graph_search import Found, Graph, open_index, to_ranking
from cort.retrieval.graphs import GRAPHS, GraphKind
from cort.retrieval.options import GraphOptions, check_positive
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, required, thread_count
from cort.system.progress import track

if TYPE_CHECKING:
    from cort.retrieval.exact import ExactIndex

log = logging.getLogger(__name__)

# Queries that are searched once before time is taken.
WARMING = 20
# Exact search is timed on so many queries at most: its time hardly depends on the query.
TIMED_EXACTLY = 50


@dataclass(frozen=True)
class Truth:
    """Queries, what exact search finds for them at each depth, and how good that is."""

    queries: Vectors
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


def audit_searches(kind: GraphKind, graph: Graph, truth: Truth, widths: Sequence[float]) -> Iterator[Search]:
    """Measure an index with each width at each depth; an ef below the depth is left out."""
    pairs = [(width, depth) for width in widths for depth in truth.rankings if kind.allows(width, depth)]
    values_of_best = {depth: truth.values(rankings) for depth, rankings in truth.rankings.items()}
    for width, depth in track(pairs, len(pairs), "searches of all queries"):
        results, milliseconds = timed(partial(graph.search, width=width, depth=depth), truth.queries)
        best = truth.rankings[depth]
        found = [to_ranking(exact.query_id, graph.ids, one) for exact, one in zip(best, results, strict=True)]
        values = truth.values(found)
        loss = {name: value - values[name] for name, value in values_of_best[depth].items()}
        both = zip(found, best, strict=True)
        shares = [len({*some.doc_ids} & {*exact.doc_ids}) / len(exact.doc_ids) for some, exact in both]
        yield Search(depth, loss, milliseconds, sum(shares) / len(shares), width)


def audit_exact(index: ExactIndex, truth: Truth) -> Iterator[Exact]:
    """Time exact search, one query at a time, at each depth."""

    def search(query: Vectors, depth: int) -> Found:
        ((scores, places),) = index.search(query[None], depth)
        return Found(places, scores.astype(np.float64))

    for depth, rankings in truth.rankings.items():
        _, milliseconds = timed(partial(search, depth=depth), truth.queries[:TIMED_EXACTLY])
        yield Exact(depth, truth.values(rankings), milliseconds)


def timed(search: Callable[[Vectors], Found], queries: Vectors) -> tuple[list[Found], Milliseconds]:
    """Search each query alone, after some that do not count; what was found, and the time of one."""
    for query in queries[:WARMING]:
        search(query)
    results, milliseconds = [], []
    for query in queries:
        started = time.perf_counter()
        results.append(search(query))
        milliseconds.append(1000 * (time.perf_counter() - started))
    return results, Milliseconds(statistics.fmean(milliseconds), statistics.median(milliseconds))


def sample_queries(shards: Sequence[Shard], qrels: Qrels, number: int | None, seed: int) -> Shard:
    """Draw queries that have judgements, and keep their order; all of them where there are no more than `number`.

    :raises InputError: there are none.
    """
    table = pa.concat_tables([shard.table for shard in shards])
    judged = np.flatnonzero([query_id in qrels for query_id in table["id"].to_pylist()])
    if len(judged) == 0:
        raise input_error(shards[0].path, "no query with judgements", "some", "name queries and qrels of one split")
    if number is not None and number < len(judged):
        judged = np.sort(np.random.default_rng(seed).choice(judged, number, replace=False))
    return replace(shards[0], table=table.take(pa.array(judged)).combine_chunks())


@dataclass(frozen=True, kw_only=True)
class Options(GraphOptions):
    """Options of this stage."""

    passages: tuple[str, ...] = required("ARROW", "embedding shards, all of them")
    queries: tuple[str, ...] = required("ARROW", "embedding shards of the queries")
    qrels: str = required("PARQUET")
    widths: tuple[float, ...] = required("W", "epsilons or efs")
    depths: tuple[int, ...] = optional((10, 100, 1000), "results per query", "N")
    measures: tuple[str, ...] = optional((), "whose loss is measured", "NAME")
    relevance_level: int = optional(1, "lowest grade that is relevant", "N")
    sample: int | None = optional(None, "queries to draw (default: all)", "N")
    seed: int = optional(42, "of the sample", "N")
    threads: int = thread_count(len(os.sched_getaffinity(0)), "not timed")
    encoder: str = required("NAME", "for the file")
    split: str = required("NAME", "for the file")
    output: str = required("JSON")


def stage(options: Options) -> None:
    """Open all, search exactly, search the index, write."""
    import torch

    from cort.retrieval.exact import ExactIndex, retrieve

    depths, kind = options.depths, GRAPHS[options.kind]
    cli.check_depths(depths)
    widths = sorted(set(kind.check("--widths", options.widths, depths[-1])))
    if options.sample is not None:
        check_positive(options, "sample")
    if options.measures:
        parse_measures(options.measures)
    graph = open_index(options.kind, options.index)
    model = graph.meta.model
    passages = open_shards(options.passages, model=model)
    count = sum(shard.table.num_rows for shard in passages)
    if count != graph.meta.count:
        expected = f"{graph.meta.count} as in {options.index}"
        raise input_error(passages[0].path, f"{count} passages", expected, "build the index again")
    shards = open_shards(options.queries, model=model)
    refuse_other_queries(shards, graph.meta, options.index)
    judged = read_qrels(options.qrels, options.relevance_level)
    queries = sample_queries(shards, judged, options.sample, options.seed)
    asked = {query_id: judged[query_id] for query_id in queries.table["id"].to_pylist()}
    torch.set_num_threads(options.threads)
    deepest = list(retrieve(ExactIndex(passages, threads=options.threads), [queries], depths[-1]))
    rankings = {n: [Ranking(one.query_id, one.doc_ids[:n], one.scores[:n]) for one in deepest] for n in depths}
    truth = Truth(all_vectors([queries]), rankings, asked, sorted(options.measures), options.relevance_level)
    torch.set_num_threads(1)
    index = ExactIndex(passages, memory_mb=sys.maxsize, one_by_one=True)
    exact = list(audit_exact(index, truth))
    searches = list(audit_searches(kind, graph, truth, widths))
    found = Audit(
        encoder=options.encoder,
        exact=exact,
        index=options.kind,
        model=model,
        parameter=kind.parameter,
        passages=count,
        queries=len(asked),
        searches=searches,
        split=options.split,
    )
    write_artifact(options.output, found)
    for one in searches:
        words = (kind.parameter, one.width, one.depth, one.recall, one.milliseconds.mean)
        log.info("%s %g, depth %d: recall %.4f, %.2f ms per query", *words)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
