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

import logging
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from cort.evaluation.measures import Qrels, evaluate_run, read_qrels
from cort.evaluation.names import parse_measures
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.runs import strictly_decreasing
from cort.retrieval.bm25 import Parameters, Searcher, make_grid
from cort.retrieval.options import BM25Options, check_positive
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import temporary_folder
from cort.system.options import optional, required
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
    options: Options, searcher: Searcher, queries: Mapping[str, str], qrels: Qrels, grid: Sequence[Parameters]
) -> Values:
    """Search `queries` (id -> text) with each pair; pair -> query_id -> value of the measure."""
    values: Values = {pair: {} for pair in grid}
    query_ids = list(queries)
    size = max(1, RESULTS_PER_COMMAND // options.depth)
    starts = range(0, len(query_ids), size)
    with temporary_folder(options.output) as folder:
        for start in track(starts, len(starts), "commands"):
            chunk = query_ids[start : start + size]
            # Runs of a search name queries by position.
            numbered = {f"{position:09d}": qrels[query_id] for position, query_id in enumerate(chunk)}
            for pair, run in searcher.search([queries[query_id] for query_id in chunk], grid, folder):
                # Strictly decreasing, so that ties are measured in the order `bm25` writes.
                scores = strictly_decreasing(run.scores, run.query_numbers()).astype(np.float64)
                run = replace(run, scores=scores)
                answers = evaluate_run(run, numbered, [options.measure], options.relevance_level)
                found = (answer[options.measure] for answer in answers.values())
                values[pair].update(zip(chunk, found, strict=True))
    return values


def summarise(values: Values, samples: Sequence[Sequence[str]], measure: str) -> dict[str, Any]:
    """Average the samples' best pairs; beside the mean, each best pair and the value of every pair on every sample."""
    grid, best = [], []
    for number, sample in enumerate(samples):
        scores = {pair: fmean(by_query[query_id] for query_id in sample) for pair, by_query in values.items()}
        best.append(max(scores, key=lambda pair: (scores[pair], -pair.k1, -pair.b)))
        grid += [{**pair._asdict(), "sample": number, "value": value} for pair, value in scores.items()]
    return {
        "k1": round(fmean(pair.k1 for pair in best), DECIMALS),
        "b": round(fmean(pair.b for pair in best), DECIMALS),
        "measure": measure,
        "best": [pair._asdict() for pair in best],
        "grid": grid,
    }


@dataclass(frozen=True, kw_only=True)
class Options(BM25Options):
    """Options of this stage."""

    qrels: str = required("PARQUET")
    k1: tuple[float, ...] = required("X")
    b: tuple[float, ...] = required("X")
    samples: int = optional(5, metavar="N")
    sample_size: int = optional(10_000, "queries per sample", "N")
    measure: str = optional("R@1000", "what to maximise", "NAME")
    relevance_level: int = optional(1, "lowest relevant grade", "GRADE")
    seed: int = optional(42, metavar="N")
    output: str = required("JSON")


def stage(options: Options) -> None:
    """Draw the samples, search and measure each query of any sample once, write the best parameters."""
    check_positive(options, "samples", "sample_size")
    parse_measures([options.measure])
    grid = make_grid(options.k1, options.b)
    searcher = Searcher(options)
    qrels = read_qrels(options.qrels, options.relevance_level)
    table = tables.read_table(options.queries, tables.QUERIES)
    rows = zip(table["query_id"].to_pylist(), table["text"].to_pylist(), strict=True)
    relevant = {query_id for query_id, grades in qrels.items() if max(grades.values()) >= options.relevance_level}
    queries = {query_id: text for query_id, text in rows if query_id in relevant}
    if not queries:
        found = "no query with a relevant document"
        raise input_error(options.qrels, found, "some", "name the qrels of these queries")
    samples = draw_samples(list(queries), options.samples, options.sample_size, options.seed)
    drawn = set().union(*samples)
    log.info("%d judged queries, %d of them drawn, %d parameter pairs", len(queries), len(drawn), len(grid))
    chosen = {query_id: text for query_id, text in queries.items() if query_id in drawn}
    summary = summarise(measure_grid(options, searcher, chosen, qrels, grid), samples, options.measure)
    write_artifact(options.output, summary)
    log.info("k1 %g, b %g", summary["k1"], summary["b"])


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
