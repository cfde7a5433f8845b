"""Ask a re-ranker behind an API for the scores of candidates, in the form of `cort.score`.

Reads:  runs, queries and passages; kept scores
Writes: scores.parquet
Usage:  python -m cort.score_served --endpoint rerank-v3.5 --candidates bm25.trec --depths 100 --queries queries.parquet
            --passages passages.parquet --cache endpoint_cache/scores.sqlite --output scores.parquet
"""

from __future__ import annotations

import logging
import sys

import pyarrow as pa

from cort.config.collection import TextLimits
from cort.config.fields import Cutoff
from cort.config.models import ServedScoring
from cort.formats import tables
from cort.formats.runs import read_run
from cort.models.served_scores import score
from cort.retrieval.candidates import check_depths, distinct_pairs
from cort.runtime import cli
from cort.runtime.errors import input_error, shorten
from cort.runtime.sections import AnyFile, ParquetFile, Several, Text, TrecFile, same_as

log = logging.getLogger(__name__)


class Options(TextLimits):
    """Options of this stage."""

    endpoint: Text = same_as(ServedScoring, "endpoint")
    candidates: Several[TrecFile]
    """Runs whose results to score."""
    depths: Several[Cutoff]
    """Candidates per query, of each run."""
    queries: ParquetFile
    passages: ParquetFile
    cache: AnyFile
    """File of answers."""
    output: ParquetFile


def stage(options: Options) -> None:
    """Pool the candidates, ask, and write by query and document id."""
    check_depths(options.candidates, options.depths)
    table = distinct_pairs(map(read_run, options.candidates), options.depths)
    query_ids, doc_ids = (column.to_pylist() for column in table.columns)
    queries = tables.read_queries(options.queries)
    if missing := next((query_id for query_id in query_ids if query_id not in queries), None):
        raise input_error(options.queries, f"no query {shorten(missing)}", "every query of the runs", "name its file")
    passages = tables.select_texts(options.passages, tables.PASSAGES, doc_ids)
    pairs = [(queries[query_id], passages[doc_id]) for query_id, doc_id in zip(query_ids, doc_ids, strict=True)]
    scores = score(pairs, options.endpoint, options, options.cache)
    tables.write_table(options.output, table.append_column("score", pa.array(scores)).cast(tables.SCORES))
    log.info("%d pairs scored by %s", len(pairs), options.endpoint)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
