"""Measure one run against the judgements of one split.

The mean is over every judged query; one without results counts 0 (trec_eval -c).

Reads:  run.trec, queries.parquet, qrels.parquet
Writes: measures.json {"system", "split", "relevance_level", "queries": judged queries, "mean": {measure: value}},
        per_query.parquet (query_id, measure, value), recall.csv (depth, recall: R@k for every k of the longest ranking)
Usage:  python -m cort.evaluate --run run.trec --queries queries.parquet --qrels qrels.parquet --measures RR@10 nDCG@20
            --system cort --split dev --output measures.json --output-per-query per_query.parquet
            --output-recall recall.csv
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.evaluation.measures import (
    evaluate_ranks,
    judged_ranks,
    means,
    parse_measures,
    qrels_by_query,
    recall_by_depth,
)
from cort.formats import tables
from cort.formats.ids import unknown_ids
from cort.formats.runs import Run, read_run
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import write_text

log = logging.getLogger(__name__)


def per_query_table(values: Mapping[str, Mapping[str, float]]) -> pa.Table:
    """Flatten query_id -> measure -> value into `tables.PER_QUERY`, in the order given."""
    rows = [(query_id, measure, value) for query_id, row in values.items() for measure, value in row.items()]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return pa.table(columns, schema=tables.PER_QUERY)


def refuse_unknown_queries(run: Run, queries: pa.Table, run_path: str | Path, queries_path: str | Path) -> None:
    """Check that the run ranks for no query outside the query file.

    :raises InputError: names the first such query; a run of another split or data set would otherwise just measure 0.
    """
    unknown = unknown_ids(pa.array(run.query_ids, pa.string()), queries["query_id"])
    if len(unknown):
        raise input_error(
            run_path,
            f"query {shorten(unknown[0].as_py())} ({len(unknown)} such queries)",
            f"queries of {queries_path} only",
            "name the run and the queries of the same split",
        )


def recall_text(recall: Sequence[float]) -> str:
    """Write recall at depths 1, 2, ... as CSV, with every digit."""
    return "depth,recall\n" + "".join(f"{depth},{value!r}\n" for depth, value in enumerate(recall, start=1))


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.evaluate", __doc__)
    parser.add_argument("--run", required=True, metavar="TREC", help="the run to measure")
    parser.add_argument("--queries", required=True, metavar="PARQUET", help="all queries of the split")
    parser.add_argument("--qrels", required=True, metavar="PARQUET", help="judgements of the split")
    parser.add_argument("--measures", required=True, nargs="+", metavar="NAME", help="RR@10, nDCG@20, R@1000, AP, ...")
    parser.add_argument("--relevance-level", type=int, default=1, metavar="GRADE", help="lowest relevant grade")
    parser.add_argument("--system", required=True, metavar="NAME", help="written into the output")
    parser.add_argument("--split", required=True, metavar="NAME", help="written into the output")
    parser.add_argument("--output", required=True, metavar="JSON", help="means")
    parser.add_argument("--output-per-query", required=True, metavar="PARQUET", help="values of every query")
    parser.add_argument("--output-recall", required=True, metavar="CSV", help="mean recall at every depth")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Read, measure, write all outputs."""
    parse_measures(args.measures)
    queries = tables.read_table(args.queries, tables.QUERIES)
    qrels = qrels_by_query(tables.read_table(args.qrels, tables.QRELS), args.qrels)
    # Ranks are found by scores and ids, wherever a document stands.
    run = read_run(args.run, order_ties=False)
    refuse_unknown_queries(run, queries, args.run, args.queries)
    ranks = judged_ranks(run, qrels)
    values = evaluate_ranks(ranks, qrels, args.measures, args.relevance_level)
    longest = int(np.diff(run.offsets).max(initial=0))
    recall = recall_by_depth(ranks, qrels, longest, args.relevance_level)
    summary = {
        "system": args.system,
        "split": args.split,
        "relevance_level": args.relevance_level,
        "queries": len(qrels),
        "mean": means(values, args.measures),
    }
    tables.write_table(args.output_per_query, per_query_table(values))
    write_text(args.output_recall, recall_text(recall))
    write_text(args.output, json.dumps(summary, indent=2) + "\n")
    found = sum(query_id in qrels for query_id in run.query_ids)
    log.info("%d judged queries, %d of them with results; %s", len(qrels), found, _line(summary["mean"]))


def _line(mean_values: Mapping[str, float]) -> str:
    return ", ".join(f"{measure} {value:.4f}" for measure, value in mean_values.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
