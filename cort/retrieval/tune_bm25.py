"""k1 and b of BM25, on training queries, as Anserini's authors did for MS MARCO.

With --folds, the judged queries are divided at random, and each fold also gets k1 and b of its own, chosen in the
same way on the queries of the other folds.

The result is the mean of the best pairs on several samples of the judged training queries; of equally good pairs,
the one with the lowest k1, then the lowest b, is the best. On MS MARCO, k1 from 0.6 to 1.2, b from 0.5 to 0.9 and 5
samples of 10,000 queries gave k1 0.82 and b 0.68, the baseline of the CoRT paper.

Reads:  the index, training queries and qrels (parquet)
Writes: JSON with k1, b and the whole grid; with --folds also k1, b and the queries of each fold
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from cort.config.collection import AnySplit
from cort.config.fields import Seed
from cort.config.lexical import GridSearch
from cort.evaluation.folds import draw_folds
from cort.evaluation.measures import Qrels, evaluate_run, read_qrels
from cort.evaluation.names import needed_depth
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.cleaning import FORMS
from cort.formats.records import Ranking, in_blocks
from cort.formats.runs import ROWS_PER_BLOCK, as_written, run_of
from cort.retrieval.documents import as_documents
from cort.retrieval.lucene import LuceneProcess, Parameters, rank_all
from cort.retrieval.search_options import LuceneSearchOptions
from cort.runtime.errors import input_error
from cort.runtime.progress import track
from cort.runtime.sections import JsonFile, ParquetFile, same_as

log = logging.getLogger(__name__)

DECIMALS = 4


class Options(GridSearch, LuceneSearchOptions):
    """Options of this stage."""

    qrels: ParquetFile
    relevance_level: int = same_as(AnySplit, "relevance_level")
    seed: int = same_as(Seed, "seed")
    output: JsonFile


def draw_samples(query_ids: Sequence[str], samples: int, size: int, seed: int) -> list[list[str]]:
    """Draw `samples` samples of `size` distinct ids, or of all ids if there are fewer."""
    generator = random.Random(seed)  # noqa: S311 - a sample, not a secret
    return [generator.sample(query_ids, min(size, len(query_ids))) for _ in range(samples)]


def measure_parameters(
    options: Options, queries: Mapping[str, str], qrels: Qrels, grid: Sequence[Parameters]
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


def stage(options: Options) -> None:
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
