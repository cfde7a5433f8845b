"""Evaluate one run with the judgements of one split.

Means are over all judged queries. A query without results counts as 0 (trec_eval -c), and so does one without a
relevant passage, except in nDCG, which uses the grades themselves. The output also counts these queries, those with
fewer results than the largest cutoff, and the unjudged passages in the top 10, with measures of rankings without these
(section 4.2.2 of the CoRT paper).

Reads:  run.trec, queries.parquet, qrels.parquet
Writes: measures.json (`cort.evaluation.measures.Measures`), per_query.parquet (query_id, measure, value), recall.csv
        (depth, recall: R@k for every k up to the length of the longest ranking)
Usage:  python -m cort.evaluate --run run.trec --queries queries.parquet --qrels qrels.parquet --measures RR@10 nDCG@20
            --system cort --split dev --output measures.json --output-per-query per_query.parquet
            --output-recall recall.csv
"""

import logging
import sys

import numpy as np
import pyarrow as pa

from cort.evaluation import measures
from cort.evaluation.names import parse_measures
from cort.evaluation.options import MeasureOptions
from cort.evaluation.values import write_recall, write_values
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.ids import is_in, unknown_ids
from cort.formats.runs import read_run
from cort.runtime import cli
from cort.runtime.errors import input_error, shorten
from cort.runtime.sections import CsvFile, ParquetFile, TrecFile

log = logging.getLogger(__name__)

#: of TREC's Deep Learning tracks, of whose passages with grade 1 none answers the query
GRADES = {0, 1, 2, 3}


class Options(MeasureOptions):
    """Options of this stage."""

    run: TrecFile
    """The run to evaluate."""
    queries: ParquetFile
    """All queries of the split."""
    output_per_query: ParquetFile
    """Values of every query."""
    output_recall: CsvFile
    """Mean recall at every depth."""


def stage(options: Options) -> None:
    """Evaluate the run, and write means, values per query and recall by depth."""
    parsed = parse_measures(options.measures)
    level = options.relevance_level
    queries = tables.read_table(options.queries, tables.QUERIES)
    qrels = measures.read_qrels(options.qrels, level)
    if level == 1 and {grade for judged in qrels.values() for grade in judged.values()} == GRADES:
        log.warning(
            "%s has the grades 0 to 3, as TREC's Deep Learning tracks (2019: `test` of BEIR's MS MARCO), whose "
            "grade 1 answers nothing; there, binary measures (RR, AP, P, R) have `relevance_level: 2`",
            options.split,
        )
    # Measures use scores and ids only, so the order of ties in the file does not matter.
    run = read_run(options.run, order_ties=False)
    # Otherwise a run of another split or dataset would silently score 0.
    unknown = unknown_ids(pa.array(run.query_ids, "string"), queries["query_id"])
    if len(unknown):
        found = f"query {shorten(unknown[0].as_py())} ({len(unknown)} such queries)"
        fix = "name the run and the queries of the same split"
        raise input_error(options.run, found, f"queries of {options.queries} only", fix)
    if not is_in(pa.array(qrels, "string"), queries["query_id"]).true_count:
        fix = "name the queries and the judgements of the same split"
        raise input_error(options.qrels, f"no query of {options.queries}", "at least one", fix)
    answered = sum(query_id in qrels for query_id in run.query_ids)
    ranks = measures.judged_ranks(run, qrels)
    values = measures.evaluate_ranks(ranks, qrels, options.measures, level)
    mean = measures.means(values, options.measures)
    longest = int(np.diff(run.offsets).max(initial=1))
    write_values(options.output_per_query, values)
    write_recall(options.output_recall, measures.recall_by_depth(ranks, qrels, longest, level))
    names, queries_judged = (options.system, options.split), len(qrels)
    cutoff = max((measure.cut or 0 for measure in parsed), default=0)
    short = sum(ranking.results < cutoff for ranking in ranks.values())
    counts = queries_judged - answered, measures.without_relevant(qrels, level), short
    judged = measures.describe_judged(ranks, qrels, options.measures, level)
    write_artifact(options.output, measures.Measures(*names, level, queries_judged, {**mean}, *counts, judged))
    line = ", ".join(f"{measure} {value:.4f}" for measure, value in mean.items())
    log.info("%d judged queries, %d of them with results; %s", queries_judged, answered, line)
    kinds = "no result", f"no passage of grade {level} or higher", f"fewer than {cutoff} results"
    for count, kind in zip(counts, kinds, strict=True):
        if count:
            message = "%d of %d queries have %s; the means are over all %d"
            log.warning(message, count, queries_judged, kind, queries_judged)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
