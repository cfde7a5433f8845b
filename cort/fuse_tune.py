"""Tune the weights of a merge, or of a re-ranker and what it re-ranks, by grid search on validation queries.

Of two parts the weights go from 0 to 1 in steps of .05, of more in steps of .1; their sum is 1. Every query is merged
with each of them as `fuse`, or `rerank`, will merge it. Taken is the mean of all weights, each counted by how well it
may be the best, on the grid.

Reads:  two or more run.trec of the validation queries, or one and the re-ranker's scores of its candidates; qrels
Writes: JSON with the weights, the measure, the number of queries, and every point of the grid
        (`cort.retrieval.weights.TunedWeights`)
Usage:  python -m cort.fuse_tune --runs cort.trec bm25.trec --parts cort bm25 --qrels qrels.validation.parquet
            --measure nDCG@10 --depth 1000 --output weights.json
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from cort.evaluation.measures import read_qrels
from cort.evaluation.names import parse_measures
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.records import Ranking
from cort.formats.runs import Run, read_run
from cort.retrieval.fusion import on_one_scale, rankings_of
from cort.retrieval.normalization import NORMALIZATIONS
from cort.retrieval.options import check_positive, choice
from cort.retrieval.parts import read_parts, refuse_constant_scores
from cort.retrieval.rerank import Scores, candidate_scores
from cort.retrieval.weights import Case, Point, TunedWeights, choose, make_grid, measure_grid
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, required
from cort.system.progress import track

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    runs: tuple[str, ...] = required("TREC", "of the validation queries, in order; one, if scores are given")
    parts: tuple[str, ...] = required("NAME", "whose weights these are, in order; the re-ranker last")
    scores: str | None = optional(None, "of a re-ranker: query_id, doc_id, score", "PARQUET")
    qrels: str = required("PARQUET", "judgements of the validation queries")
    measure: str = required("NAME", "what to maximise")
    relevance_level: int = optional(1, "lowest relevant grade", "GRADE")
    normalization: str = choice(NORMALIZATIONS, "min-max", "how scores come to one scale")
    depth: int = required("N", "results per query; of a re-ranker, candidates that are re-ranked")
    output: str = required("JSON")


def merged(runs: list[Run], depth: int, normalization: str) -> Iterator[Case]:
    """Put the first `depth` results of all runs on one scale, query by query."""
    for query_id, rankings in rankings_of(runs):
        cut = [Ranking(query_id, one.doc_ids[:depth], one.scores[:depth]) for one in rankings]
        yield Case(query_id, *on_one_scale(cut, normalization))


def reranked(run: Run, scores: Scores, depth: int, normalization: str) -> Iterator[Case]:
    """Put the first `depth` candidates' scores and the re-ranker's on one scale, query by query."""
    for position, (query_id, doc_ids, first) in enumerate(run):
        start, ids = int(run.offsets[position]), doc_ids[:depth]
        second = scores[start : start + len(ids)]
        by_both = [Ranking(query_id, ids, first[:depth]), Ranking(query_id, ids, second)]
        yield Case(query_id, *on_one_scale(by_both, normalization), doc_ids[depth:])


def read_cases(options: Options) -> tuple[list[str], Iterator[Case]]:
    """Read what is weighed: the ids of the queries, and each as a case."""
    if options.scores is None:
        runs = read_parts(options.runs, by_scores=True)
        query_ids = list(dict.fromkeys(query_id for run in runs for query_id in run.query_ids))
        return query_ids, merged(runs, options.depth, options.normalization)
    if len(options.runs) != 1:
        raise input_error("--runs", f"{len(options.runs)} runs with scores", "one", "name the run that is re-ranked")
    run = read_run(options.runs[0])
    refuse_constant_scores(options.runs[0], run)
    scores = candidate_scores(run, tables.read_table(options.scores, tables.SCORES), options.depth, options.scores)
    return run.query_ids, reranked(run, scores, options.depth, options.normalization)


def stage(options: Options) -> None:
    """Read, measure the grid, choose, write."""
    check_positive(options, "depth")
    parse_measures([options.measure])
    expected = len(options.runs) + (options.scores is not None)
    if len(options.parts) != expected:
        raise input_error("--parts", f"{len(options.parts)}", f"{expected}", "name each run, and the re-ranker last")
    qrels = read_qrels(options.qrels, options.relevance_level)
    query_ids, cases = read_cases(options)
    if not qrels.keys() & set(query_ids):
        raise input_error(
            options.qrels, "no query of the runs", "judgements of these queries", "name those of the split"
        )
    grid = make_grid(len(options.parts))
    depth = sys.maxsize if options.scores else options.depth
    tracked = track(cases, len(query_ids), "queries")
    values = measure_grid(tracked, qrels, grid, options.measure, options.relevance_level, depth)
    means = values.mean(axis=1).tolist()
    chosen = choose(grid, values)
    points = [Point(*point) for point in zip(grid, means, strict=True)]
    found = TunedWeights(
        *(options.measure, options.relevance_level, len(qrels), list(options.parts)),
        *(grid[chosen], means[chosen], max(means), points),
    )
    write_artifact(options.output, found)
    weights = ", ".join(f"{name} {weight:g}" for name, weight in zip(found.parts, found.weights, strict=True))
    log.info("%s: %s %.4f of %d queries, at best %.4f", weights, found.measure, found.value, found.queries, found.best)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
