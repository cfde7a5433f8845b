"""Tuning of weights: the grid, its measures, and the choice.

A grid is measured as a matrix with a row for each of its points and a column for each query.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cort.evaluation.measures import JudgedRanks, Qrels, evaluate_ranks, judged_ranks
from cort.evaluation.names import needed_depth
from cort.evaluation.significance import Matrix
from cort.formats.ids import positions
from cort.formats.runs import Run, as_written
from cort.retrieval.documents import as_documents
from cort.retrieval.pool import Scores, Weights, weigh
from cort.retrieval.weights import Fold

Grid = Sequence[Weights]

# Steps from 0 to 1 for two weights, and for more.
STEPS_OF_TWO, STEPS = 20, 10
DECIMALS = 10


def make_grid(components: int) -> list[Weights]:
    """List all weights that sum to 1: of two components in steps of 0.05, of more in steps of 0.1."""
    steps = STEPS_OF_TWO if components == 2 else STEPS
    points = (point for point in itertools.product(range(steps + 1), repeat=components) if sum(point) == steps)
    return [tuple(share / steps for share in point) for point in points]


class Case(NamedTuple):
    """A query whose documents are ranked at each point of a grid.

    :ivar doc_ids: in order, then those that are always ranked below them.
    :ivar scores: of the former by each component, normalised, (components, documents).
    """

    query_id: str
    doc_ids: pa.Array
    scores: Scores

    def at(self, grid: Matrix) -> Scores:
        """Score the documents at each point, as `fuse` or `rerank` does (grid, documents)."""
        scores = weigh(self.scores, grid.T[:, :, None])
        below = np.arange(1, len(self.doc_ids) - scores.shape[1] + 1)
        return np.hstack([scores, scores.min(axis=1, initial=np.inf, keepdims=True) - below])


def ranks_on_grid(case: Case, grid: Matrix, judged: Sequence[str], depth: int) -> Iterator[JudgedRanks]:
    """Rank the judged documents of a query at each point of a grid.

    Scores are compared instead of sorted; ties are ranked in the order of the documents.
    """
    scores = case.at(grid)
    places = positions(pa.array(judged, "string"), case.doc_ids)
    found, results = np.flatnonzero(places >= 0).tolist(), min(depth, len(case.doc_ids))
    ranks = np.empty((len(grid), len(found)), dtype=np.int64)
    for column, place in enumerate(places[found].tolist()):
        own = scores[:, [place]]
        ranks[:, column] = (scores > own).sum(axis=1) + (scores[:, :place] == own).sum(axis=1)
    for row in ranks.tolist():
        yield JudgedRanks({judged[at]: rank for at, rank in zip(found, row, strict=True) if rank < results}, results)


def documents_on_grid(case: Case, grid: Matrix, judged: Sequence[str], depth: int, how: str) -> Iterator[JudgedRanks]:
    """Rank the judged documents of a query by their passages at each point of a grid."""
    scores = case.at(grid)
    by = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    count, size = by.shape
    best = np.take_along_axis(scores, by, axis=1).ravel()
    ranked = Run.of_sizes([*map(str, range(count))], [size] * count, case.doc_ids.take(by.ravel()), best)
    run = as_documents(as_written(ranked), how)
    yield from judged_ranks(run, dict.fromkeys(run.query_ids, dict.fromkeys(judged, 0))).values()


def measure_grid(
    cases: Iterable[Case],
    qrels: Qrels,
    grid: Grid,
    measure: str,
    relevance_level: int,
    depth: int,
    aggregate: str = "none",
) -> Matrix:
    """Evaluate every query of the qrels at each point of a grid, on rankings of `depth` results (grid, queries).

    :param aggregate: how the passages that are ranked become the documents that are judged.
    """
    depth = needed_depth(measure, depth, aggregate)
    points, values = np.array(grid), np.zeros((len(grid), len(qrels)))
    columns = {query_id: column for column, query_id in enumerate(qrels)}
    for case in cases:
        judgements = qrels.get(case.query_id)
        if not judgements or not len(case.doc_ids):
            continue
        if aggregate == "none":
            found = ranks_on_grid(case, points, [*judgements], depth)
        else:
            found = documents_on_grid(case, points, [*judgements], depth, aggregate)
        # Neighbours on the grid often rank the same.
        named = [(repr(ranking), ranking) for ranking in found]
        answers = evaluate_ranks(dict(named), {name: judgements for name, _ in named}, [measure], relevance_level)
        values[:, columns[case.query_id]] = [answers[name][measure] for name, _ in named]
    return values


def fold_of(
    grid: Grid, values: Matrix, query_ids: Sequence[str], fold: list[str], choose: Callable[[Matrix], int]
) -> Fold:
    """Choose weights for the queries of a fold on all others.

    :param query_ids: name the columns of `values`.
    """
    inside = np.isin(query_ids, fold)
    chosen = choose(values[:, ~inside])
    return Fold(grid[chosen], float(values[chosen, inside].mean()), fold)


def choose(grid: Grid, values: Matrix) -> int:
    """Choose the point nearest to the mean of the grid, weighted by how likely points are the best.

    The weight is exp(-z^2 / 2), where z is the point's mean difference from the best mean, in standard errors of this
    difference over the queries. A query that prefers some weights by accident therefore has little influence, as with
    bagging. Points with z above 2 are not chosen.
    """
    means = values.mean(axis=1).round(DECIMALS)
    best, count = int(np.argmax(means)), values.shape[1]
    behind = means[best] - means  # (grid,)
    errors = (values - values[best]).std(axis=1) / math.sqrt(max(count - 1, 1))
    far = np.where(behind > 0, np.inf, 0.0)
    z = np.divide(behind, errors, out=far, where=errors > 0)
    shares = np.exp(-np.square(z) / 2)
    mean = shares @ np.array(grid) / shares.sum()  # (components,)
    return _nearest(grid, mean, means, np.flatnonzero(z <= 2).tolist())


def choose_carefully(grid: Grid, values: Matrix, lexical: Sequence[bool]) -> int:
    """Choose weights on queries made from documents, which favour encoders: their words are no longer in the passages.

    They are half way from those of `choose` to equal ones, and no term-based component has less than an equal share.

    :param lexical: which components are term-based.
    """
    equal, kept = 1 / len(lexical), np.array(lexical)
    wanted = (np.array(grid[choose(grid, values)]) + equal) / 2  # (components,)
    if not kept.all():
        wanted[kept] = np.maximum(wanted[kept], equal)
        wanted[~kept] *= max(1 - wanted[kept].sum(), 0) / wanted[~kept].sum()
    return _nearest(grid, wanted, values.mean(axis=1).round(DECIMALS), range(len(grid)))


def _nearest(grid: Grid, wanted: Matrix, means: Matrix, points: Iterable[int]) -> int:
    # Rounded, so that equal distances compare equal.
    distances = np.square(np.array(grid) - wanted).sum(axis=1).round(DECIMALS)
    return min(points, key=lambda point: (distances[point], -means[point], point))
