"""BM25 retrieval over an index of Lucene, with the scores of Anserini's own runs.

Lucene orders by (-score, doc_id); scores are rounded to four decimals, and the resulting ties broken by lowering
scores by 0.000001 each. The run is ordered by these scores, then by doc_id, which differs from Lucene's order
only where two scores above 32 agree to four decimals. A query without terms after analysis has no results.

Reads:  the index, the queries (parquet)
Writes: run.trec, in the order of the queries
"""

from __future__ import annotations

import logging

from cort.config.lexical import Parameters as Bm25
from cort.formats import tables
from cort.formats.cleaning import FORMS
from cort.retrieval.lucene import Parameters, parameters_of_folds, read_parameters
from cort.retrieval.lucene_runs import LuceneRunOptions, search_lucene
from cort.runtime.sections import JsonFile, Maybe, same_as

log = logging.getLogger(__name__)


class Options(LuceneRunOptions):
    """Options of this stage."""

    k1: float = same_as(Bm25, "k1")
    b: float = same_as(Bm25, "b")
    parameters: Maybe[JsonFile] = None
    """K1 and b from `tune bm25`, instead of --k1 and --b."""
    folded: bool = False
    """With what was tuned for the fold of each query."""


def stage(options: Options) -> None:
    """Search for all queries and write a run."""
    parameters = read_parameters(options.parameters) if options.parameters else Parameters(options.k1, options.b)
    own = parameters_of_folds(options.parameters) if options.parameters and options.folded else {}
    columns = tables.read_table(options.queries, tables.QUERIES).columns
    query_ids, texts = (column.to_pylist() for column in columns)
    log.info("%d queries, k1 %g, b %g", len(texts), parameters.k1, parameters.b)
    by_query = {query_id: one.similarity for query_id, one in own.items()}
    search_lucene(options, FORMS, zip(query_ids, texts, strict=True), len(texts), parameters.similarity, by_query)
