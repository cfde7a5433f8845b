"""Retrieval by the impacts of tokens (SPLADE) over an index of Lucene.

The score of a passage is the inner product of its impacts and the query's, an integer. The ranking is exact.

Reads:  the index, the impacts of the queries (parquet)
Writes: run.trec, in the order of the queries
"""

from __future__ import annotations

import logging

from cort.formats import tables
from cort.retrieval.anserini import IMPACTS
from cort.retrieval.impacts import as_text
from cort.retrieval.lucene import BY_IMPACTS
from cort.retrieval.lucene_runs import LuceneRunOptions, search_lucene

log = logging.getLogger(__name__)


class Options(LuceneRunOptions):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Search for all queries and write a run."""
    query_ids, *vectors = (column.to_pylist() for column in tables.read_table(options.queries, tables.IMPACTS).columns)
    log.info("%.1f terms per query", sum(map(len, vectors[0])) / max(len(query_ids), 1))
    # One after the other, as a text repeats each token hundreds of times.
    queries = ((query_id, as_text(*vector)) for query_id, *vector in zip(query_ids, *vectors, strict=True))
    search_lucene(options, [IMPACTS], queries, len(query_ids), BY_IMPACTS)
