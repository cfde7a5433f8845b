"""Measure re-ranking against the number of candidates (CoRT paper, section 4.3.2 and Figure 2).

At depth d a ranking consists of the first d candidates, re-ranked, and of nothing else. The paper calls a measure
saturated where doubling the candidates adds less than 0.5 % (footnote 4). That is read as relative to the measure: the
paper writes "p.p." where it means percentage points. Saturation is the smallest depth for which it holds, whatever
happens at larger ones.

Reads:  run.trec (candidates), scores.parquet (re-ranker's), qrels.parquet
Writes: depths.json {"system", "split", "relevance_level", "queries": judged queries, "depths": [d, ...],
        "measures": {measure: [value, ...]}, "saturation": {measure: d or null}}
Usage:  python -m cort.depths --candidates run.trec --scores scores.parquet --qrels qrels.parquet --depths 1 2 4 8 16
            --measures RR@10 nDCG@20 --system NAME --split dev --output depths.json
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cort.evaluation.measures import Qrels, evaluate_run, means, parse_measures, qrels_by_query
from cort.formats import tables
from cort.formats.ids import sort_keys
from cort.formats.runs import Run, read_run
from cort.retrieval.rerank import Scores, candidate_scores
from cort.system import cli
from cort.system.files import write_text
from cort.system.progress import track

log = logging.getLogger(__name__)

SATURATED_BELOW = 1.005


def saturation(depths: Sequence[int], values: Sequence[float]) -> int | None:
    """Smallest depth d with value(2d) < 1.005 value(d); None if no pair (d, 2d) of `depths` is such."""
    value = dict(zip(depths, values, strict=True))
    return next((d for d in sorted(value) if 2 * d in value and value[2 * d] < value[d] * SATURATED_BELOW), None)


def first_candidates(run: Run, scores: Scores, depth: int) -> Run:
    """Keep only the first `depth` candidates of every query, ordered by (-re-ranker's score, doc_id).

    :param scores: the re-ranker's, one per result of `run`.
    :return: a run whose scores are minus the rank, so that no order of ties matters.
    """
    sizes = np.diff(run.offsets)
    kept = np.flatnonzero(run.ranks() <= depth)
    queries = run.query_numbers()[kept]
    doc_ids = run.doc_ids.take(pa.array(kept))
    by = np.lexsort((sort_keys(doc_ids), -scores[kept], queries))
    offsets = np.concatenate([[0], np.cumsum(np.minimum(sizes, depth))]).astype(np.int64)
    ranks = np.arange(len(kept)) - np.repeat(offsets[:-1], np.diff(offsets)) + 1
    return Run(run.query_ids, offsets, doc_ids.take(pa.array(by)), -ranks.astype(np.float64))


def measure_depths(
    run: Run, scores: Scores, qrels: Qrels, depths: Sequence[int], measures: Sequence[str], relevance_level: int = 1
) -> dict[str, list[float]]:
    """Mean of every measure over the judged queries, at every depth: measure -> one value per depth."""
    columns: dict[str, list[float]] = {measure: [] for measure in measures}
    for depth in track(depths, len(depths), "depths"):
        values = evaluate_run(first_candidates(run, scores, depth), qrels, measures, relevance_level)
        for measure, value in means(values, measures).items():
            columns[measure].append(value)
    return columns


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.depths", __doc__)
    parser.add_argument("--candidates", required=True, metavar="TREC", help="the run that is re-ranked")
    parser.add_argument("--scores", required=True, metavar="PARQUET", help="query_id, doc_id, score")
    parser.add_argument("--qrels", required=True, metavar="PARQUET", help="judgements of the split")
    parser.add_argument("--depths", required=True, nargs="+", type=int, metavar="N", help="numbers of candidates")
    parser.add_argument("--measures", required=True, nargs="+", metavar="NAME", help="RR@10, nDCG@20, R@1000, AP, ...")
    parser.add_argument("--relevance-level", type=int, default=1, metavar="GRADE", help="lowest relevant grade")
    parser.add_argument("--system", required=True, metavar="NAME", help="written into the output")
    parser.add_argument("--split", required=True, metavar="NAME", help="written into the output")
    parser.add_argument("--output", required=True, metavar="JSON")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Read, re-rank and measure at every depth, write."""
    parse_measures(args.measures)
    cli.check_depths(args.depths)
    run = read_run(args.candidates)
    table = tables.read_table(args.scores, tables.SCORES)
    scores = candidate_scores(run, table, max(args.depths), args.scores)
    qrels = qrels_by_query(tables.read_table(args.qrels, tables.QRELS), args.qrels)
    columns = measure_depths(run, scores, qrels, args.depths, args.measures, args.relevance_level)
    summary = {
        "system": args.system,
        "split": args.split,
        "relevance_level": args.relevance_level,
        "queries": len(qrels),
        "depths": args.depths,
        "measures": columns,
        "saturation": {measure: saturation(args.depths, values) for measure, values in columns.items()},
    }
    write_text(args.output, json.dumps(summary, indent=2) + "\n")
    log.info("%d depths of %d judged queries; saturation %s", len(args.depths), len(qrels), summary["saturation"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
