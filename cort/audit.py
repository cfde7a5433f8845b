"""Measure a graph index against exact search: what it finds of the exact results, how fast, and what that costs.

For each width of the search (epsilon of an ONNG, ef of an HNSW index) and each depth: which part of the exact first
results is found, the time of one query, and how much lower the experiment's measures are than those of the exact
ranking. Everything is timed one query at a time in one thread, with index and vectors in memory, after a round that
warms them. Of queries with judgements a sample is taken. An ef below the depth is left out, as hnswlib cannot have it.

Reads:  embedding shards of passages and queries, the folder that `onng` or `hnsw` wrote, qrels.parquet
Writes: audit.json (see cort/formats/audits.py)
Usage:  python -m cort.audit --passages 1-of-2.arrow 2-of-2.arrow --queries queries.arrow --qrels qrels.parquet
            --kind hnsw --index hnsw --widths 1000 2000 --depths 10 100 1000 --measures RR@10 R@1000 --sample 500
            --seed 42 --encoder cort --split dev --output audit.json
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort import hnsw, onng
from cort.evaluation.measures import Qrels, evaluate_run, means, parse_measures, qrels_by_query
from cort.formats import tables
from cort.formats.audits import PARAMETERS, Audit, Exact, Milliseconds, Search, write_audit
from cort.formats.embeddings import Shard, all_vectors, open_shards
from cort.formats.records import Ranking
from cort.formats.runs import Run, strictly_decreasing
from cort.retrieval.exact import ExactIndex
from cort.retrieval.graph import Found, Graph, Vectors, refuse_other_queries, to_ranking
from cort.retrieve import retrieve
from cort.system import cli
from cort.system.errors import input_error
from cort.system.progress import track

log = logging.getLogger(__name__)

OPEN: dict[str, Callable[[str], Graph]] = {"onng": onng.open_index, "hnsw": hnsw.open_index}
# Queries that are searched once before time is taken.
WARMING = 20
# Exact search is timed on so many queries at most: its time hardly depends on the query.
TIMED_EXACTLY = 50


@dataclass(frozen=True)
class Truth:
    """Queries, what exact search finds for them at the largest depth, and how good that is."""

    queries: Shard
    rankings: list[Ranking]
    qrels: Qrels
    measures: tuple[str, ...]
    relevance_level: int

    def values(self, rankings: Iterable[Ranking]) -> dict[str, float]:
        """Mean measures of rankings of these queries."""
        if not self.measures:
            return {}
        values = evaluate_run(_as_run(rankings), self.qrels, self.measures, self.relevance_level)
        return means(values, self.measures)

    def cut(self, depth: int) -> list[Ranking]:
        """Return what exact search finds at a depth."""
        return [Ranking(one.query_id, one.doc_ids[:depth], one.scores[:depth]) for one in self.rankings]


def find_truth(
    passages: Sequence[Shard],
    queries: Shard,
    depth: int,
    qrels: Qrels,
    measures: Sequence[str] = (),
    relevance_level: int = 1,
) -> Truth:
    """Search exactly, with as many threads as torch has."""
    import torch

    rankings = list(retrieve(ExactIndex(passages, threads=torch.get_num_threads()), [queries], depth))
    return Truth(queries, rankings, qrels, tuple(measures), relevance_level)


def audit_searches(graph: Graph, truth: Truth, widths: Sequence[float], depths: Sequence[int]) -> Iterator[Search]:
    """Measure an index with each width at each depth; an ef below the depth is left out."""
    needs = isinstance(graph, hnsw.Hnsw)
    pairs = [(width, depth) for width in widths for depth in depths if not needs or width >= depth]
    best = {depth: truth.cut(depth) for depth in depths}
    values_of_best = {depth: truth.values(best[depth]) for depth in depths}
    for width, depth in track(pairs, len(pairs), "searches of all queries"):

        def search(query: Vectors, width: float = width, depth: int = depth) -> Found:
            return graph.search(query, width, depth)

        results, milliseconds = timed(search, truth.queries)
        names = [one.query_id for one in truth.rankings]
        found = [to_ranking(name, graph.ids, one) for name, one in zip(names, results, strict=True)]
        values = truth.values(found)
        loss = {name: value - values[name] for name, value in values_of_best[depth].items()}
        yield Search(width, depth, recall(found, best[depth]), milliseconds, loss)


def audit_exact(passages: Sequence[Shard], truth: Truth, depths: Sequence[int]) -> Iterator[Exact]:
    """Time exact search in one thread, one query at a time, at each depth."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        index = ExactIndex(passages, memory_mb=sys.maxsize, one_by_one=True)
        few = replace(truth.queries, table=truth.queries.table.slice(0, TIMED_EXACTLY))
        for depth in depths:

            def search(query: Vectors, depth: int = depth) -> Found:
                ((scores, places),) = index.search(query[None], depth)
                return Found(places, scores.astype(np.float64))

            _, milliseconds = timed(search, few)
            yield Exact(depth, milliseconds, truth.values(truth.cut(depth)))
    finally:
        torch.set_num_threads(threads)


def recall(found: Iterable[Ranking], exact: Iterable[Ranking]) -> float:
    """Mean part of the exact results that was found."""
    shares = [
        len(set(some.doc_ids) & set(all_of.doc_ids)) / len(all_of.doc_ids)
        for some, all_of in zip(found, exact, strict=True)
    ]
    return sum(shares) / len(shares)


def timed(search: Callable[[Vectors], Found], queries: Shard) -> tuple[list[Found], Milliseconds]:
    """Search each query alone, after some that do not count; what was found, and the time of one."""
    vectors = all_vectors([queries])
    for query in vectors[:WARMING]:
        search(query)
    results, milliseconds = [], []
    for query in vectors:
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


def _as_run(rankings: Iterable[Ranking]) -> Run:
    """Make rankings into a run with the scores it has when it is written."""
    kept = [one for one in rankings if len(one.doc_ids)]
    offsets = np.array([0, *itertools.accumulate(len(one.doc_ids) for one in kept)], dtype=np.int64)
    scores: list[npt.NDArray[np.float32]] = [strictly_decreasing(one.scores) for one in kept]
    doc_ids = pa.array([doc_id for one in kept for doc_id in one.doc_ids], pa.string())
    joined = np.concatenate(scores) if scores else np.zeros(0)
    return Run([one.query_id for one in kept], offsets, doc_ids, joined.astype(np.float64))


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.audit", __doc__)
    parser.add_argument("--passages", required=True, nargs="+", metavar="ARROW", help="embedding shards, all of them")
    parser.add_argument("--queries", required=True, nargs="+", metavar="ARROW", help="embedding shards of the queries")
    parser.add_argument("--qrels", required=True, metavar="PARQUET")
    parser.add_argument("--kind", required=True, choices=list(PARAMETERS), help="of the index")
    parser.add_argument("--index", required=True, metavar="FOLDER", help="the folder that `onng` or `hnsw` wrote")
    parser.add_argument("--widths", required=True, nargs="+", type=float, metavar="W", help="epsilons or efs")
    parser.add_argument("--depths", nargs="+", type=int, default=[10, 100, 1000], metavar="N", help="results per query")
    parser.add_argument("--measures", nargs="*", default=[], metavar="NAME", help="whose loss is measured")
    parser.add_argument("--relevance-level", type=int, default=1, metavar="N", help="lowest grade that is relevant")
    parser.add_argument("--sample", type=int, metavar="N", help="queries to draw (default: all)")
    parser.add_argument("--seed", type=int, default=42, metavar="N", help="of the sample")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="not timed")
    parser.add_argument("--encoder", required=True, metavar="NAME", help="for the file")
    parser.add_argument("--split", required=True, metavar="NAME", help="for the file")
    parser.add_argument("--output", required=True, metavar="JSON")
    return parser


def check_widths(kind: str, widths: Sequence[float], depth: int) -> None:
    """Refuse widths that no search can have.

    :raises InputError: names the first one, or the depth that none of them reaches.
    """
    for width in widths:
        sound = -1 < width < float("inf") if kind == "onng" else width >= 1 and width == int(width)
        if not sound:
            expected = "epsilons above -1" if kind == "onng" else "whole numbers from 1"
            raise input_error("--widths", f"{width:g}", expected, "fix the value")
    if kind == "hnsw" and max(widths) < depth:
        raise input_error("--widths", f"{max(widths):g} at most", f"an ef of {depth} (the depth) or more", "add one")


def stage(args: argparse.Namespace) -> None:
    """Open all, search exactly, search the index, write."""
    import torch

    cli.check_depths(args.depths)
    check_widths(args.kind, args.widths, args.depths[-1])
    if args.sample is not None and args.sample < 1:
        raise input_error("--sample", str(args.sample), "1 or more", "give a positive number or leave it out")
    if args.measures:
        parse_measures(args.measures)
    graph = OPEN[args.kind](args.index)
    passages = open_shards(args.passages, model=graph.meta.model)
    count = sum(shard.table.num_rows for shard in passages)
    if count != graph.meta.count:
        found = f"{count} passages"
        raise input_error(passages[0].path, found, f"{graph.meta.count} as in {args.index}", "build the index again")
    shards = open_shards(args.queries, model=graph.meta.model)
    refuse_other_queries(shards, graph.meta, args.index)
    judged = qrels_by_query(tables.read_table(args.qrels, tables.QRELS), args.qrels)
    queries = sample_queries(shards, judged, args.sample, args.seed)
    asked = {query_id: judged[query_id] for query_id in queries.table["id"].to_pylist()}
    torch.set_num_threads(args.threads)
    truth = find_truth(passages, queries, args.depths[-1], asked, args.measures, args.relevance_level)
    exact = list(audit_exact(passages, truth, args.depths))
    widths = sorted({int(width) if args.kind == "hnsw" else width for width in args.widths})
    searches = list(audit_searches(graph, truth, widths, args.depths))
    parameter, model = PARAMETERS[args.kind], graph.meta.model
    audit = Audit(args.split, args.encoder, args.kind, parameter, model, count, len(asked), exact, searches)
    write_audit(args.output, audit)
    for one in searches:
        words = (parameter, one.width, one.depth, one.recall, one.milliseconds.mean)
        log.info("%s %g, depth %d: recall %.4f, %.2f ms per query", *words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
