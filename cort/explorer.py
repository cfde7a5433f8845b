"""Write the explorer of a split: a page that compares two systems query by query and needs no server.

The page lists all queries by the difference between two systems, and shows the two rankings of a query side by side.
Queries without judgements come last; without any judgements, queries are listed by the overlap of their top results.
The folder can be moved anywhere, and the page makes no network requests. Its data are scripts that load on demand:
values per system, and the results of a few queries each, with the texts of relevant passages and of `--texts` more.

Reads:  runs and per-query measures of all systems, the queries, the judgements and the passages (streamed)
Writes: a folder with index.html, explorer.js, explorer.css and data/*.js
Usage: python -m cort.explorer --dataset msmarco --split dev --systems bm25 cort --runs bm25.trec cort.trec
       --per-query bm25.parquet cort.parquet --queries queries.parquet --qrels qrels.parquet
       --passages passages.parquet --output explore/dev
"""

from __future__ import annotations

import logging
import sys

import numpy as np
import pyarrow as pa

from cort.config.collection import Aggregation
from cort.config.evaluation import Explorer
from cort.evaluation.measures import Qrels, read_qrels
from cort.evaluation.options import JudgedOptions
from cort.evaluation.values import Values, check_named, read_values, refuse_unlike
from cort.formats import tables
from cort.formats.ids import joined, positions
from cort.formats.runs import read_run
from cort.reporting.explorer.page import Experiment, Texts, write_page
from cort.reporting.explorer.rankings import combine, first_results, ranks_of, relevant_passages
from cort.retrieval.documents import documents_of, group_passages
from cort.runtime import cli
from cort.runtime.files import atomic_folder
from cort.runtime.sections import FolderPath, ParquetFile, Several, Text, TrecFile

log = logging.getLogger(__name__)


class Options(Explorer, Aggregation, JudgedOptions):
    """Options of this stage."""

    dataset: Text
    """Shown on the page."""
    systems: Several[Text]
    """Names of all systems, in the order of the files."""
    runs: Several[TrecFile]
    """A run per system."""
    per_query: Several[ParquetFile] = ()
    """Values of judged queries, a file per system; none for a split without judgements."""
    queries: ParquetFile
    passages: ParquetFile
    output: FolderPath


def _read_measured(options: Options) -> tuple[list[Values], Qrels]:
    """Return the values of each system on the judged queries, and the judgements; both are empty without judgements."""
    if not options.per_query:
        return [Values([], [], np.empty((0, 0))) for _ in options.systems], {}
    values = [read_values(path) for path in options.per_query]
    refuse_unlike(options.per_query, values)
    return values, read_qrels(options.qrels, options.relevance_level)


def _with_others(values: Values, query_ids: list[str]) -> Values:
    """Add queries without judgements, whose values are NaN."""
    others = np.full((len(query_ids) - len(values.query_ids), len(values.measures)), np.nan)
    return Values(query_ids, values.measures, np.concatenate([values.values, others]))


def stage(options: Options) -> None:
    """Read the runs one by one, and write the complete folder or nothing."""
    measures = {"--per-query": options.per_query} if options.per_query else {}
    check_named(options.systems, {"--runs": options.runs, **measures})
    measured, qrels = _read_measured(options)
    texts_of_queries = tables.read_queries(options.queries)
    # The measured ones first.
    query_ids, level = [*dict.fromkeys([*measured[0].query_ids, *texts_of_queries])], options.relevance_level
    qrels = {query_id: qrels.get(query_id, {}) for query_id in query_ids}
    relevant = relevant_passages(qrels, query_ids, level)
    how = options.aggregate
    tops, ranks = [], []
    for path in options.runs:
        documents = group_passages(read_run(path), how)
        tops.append(first_results(documents, query_ids, options.results))
        ranks.append(ranks_of(documents.run, qrels, query_ids, relevant))
    if how != "none":
        doc_ids = joined(tables.read_column(options.passages, tables.PASSAGES, "doc_id"))
        rows = positions(pa.array(relevant.doc_ids, "string"), documents_of(doc_ids, how))
        first = (
            doc_ids[row].as_py() if row >= 0 else name
            for row, name in zip(rows.tolist(), relevant.doc_ids, strict=True)
        )
        relevant = relevant._replace(doc_ids=[*first])
    rankings = combine(tops, relevant, ranks, how)
    experiment = Experiment(
        dataset=options.dataset,
        split=options.split,
        systems=options.systems,
        values=[_with_others(values, query_ids) for values in measured],
        texts=[texts_of_queries[query_id] for query_id in query_ids],
        qrels=qrels,
        relevance_level=level,
        rankings=rankings,
        aggregate=how,
    )
    with atomic_folder(options.output) as folder:
        size = write_page(folder, experiment, Texts(options.passages, rankings.ids), options.texts)
    log.info("%d queries, %d systems, %.1f MB", len(query_ids), len(options.systems), size / 1e6)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
