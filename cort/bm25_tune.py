"""Tune k1 and b of BM25 by grid search on training queries, as Anserini's authors did for MS MARCO.

Several samples of the judged training queries; the best pair of each sample, and the mean of these pairs. With k1 from
.6 to 1.2, b from .5 to .9 and 5 samples of 10,000 queries of MS MARCO that gave k1 .82 and b .68, the baseline of
the CoRT paper. Among equally good pairs the lowest k1, then the lowest b, is taken.

Reads: the index, training queries and qrels (parquet). Writes: JSON with k1, b and the whole grid.
Usage: python -m cort.bm25_tune --index lucene --queries queries.train.parquet --qrels qrels.train.parquet
       --k1 0.6 0.8 1.0 --b 0.5 0.7 0.9 --samples 5 --sample-size 10000 --measure R@1000 --depth 1000 --seed 42
       --threads 2 --memory-mb 2000 --output tuned.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cort.bm25 import Parameters, Searcher, make_grid, open_searcher
from cort.evaluation.measures import Qrels, evaluate_run, mean, parse_measures, qrels_by_query
from cort.formats import tables
from cort.formats.runs import Run, strictly_decreasing
from cort.retrieval import anserini
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import write_text
from cort.system.progress import track

# Each pair of the grid has its own file: 35 pairs take 0.6 GB of disk for a while.
RESULTS_PER_COMMAND = 500_000
DECIMALS = 4

Values = dict[Parameters, dict[str, float]]

log = logging.getLogger(__name__)


def draw_samples(query_ids: Sequence[str], samples: int, size: int, seed: int) -> list[list[str]]:
    """Draw `samples` times `size` different ids, or all of them if there are fewer."""
    generator = random.Random(seed)  # noqa: S311 - a sample, not a secret
    return [generator.sample(query_ids, min(size, len(query_ids))) for _ in range(samples)]


def measure_grid(
    searcher: Searcher,
    queries: Mapping[str, str],
    qrels: Qrels,
    grid: Sequence[Parameters],
    measure: str,
    level: int,
    folder: Path,
) -> Values:
    """Search `queries` (id -> text) with each pair; pair -> query_id -> value of `measure`."""
    values: Values = {pair: {} for pair in grid}
    query_ids = list(queries)
    size = max(1, RESULTS_PER_COMMAND // searcher.depth)
    starts = range(0, len(query_ids), size)
    for start in track(starts, len(starts), "commands"):
        chunk = query_ids[start : start + size]
        # Runs of a search name queries by position.
        numbered = {f"{position:09d}": qrels[query_id] for position, query_id in enumerate(chunk)}
        for pair, run in searcher.search([queries[query_id] for query_id in chunk], grid, folder):
            answers = evaluate_run(as_written(run), numbered, [measure], level)
            values[pair].update(zip(chunk, (answer[measure] for answer in answers.values()), strict=True))
    return values


def as_written(run: Run) -> Run:
    """Make the scores of each ranking strictly decreasing, so that ties are measured in the order `bm25` writes."""
    parts = [strictly_decreasing(run.scores[start:end]) for start, end in itertools.pairwise(run.offsets)]
    return replace(run, scores=np.concatenate([np.zeros(0), *parts]))


def summarise(values: Values, samples: Sequence[Sequence[str]], measure: str) -> dict[str, Any]:
    """Average the samples' best pairs; beside the mean, each best pair and the value of every pair on every sample."""
    grid, best = [], []
    for number, sample in enumerate(samples):
        scores = {pair: mean(by_query[query_id] for query_id in sample) for pair, by_query in values.items()}
        best.append(max(scores, key=lambda pair: (scores[pair], -pair.k1, -pair.b)))
        grid += [{**pair._asdict(), "sample": number, "value": value} for pair, value in scores.items()]
    return {
        "k1": round(mean(pair.k1 for pair in best), DECIMALS),
        "b": round(mean(pair.b for pair in best), DECIMALS),
        "measure": measure,
        "best": [pair._asdict() for pair in best],
        "grid": grid,
    }


def judged_queries(queries: pa.Table, qrels: Qrels, level: int) -> dict[str, str]:
    """Keep the queries that have a relevant document: id -> text, in the order of the table."""
    rows = zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True)
    judged = {query_id for query_id, relevance in qrels.items() if max(relevance.values()) >= level}
    return {query_id: text for query_id, text in rows if query_id in judged}


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.bm25_tune", __doc__)
    parser.add_argument("--index", required=True, metavar="FOLDER", help="what bm25_index wrote")
    parser.add_argument("--queries", required=True, metavar="PARQUET")
    parser.add_argument("--qrels", required=True, metavar="PARQUET")
    parser.add_argument("--k1", required=True, type=float, nargs="+", metavar="X")
    parser.add_argument("--b", required=True, type=float, nargs="+", metavar="X")
    parser.add_argument("--samples", type=int, default=5, metavar="N")
    parser.add_argument("--sample-size", type=int, default=10_000, metavar="N", help="queries per sample")
    parser.add_argument("--measure", default="R@1000", metavar="NAME", help="what to maximise")
    parser.add_argument("--relevance-level", type=int, default=1, metavar="GRADE", help="lowest relevant grade")
    parser.add_argument("--depth", type=int, default=1000, metavar="N", help="documents per query")
    parser.add_argument("--seed", type=int, default=42, metavar="N")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--memory-mb", type=int, default=2000, metavar="MB", help="heap of Java (default 2000)")
    parser.add_argument("--output", required=True, metavar="JSON")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Draw the samples, search and measure each query of any sample once, write the best parameters."""
    if args.samples < 1 or args.sample_size < 1:
        raise input_error("--samples, --sample-size", f"{args.samples}, {args.sample_size}", "1 or more", "fix them")
    parse_measures([args.measure])
    grid = make_grid(args.k1, args.b)
    searcher = open_searcher(args.index, args.depth, args.threads, args.memory_mb)
    qrels = qrels_by_query(tables.read_table(args.qrels, tables.QRELS), args.qrels)
    queries = judged_queries(tables.read_table(args.queries, tables.QUERIES), qrels, args.relevance_level)
    if not queries:
        raise input_error(args.qrels, "no query with a relevant document", "some", "name the qrels of these queries")
    samples = draw_samples(list(queries), args.samples, args.sample_size, args.seed)
    drawn = set().union(*samples)
    log.info("%d judged queries, %d of them drawn, %d parameter pairs", len(queries), len(drawn), len(grid))
    chosen = {query_id: text for query_id, text in queries.items() if query_id in drawn}
    with anserini.temporary_folder(args.output) as folder:
        values = measure_grid(searcher, chosen, qrels, grid, args.measure, args.relevance_level, folder)
    summary = summarise(values, samples, args.measure)
    write_text(args.output, json.dumps(summary, indent=2) + "\n")
    log.info("k1 %g, b %g", summary["k1"], summary["b"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
