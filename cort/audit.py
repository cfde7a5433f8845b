"""Compare an approximate index with exact search: recall and time per query.

For each search width (epsilon of an ONNG, ef of an HNSW index, probes of an IVF-PQ index) and each depth: the share of
exact results that is found, and the time per query. Queries are timed one at a time in one thread, after a warm-up,
with the vectors of exact search in memory if they fit. An ef below the depth is skipped, because hnswlib refuses it.

Usage: python -m cort.audit graph --passages 1-of-2.arrow 2-of-2.arrow --queries queries.arrow --kind hnsw --index hnsw
           --widths 1000 2000 --depths 10 100 1000 --sample 500 --seed 42 --encoder cort --split dev --output audit.json
       python -m cort.audit ivfpq --model rerankers/late/best --queries queries.dev.arrow
           --passages 1-of-2.arrow 2-of-2.arrow --index ivfpq --widths 8 16 32 --candidates 1024
           --depths 10 100 1000 --sample 500 --seed 42 --encoder late --split dev --output audit.json
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from cort.formats.artifacts import write_artifact
from cort.formats.shards import Shard, Tokens, open_both, open_shards
from cort.models.tokenizer import fingerprint
from cort.retrieval.audits import Audit, Exact, Milliseconds, Search
from cort.retrieval.graph_search import Graph, open_index, open_queries, unit_lengths
from cort.retrieval.indexes import INDEXES
from cort.retrieval.options import AuditOptions, GraphOptions, IvfPqOptions
from cort.retrieval.rankings import Index, Rows, batches_of, rank
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
#: ids and vectors of some queries, or their token vectors
Batch = tuple[Sequence[str], Any]
# Queries that are searched for before timing.
WARMING = 20
# Exact search is timed on at most this many queries, because its time hardly depends on the query.
TIMED_EXACTLY = 50


@options_class
class GraphAuditOptions(GraphOptions, AuditOptions):
    """Compare a graph index with exact search over the same vectors.

    Reads:  embedding shards of passages and queries, the index
    Writes: audit.json (see cort/retrieval/audits.py)
    """

    passages: tuple[str, ...] = required("ARROW", "all embedding shards")
    queries: tuple[str, ...] = required("ARROW", "embedding shards of the queries")


@options_class
class IvfPqAuditOptions(IvfPqOptions, AuditOptions):
    """Compare an IVF-PQ index with exact search: with --model by late interaction, without it of an encoder's vectors.

    Times do not include the encoding of queries.

    Reads:  a re-ranker folder, a token cache of the queries, token vectors of all passages, or embedding shards of
            both; the index
    Writes: audit.json (see cort/retrieval/audits.py)
    """


def drawn(options: AuditOptions, count: int, source: str | Path) -> Rows:
    """Draw rows of queries, in order, or take all if there are fewer.

    :raises InputError: if there are none; names `source`.
    """
    if not count:
        raise input_error(source, "no query", "some", "name the queries of another split")
    if options.sample is None or options.sample >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(options.seed).choice(count, options.sample, replace=False))


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
    exact: Index,
    batches: Sequence[Batch],
    candidates: int | None = None,
) -> None:
    """Measure both searches, the index with each width at each depth that it allows, and write the audit."""
    import torch

    kind, searches = INDEXES[options.kind], list[Search]()
    torch.set_num_threads(options.threads)
    best = [ranking.doc_ids for ranking in rank(exact, batches, options.depths[-1])]
    torch.set_num_threads(1)
    queries = [vectors[row : row + 1] for _, vectors in batches for row in range(len(vectors))]
    times = {depth: timed(partial(exact.search, depth=depth), queries[:TIMED_EXACTLY])[1] for depth in options.depths}
    widths = sorted({*map(kind.typed, options.widths)})
    pairs = [(width, depth) for width in widths for depth in options.depths if kind.allows(width, depth)]
    for width, depth in track(pairs, len(pairs), "searches of all queries"):
        search = partial(index.search, width=width, depth=depth)
        results, milliseconds = timed(search, [query[0] for query in queries])
        found = [{*index.ids(rows)} for _, rows in results]
        recalls = [
            len(own.intersection(truly[:depth])) / min(depth, len(truly))
            for own, truly in zip(found, best, strict=True)
        ]
        searches.append(Search(depth, milliseconds, statistics.fmean(recalls), width))
        words = (kind.parameter, width, depth, searches[-1].recall, milliseconds.mean)
        log.info("%s %g, depth %d: recall %.4f, %.2f ms per query", *words)
    audit = Audit(
        encoder=options.encoder,
        exact=[Exact(depth, milliseconds) for depth, milliseconds in times.items()],
        index=options.kind,
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


def _exactly(options: AuditOptions, passages: Sequence[Shard], queries: Sequence[Shard]) -> tuple[Index, list[Batch]]:
    """Return exact search, and queries drawn from embedding shards."""
    from cort.retrieval.exact import ExactIndex

    table = pa.concat_tables([shard.table for shard in queries])
    rows = drawn(options, len(table), queries[0].path)
    # Half, because other processes need memory, too.
    index = ExactIndex(passages, memory_mb=free_memory() >> 21, one_by_one=True)
    return index, [*batches_of([replace(queries[0], table=table.take(rows).combine_chunks())])]


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
    measure(options, graph, int(count), *_exactly(options, passages, queries))


def audit_ivfpq(options: IvfPqAuditOptions) -> None:
    """Search exactly and with the index, and write how these differ."""
    from cort.models.transformer import choose_device
    from cort.retrieval.exact import StoredVectors
    from cort.retrieval.ivfpq import one_thread_each, open_ivfpq
    from cort.retrieval.token_queries import TokenQueries

    options.check_candidates(options.depths[-1])
    exact: Index
    if options.model is None:
        passages, queries = open_both(options.passages, [options.queries])
        index = open_ivfpq(options.index, StoredVectors(passages), options.candidates)
        exact, batches = _exactly(options, passages, queries)
    else:
        encoder = TokenQueries(options.model, options.passages, options.precision)
        tokens = Tokens(options.queries, fingerprint(options.model))
        index = open_ivfpq(options.index, encoder.index, options.candidates)
        with lease() as leased:
            encoder.place(choose_device(options.threads, leased))
            batches = [*encoder.encode(tokens, drawn(options, len(tokens), tokens.path))]
        encoder.index.device = "cpu"
        exact = encoder.index
    with one_thread_each():
        measure(options, index, index.meta.passages, exact, batches, options.candidates)


COMMANDS: Commands = {"graph": (GraphAuditOptions, audit_graph), "ivfpq": (IvfPqAuditOptions, audit_ivfpq)}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
