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
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cort.evaluation.measures import Qrels
from cort.formats.artifacts import write_artifact
from cort.formats.embeddings import Shard, all_vectors, open_shards
from cort.formats.records import Ranking
from cort.retrieval.auditing import (
    Truth,
    audit_exact,
    audit_searches,
    check_options,
    cut,
    read_judgements,
    sample_judged,
)
from cort.retrieval.audits import Audit
from cort.retrieval.graph import refuse_other_queries
from cort.retrieval.graph_search import Found, open_index, to_ranking
from cort.retrieval.graphs import GRAPHS
from cort.retrieval.options import AuditOptions, GraphOptions
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import required

log = logging.getLogger(__name__)


def sample_queries(shards: Sequence[Shard], qrels: Qrels | None, number: int | None, seed: int) -> Shard:
    """Draw queries that have judgements, and keep their order; all of them where there are no more than `number`.

    :raises InputError: there are none.
    """
    table = pa.concat_tables([shard.table for shard in shards])
    judged = sample_judged(table["id"].to_pylist(), qrels, number, seed, str(shards[0].path))
    return replace(shards[0], table=table.take(pa.array(judged)).combine_chunks())


@dataclass(frozen=True, kw_only=True)
class Options(GraphOptions, AuditOptions):
    """Options of this stage."""

    passages: tuple[str, ...] = required("ARROW", "embedding shards, all of them")
    queries: tuple[str, ...] = required("ARROW", "embedding shards of the queries")


def stage(options: Options) -> None:
    """Open all, search exactly, search the index, write."""
    import torch

    from cort.retrieval.exact import ExactIndex, retrieve

    depths, kind = options.depths, GRAPHS[options.kind]
    widths = check_options(options, kind)
    graph = open_index(options.kind, options.index)
    model = graph.meta.model
    passages = open_shards(options.passages, model=model)
    count = sum(shard.table.num_rows for shard in passages)
    if count != graph.meta.count:
        expected = f"{graph.meta.count} as in {options.index}"
        raise input_error(passages[0].path, f"{count} passages", expected, "build the index again")
    shards = open_shards(options.queries, model=model)
    refuse_other_queries(shards, graph.meta, options.index)
    judged = read_judgements(options)
    queries = sample_queries(shards, judged, options.sample, options.seed)
    asked = {query_id: (judged or {}).get(query_id, {}) for query_id in queries.table["id"].to_pylist()}
    torch.set_num_threads(options.threads)
    deepest = list(retrieve(ExactIndex(passages, threads=options.threads), [queries], depths[-1]))
    vectors, measures = all_vectors([queries]), sorted(options.measures)
    truth = Truth(list(vectors), cut(deepest, depths), asked, measures, options.relevance_level)
    torch.set_num_threads(1)
    index = ExactIndex(passages, memory_mb=sys.maxsize, one_by_one=True)
    exact = list(audit_exact(lambda query, depth: index.search(query[None], depth), truth))

    def name(query_id: str, found: Found) -> Ranking:
        return to_ranking(query_id, graph.ids, found)

    searches = list(audit_searches(kind, graph.search, name, truth, widths))
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
        storage_bytes=sum(graph.meta.bytes.values()),
    )
    write_artifact(options.output, found)
    for one in searches:
        words = (kind.parameter, one.width, one.depth, one.recall, one.milliseconds.mean)
        log.info("%s %g, depth %d: recall %.4f, %.2f ms per query", *words)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
