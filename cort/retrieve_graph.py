"""Approximate retrieval from a graph index, ONNG or HNSW; a wider search finds more and takes longer.

The width is `epsilon` of an ONNG (CoRT paper, section 4.5.3): a search follows edges to passages within (1 + epsilon)
times the distance of the last result so far. Of an HNSW index it is `ef`: a search keeps the best `ef` passages found
so far, so ef must be the depth at least. Scores are inner products, those of exact retrieval but for rounding.
With --audit, the width is the smallest one there with at least the --recall of exact retrieval at the audit's depth.

Reads:  embedding shards of the queries, the folder that `onng` or `hnsw` wrote; with --audit, what `audit` found
Writes: run.trec
Usage:  python -m cort.retrieve_graph --kind onng --index onng --width 0.1 --queries queries.arrow --depth 1000
            --threads 4 --tag NAME --output run.trec
"""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass

from cort.formats.embeddings import open_shards
from cort.formats.runs import write_run
from cort.retrieval.audits import audited_width
from cort.retrieval.graph import refuse_other_queries
from cort.retrieval.graph_search import open_index, rank
from cort.retrieval.graphs import GRAPHS
from cort.retrieval.options import GraphOptions, RunOptions, check_positive, refuse_without_effect
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, required, thread_count
from cort.system.progress import track

log = logging.getLogger(__name__)

DEFAULTS = ", ".join(f"{kind.parameter} {kind.default:g}" for kind in GRAPHS.values())


@dataclass(frozen=True, kw_only=True)
class Options(GraphOptions, RunOptions):
    """Options of this stage."""

    queries: tuple[str, ...] = required("ARROW", "embedding shards of the queries")
    width: float | None = optional(None, f"of the search (default: {DEFAULTS})", "W")
    audit: str | None = optional(None, "takes the place of --width: what `audit` wrote", "JSON")
    recall: float = optional(0.99, "with --audit: of exact retrieval", "R")
    threads: int = thread_count()


def stage(options: Options) -> None:
    """Open index and queries, search, write."""
    check_positive(options, "depth")
    if not 0 < options.recall <= 1:
        raise input_error("--recall", f"{options.recall:g}", "more than 0, at most 1", "fix the option")
    refuse_without_effect(options, *(("beside --audit", "width") if options.audit else ("without --audit", "recall")))
    kind = GRAPHS[options.kind]
    index = open_index(options.kind, options.index)
    width = kind.default if options.width is None else options.width
    if options.audit is not None:
        width = audited_width(options.audit, options.kind, index.meta.model, options.recall)
    (width,) = kind.check("--width", [width], options.depth)
    queries = open_shards(options.queries, model=index.meta.model)
    refuse_other_queries(queries, index.meta, options.index)
    asked = sum(shard.table.num_rows for shard in queries)
    started = time.perf_counter()
    rankings = track(rank(index, queries, width, options.depth, options.threads), asked, "queries")
    lines = write_run(options.output, rankings, options.tag)
    mean = 1000 * (time.perf_counter() - started) / max(asked, 1)
    words = (asked, lines, mean, kind.parameter, width)
    log.info("%d queries, %d results, mean %.2f ms per query at %s %g", *words)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
