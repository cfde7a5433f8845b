"""The weights of runs that are fused, or of a re-ranker and its candidates, on validation queries.

Two weights go from 0 to 1 in steps of 0.05, more weights in steps of 0.1; their sum is 1. Every query is merged
with all of them, as `fuse` or `rerank` will merge it. The result is the grid point nearest to the mean of all
points, weighted by how likely each of them is the best; with --carefully, the one half way from there to equal
weights, in which no --lexical component has less than an equal share. With --folds, the judged queries are divided
at random, and each fold also gets weights of its own, chosen in the same way on the queries of the other folds.

Reads:  two or more run.trec of the validation queries, or one and the re-ranker's scores of its candidates; qrels
Writes: JSON with the weights, the measure, the number of queries, and every point of the grid
        (`cort.retrieval.weights.TunedWeights`); with --folds also the weights and queries of each fold
        (`FoldedWeights`)
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from cort.config.collection import Aggregation, AnySplit
from cort.config.fields import Depth, Seed
from cort.config.systems import Folds
from cort.evaluation.folds import draw_folds
from cort.evaluation.measures import read_qrels
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.runs import Run, read_run, top
from cort.retrieval import tuning
from cort.retrieval.components import check_scores, read_components
from cort.retrieval.fusion import Normalized, aligned
from cort.retrieval.options import TermBased
from cort.retrieval.pool import FusionSettings, Pool, Scores
from cort.retrieval.rerank import candidate_scores
from cort.retrieval.weights import FoldedWeights, Point, TunedWeights
from cort.runtime.errors import input_error
from cort.runtime.progress import track
from cort.runtime.sections import JsonFile, Maybe, ParquetFile, Several, Text, TrecFile, same_as

log = logging.getLogger(__name__)


class Options(TermBased, Aggregation):
    """Options of this stage."""

    runs: Several[TrecFile]
    """Of the validation queries, in order; a single one with --scores."""
    parts: Several[Text]
    """Names of the runs' systems, in order; the re-ranker last."""
    scores: Maybe[ParquetFile] = None
    """Of a re-ranker: query_id, doc_id, score."""
    qrels: ParquetFile
    """Judgements of the validation queries."""
    measure: Text = same_as(Folds, "measure")
    relevance_level: int = same_as(AnySplit, "relevance_level")
    normalization: Literal["min-max", "z-score"] = same_as(Normalized, "normalization")
    """How scores are normalised."""
    depth: int = same_as(Depth, "depth", required=True)
    """Results per query; of a re-ranker, candidates that are re-ranked."""
    carefully: bool = False
    """Stay near equal weights, because queries made from documents favour encoders."""
    lexical: Several[Text] = ()
    """With --carefully, components whose weight is kept."""
    folds: Maybe[int] = same_as(Folds, "folds", default=None)
    seed: int = same_as(Seed, "seed")
    """Of the folds."""
    output: JsonFile


def cases_of(runs: Sequence[Run], settings: FusionSettings) -> Iterator[tuning.Case]:
    """Normalise the scores of all results, query by query."""
    for block in aligned(runs):
        pool = Pool.of(block)
        scores = pool.scores(settings)
        ends = np.cumsum(np.bincount(pool.queries, minlength=len(block[0])))
        for query_id, start, end in zip(block[0].query_ids, [0, *ends[:-1]], ends, strict=True):
            yield tuning.Case(query_id, pool.doc_ids.slice(start, end - start), scores[:, start:end])


def reranked(run: Run, scores: Scores, settings: FusionSettings) -> Iterator[tuning.Case]:
    """Normalise the scores of the top candidates, and the re-ranker's, query by query."""
    candidates, depth = run.by_query(), settings.depth
    first = top(run, depth)
    second = replace(first, scores=scores[run.ranks() <= depth])
    for case in cases_of([first, second], settings):
        below = candidates[case.query_id][depth:]
        yield case._replace(doc_ids=pa.concat_arrays([case.doc_ids, pa.array(below, "string")]))


def read_cases(options: Options) -> tuple[list[str], Iterator[tuning.Case]]:
    """Read the ids of the queries, and each query as a case."""
    settings = FusionSettings(normalization=options.normalization, depth=options.depth)
    if options.scores is None:
        runs = [top(run, options.depth) for run in read_components(options.runs, by_scores=True)]
        query_ids = list(dict.fromkeys(query_id for run in runs for query_id in run.query_ids))
        from_zero = tuple(name in options.term_based for name in options.parts)
        return query_ids, cases_of(runs, settings._replace(from_zero=from_zero))
    (path,) = options.runs
    run = read_run(path)
    check_scores(path, run)
    scores = candidate_scores(run, tables.read_table(options.scores, tables.SCORES), options.depth, options.scores)
    return run.query_ids, reranked(run, scores, settings)


def stage(options: Options) -> None:
    """Measure the grid, choose weights, and write them."""
    expected = len(options.runs) + (options.scores is not None)
    if len(options.parts) != expected:
        raise input_error("--parts", f"{len(options.parts)}", f"{expected}", "name each run, and the re-ranker last")
    qrels = read_qrels(options.qrels, options.relevance_level)
    query_ids, cases = read_cases(options)
    if not qrels.keys() & set(query_ids):
        raise input_error(
            options.qrels, "no query of the runs", "judgements of these queries", "name those of the split"
        )
    grid = tuning.make_grid(len(options.parts))
    depth = sys.maxsize if options.scores else options.depth
    tracked = track(cases, len(query_ids), "queries")
    values = tuning.measure_grid(
        tracked, qrels, grid, options.measure, options.relevance_level, depth, options.aggregate
    )
    choose = partial(tuning.choose, grid)
    if options.carefully:
        choose = partial(tuning.choose_carefully, grid, lexical=[name in options.lexical for name in options.parts])
    means, chosen = values.mean(axis=1).tolist(), choose(values)
    points = [Point(*point) for point in zip(grid, means, strict=True)]
    named = options.measure, options.relevance_level, len(qrels), [*options.parts]
    tuned = TunedWeights(*named, grid[chosen], means[chosen], max(means), points)
    if options.folds:
        folds = draw_folds(qrels, options.folds, options.seed, options.qrels)
        own = [tuning.fold_of(grid, values, [*qrels], fold, choose) for fold in folds]
        tuned = FoldedWeights(**vars(tuned), folds=own)
    write_artifact(options.output, tuned)
    words = ", ".join(f"{name} {weight:g}" for name, weight in zip(tuned.parts, tuned.weights, strict=True))
    log.info("%s: %s %.4f of %d queries, at best %.4f", words, tuned.measure, tuned.value, tuned.queries, tuned.best)
