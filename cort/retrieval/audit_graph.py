"""Compare a graph index with exact search over the same vectors.

Reads:  embedding shards of passages and queries, the index, qrels.parquet
Writes: audit.json (see cort/retrieval/audits.py)
"""

from __future__ import annotations

import numpy as np

from cort.formats.shards import open_shards
from cort.retrieval.auditing import exact_search, measure
from cort.retrieval.graph_search import open_index, open_queries, unit_lengths
from cort.retrieval.search_options import AuditOptions, GraphOptions
from cort.retrieval.vectors import PassageVectors
from cort.runtime.errors import input_error
from cort.runtime.sections import ArrowFile, Several


class Options(GraphOptions, AuditOptions):
    """Options of this stage."""

    passages: Several[ArrowFile]
    """All embedding shards."""
    queries: Several[ArrowFile]
    """Embedding shards of the queries."""


def stage(options: Options) -> None:
    """Search exactly and with the index, and write how these differ."""
    graph = open_index(options.kind, options.index)
    passages = open_shards(options.passages, model=graph.meta.model)
    lengths = unit_lengths(PassageVectors(passages))
    count = np.count_nonzero(lengths) if options.kind == "onng" else len(lengths)
    if count != graph.meta.count:
        expected = f"{graph.meta.count} as in {options.index}"
        raise input_error(passages[0].path, f"{count} passages", expected, "build the index again")
    queries = open_queries(options.queries, graph.meta)
    measure(options, options.kind, graph, int(count), *exact_search(options, passages, queries))
