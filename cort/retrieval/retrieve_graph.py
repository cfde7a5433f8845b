"""Approximate retrieval through a graph index, ONNG or HNSW.

The width of an ONNG is epsilon (CoRT paper, section 4.5.3): a search follows edges to passages within (1 + epsilon)
times the distance of the last result so far. The width of an HNSW index is ef: a search keeps the best `ef`
passages found so far, so ef must be at least the depth. Scores are the inner products of exact retrieval; with
ONNG, up to rounding.

Reads:  embedding shards of the queries, the index; with --audit, what `audit` wrote
Writes: run.trec
"""

from __future__ import annotations

from cort.retrieval.graph_search import SEARCHES, open_index, open_queries
from cort.retrieval.indexes import INDEXES
from cort.retrieval.search_options import GraphOptions
from cort.retrieval.search_runs import search_vectors
from cort.retrieval.width import WidthOptions, choose_width


class Options(GraphOptions, WidthOptions):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Search the index and write a run."""
    graph = open_index(options.kind, options.index)
    width = choose_width(options, options.kind, graph.meta.model)
    queries = open_queries(options.queries, graph.meta)
    how = f"at {INDEXES[options.kind].parameter} {width:g}"
    search = SEARCHES[options.kind](graph, width, options.threads)
    search_vectors(options, search, queries, how, graph.meta.vectors)
