"""Compare a graph index with exact search over the same vectors.

Reads:  embedding shards of passages and queries, the index, qrels.parquet
Writes: audit.json (see cort/retrieval/audits.py)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cort.retrieval.auditing import Scores, audit_index, exact_search
from cort.retrieval.graph_search import open_index, open_queries, unit_lengths
from cort.retrieval.index_meta import refuse_others
from cort.retrieval.rankings import Results, Vectors
from cort.retrieval.search_options import AuditOptions, GraphOptions
from cort.retrieval.vectors import open_vectors
from cort.runtime.sections import ArrowFile, Several


class Options(GraphOptions, AuditOptions):
    """Options of this stage."""

    passages: Several[ArrowFile]
    """All embedding shards."""


def stage(options: Options) -> None:
    """Search exactly and with the index, and write how these differ."""
    graph = open_index(options.kind, options.index)
    vectors = open_vectors(options.passages)
    refuse_others(Path(options.index), graph.meta, vectors)
    # An index may lack those whose vector is zero.
    nodes = np.arange(len(vectors)) if graph.meta.vectors == len(vectors) else np.flatnonzero(unit_lengths(vectors))
    exact, batches, qrels = exact_search(options, vectors, open_queries(options.queries, graph.meta))

    def exact_of(query: Vectors, found: Results) -> Scores:
        """Score what was found: distances of ONNG are not exact."""
        scores, _ = exact.best_of(query, nodes[found[1]], options.depths[-1])
        return scores

    audit_index(options, options.kind, graph, len(nodes), exact, batches, qrels, exact_of=exact_of)
