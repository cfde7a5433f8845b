"""Tune parameters by grid search: k1 and b of BM25, or the weights of a fusion or of a re-ranker.

Usage: python -m cort.tune bm25 --index lucene --queries queries.train.parquet --qrels qrels.train.parquet
           --k1 0.6 0.8 1.0 --b 0.5 0.7 0.9 --samples 5 --sample-size 10000 --measure R@1000 --depth 1000 --seed 42
           --threads 2 --memory-mb 2000 --output tuned.json
       python -m cort.tune weights --runs cort.trec bm25.trec --parts cort bm25 --qrels qrels.validation.parquet
           --measure nDCG@10 --depth 1000 --output weights.json
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.evaluation.folds import draw_folds
from cort.evaluation.measures import Qrels, evaluate_run, read_qrels
from cort.evaluation.names import needed_depth
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.cleaning import FORMS
from cort.formats.records import Ranking, in_blocks
from cort.formats.runs import ROWS_PER_BLOCK, Run, as_written, read_run, run_of, top
from cort.retrieval import tuning
from cort.retrieval.components import check_scores, read_components
from cort.retrieval.documents import as_documents
from cort.retrieval.fusion import NORMALIZATIONS, FusionSettings, Pool, Scores, aligned
from cort.retrieval.lucene import LuceneProcess, Parameters, rank_all
from cort.retrieval.options import LuceneSearchOptions, term_based
from cort.retrieval.rerank import candidate_scores
from cort.runtime.commands import Commands, main_of_commands
from cort.runtime.errors import input_error
from cort.runtime.options import optional, options_class, required
from cort.runtime.progress import track
from cort.settings.collection import Aggregation, Split
from cort.settings.fields import General, as_key
from cort.settings.lexical import GridSearch
from cort.settings.systems import Fusing
from cort.settings.tuning import Folds

log = logging.getLogger(__name__)

DECIMALS = 4


@options_class
class BM25TuneOptions(GridSearch, LuceneSearchOptions):
    """k1 and b of BM25, on training queries, as Anserini's authors did for MS MARCO.

    With --folds, the judged queries are divided at random, and each fold also gets k1 and b of its own, chosen in the
    same way on the queries of the other folds.

    The result is the mean of the best pairs on several samples of the judged training queries; of equally good pairs,
    the one with the lowest k1, then the lowest b, is the best. On MS MARCO, k1 from 0.6 to 1.2, b from 0.5 to 0.9 and 5
    samples of 10,000 queries gave k1 0.82 and b 0.68, the baseline of the CoRT paper.

    Reads:  the index, training queries and qrels (parquet)
    Writes: JSON with k1, b and the whole grid; with --folds also k1, b and the queries of each fold
    """

    qrels: str = required("PARQUET")
    relevance_level: int = as_key(Split, "relevance_level")
    seed: int = as_key(General, "seed")
    output: str = required("JSON")


def draw_samples(query_ids: Sequence[str], samples: int, size: int, seed: int) -> list[list[str]]:
    """Draw `samples` samples of `size` distinct ids, or of all ids if there are fewer."""
    generator = random.Random(seed)  # noqa: S311 - a sample, not a secret
    return [generator.sample(query_ids, min(size, len(query_ids))) for _ in range(samples)]


def measure_parameters(
    options: BM25TuneOptions, queries: Mapping[str, str], qrels: Qrels, grid: Sequence[Parameters]
) -> npt.NDArray[np.float64]:
    """Search for `queries` (id -> text) with each pair, and measure (grid, queries)."""
    # What is below the measure's cut does not count.
    depth = needed_depth(options.measure, options.depth, options.aggregate)

    def values_of(rankings: list[Ranking]) -> list[float]:
        run = as_documents(options.without_excluded(as_written(run_of(rankings))), options.aggregate)
        judged = {ranking.query_id: qrels[ranking.query_id] for ranking in rankings}
        answers = evaluate_run(run, judged, [options.measure], options.relevance_level)
        return [answer[options.measure] for answer in answers.values()]

    values = []
    with LuceneProcess(options.index, options.threads, options.memory_mb, FORMS) as lucene:
        for pair in track(grid, len(grid), "parameter pairs"):
            found = rank_all(lucene, queries.items(), pair.similarity, depth + options.most_excluded)
            blocks = in_blocks(found, lambda ranking: len(ranking.doc_ids), ROWS_PER_BLOCK)
            values.append([*itertools.chain.from_iterable(map(values_of, blocks))])
    return np.array(values)


def summarise(
    grid: Sequence[Parameters], values: npt.NDArray[np.float64], samples: Sequence[Sequence[int]], measure: str
) -> dict[str, Any]:
    """Average the best pairs of the samples; also list these pairs, and the value of every pair on every sample.

    :param samples: columns of `values`.
    """
    rows, best = [], []
    for number, sample in enumerate(samples):
        means = [fmean(row) for row in values[:, sample].tolist()]
        # Of equal ones the first: the lowest k1, then the lowest b.
        best.append(grid[int(np.argmax(means))])
        rows += [{**pair._asdict(), "sample": number, "value": mean} for pair, mean in zip(grid, means, strict=True)]
    return {
        "k1": round(fmean(pair.k1 for pair in best), DECIMALS),
        "b": round(fmean(pair.b for pair in best), DECIMALS),
        "measure": measure,
        "best": [pair._asdict() for pair in best],
        "grid": rows,
    }


def tune_bm25(options: BM25TuneOptions) -> None:
    """Draw samples, measure each query in any of them once, and write the best parameters."""
    # In ascending order.
    grid = [Parameters(float(k1), float(b)) for k1 in sorted({*options.k1}) for b in sorted({*options.b})]
    qrels = read_qrels(options.qrels, options.relevance_level)
    relevant = {query_id for query_id, grades in qrels.items() if max(grades.values()) >= options.relevance_level}
    texts = tables.read_queries(options.queries)
    queries = {query_id: text for query_id, text in texts.items() if query_id in relevant}
    if not queries:
        found = "no relevant document for any query"
        raise input_error(options.qrels, found, "at least one", "name the qrels of these queries")
    folds = draw_folds(qrels, options.folds, options.seed, options.qrels) if options.folds else []
    # Of all queries, then of those outside of each fold.
    groups = [list(queries), *(sorted(queries.keys() - fold) for fold in folds)]
    if not all(groups):
        found = "no relevant document outside of a fold"
        raise input_error(options.qrels, found, "some in two folds", "lower folds or bring more judgements")
    drawn = [draw_samples(group, options.samples, options.sample_size, options.seed) for group in groups]
    chosen = {*itertools.chain.from_iterable(itertools.chain.from_iterable(drawn))}
    log.info("%d judged queries, %d of them drawn, %d parameter pairs", len(queries), len(chosen), len(grid))
    queries = {query_id: text for query_id, text in queries.items() if query_id in chosen}
    values = measure_parameters(options, queries, qrels, grid)
    columns = {query_id: column for column, query_id in enumerate(queries)}
    summary, *others = (
        summarise(grid, values, [[columns[query_id] for query_id in sample] for sample in samples], options.measure)
        for samples in drawn
    )
    own = [{"k1": one["k1"], "b": one["b"], "queries": fold} for one, fold in zip(others, folds, strict=True)]
    summary |= {"folds": own} if folds else {}
    write_artifact(options.output, summary)
    log.info("k1 %g, b %g", summary["k1"], summary["b"])


@options_class
class WeightTuneOptions(Aggregation):
    """The weights of runs that are fused, or of a re-ranker and its candidates, on validation queries.

    Two weights go from 0 to 1 in steps of 0.05, more weights in steps of 0.1; their sum is 1. Every query is merged
    with all of them, as `fuse` or `rerank` will merge it. The result is the grid point nearest to the mean of all
    points, weighted by how likely each of them is the best; with --carefully, the one half way from there to equal
    weights, in which no --lexical component has less than an equal share. With --folds, the judged queries are divided
    at random, and each fold also gets weights of its own, chosen in the same way on the queries of the other folds.

    Reads:  two or more run.trec of the validation queries, or one and the re-ranker's scores of its candidates; qrels
    Writes: JSON with the weights, the measure, the number of queries, and every point of the grid
            (`cort.retrieval.tuning.TunedWeights`); with --folds also the weights and queries of each fold
            (`FoldedWeights`)
    """

    runs: tuple[str, ...] = required("TREC", "of the validation queries, in order; a single one with --scores")
    parts: tuple[str, ...] = required("NAME", "names of the runs' systems, in order; the re-ranker last")
    scores: str | None = optional(None, "of a re-ranker: query_id, doc_id, score", "PARQUET")
    qrels: str = required("PARQUET", "judgements of the validation queries")
    measure: str = as_key(Folds, "measure")
    relevance_level: int = as_key(Split, "relevance_level")
    normalization: str = as_key(Fusing, "normalization", "how scores are normalised", choices=tuple(NORMALIZATIONS))
    depth: int = as_key(
        General, "depth", "results per query; of a re-ranker, candidates that are re-ranked", default=MISSING
    )
    carefully: bool = optional(False, "stay near equal weights, because queries made from documents favour encoders")
    lexical: tuple[str, ...] = optional((), "with --carefully, components whose weight is kept", "NAME")
    term_based: tuple[str, ...] = term_based()
    folds: int | None = as_key(Folds, "folds", default=None)
    seed: int = as_key(General, "seed", "of the folds")
    output: str = required("JSON")


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


def read_cases(options: WeightTuneOptions) -> tuple[list[str], Iterator[tuning.Case]]:
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


def tune_weights(options: WeightTuneOptions) -> None:
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
    points = [tuning.Point(*point) for point in zip(grid, means, strict=True)]
    named = options.measure, options.relevance_level, len(qrels), [*options.parts]
    tuned = tuning.TunedWeights(*named, grid[chosen], means[chosen], max(means), points)
    if options.folds:
        folds = draw_folds(qrels, options.folds, options.seed, options.qrels)
        own = [tuning.fold_of(grid, values, [*qrels], fold, choose) for fold in folds]
        tuned = tuning.FoldedWeights(**vars(tuned), folds=own)
    write_artifact(options.output, tuned)
    words = ", ".join(f"{name} {weight:g}" for name, weight in zip(tuned.parts, tuned.weights, strict=True))
    log.info("%s: %s %.4f of %d queries, at best %.4f", words, tuned.measure, tuned.value, tuned.queries, tuned.best)


COMMANDS: Commands = {"bm25": (BM25TuneOptions, tune_bm25), "weights": (WeightTuneOptions, tune_weights)}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
