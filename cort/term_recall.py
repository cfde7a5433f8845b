"""Make the targets of a model that weighs terms: of each judged passage, how many of its queries have which words.

Reads judgements, queries and passages (parquet); writes doc_id, terms and their recall, as parquet. Passages that are
relevant to no query are not there, and words that no query has are none of a passage's terms.

Usage: python -m cort.term_recall --qrels qrels.train.parquet --queries queries.train.parquet
              --passages passages.parquet --output term_recall.parquet
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, required
from cort.training.term_recall import term_recall

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    qrels: str = required("PARQUET")
    queries: str = required("PARQUET")
    passages: str = required("PARQUET", "the collection")
    relevance_level: int = optional(1, "lowest grade that counts as relevant")
    output: str = required("PARQUET")


def queries_by_passage(options: Options) -> dict[str, list[str]]:
    """Collect the texts of the queries that each passage is relevant to, in the order of the judgements."""
    table = tables.read_table(options.qrels, tables.QRELS)
    table = table.filter(pc.greater_equal(table["relevance"], options.relevance_level))
    texts = tables.read_queries(options.queries)
    found: dict[str, list[str]] = {}
    for query_id, doc_id in zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True):
        if query_id in texts:
            found.setdefault(doc_id, []).append(texts[query_id])
    if not found:
        raise input_error(options.qrels, "no relevant passage of these queries", "some", "lower relevance_level")
    return found


def stage(options: Options) -> None:
    """Collect, count, write."""
    queries = queries_by_passage(options)
    judged = pa.array(list(queries))
    rows = []
    for batch in tables.iter_batches(options.passages, tables.PASSAGES):
        kept = batch.filter(pc.is_in(batch["doc_id"], value_set=judged))
        for doc_id, text in zip(kept["doc_id"].to_pylist(), kept["text"].to_pylist(), strict=True):
            recall = term_recall(text, queries[doc_id])
            rows.append({"doc_id": doc_id, "terms": list(recall), "recall": list(recall.values())})
    tables.write_table(options.output, pa.Table.from_pylist(rows, tables.TERM_RECALL))
    log.info("%d passages, %d of their words in queries", len(rows), sum(len(row["terms"]) for row in rows))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
