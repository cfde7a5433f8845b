"""Weights of merged rankings: the grid on which they are tuned, the choice, and its file."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cort.evaluation.measures import JudgedRanks, Qrels, evaluate_ranks, judged_ranks
from cort.formats.artifacts import Node, read_artifact
from cort.formats.records import Ranking
from cort.formats.runs import run_of, strictly_decreasing
from cort.retrieval.documents import as_documents
from cort.retrieval.fusion import Scores, weigh
from cort.runtime.errors import input_error

Weights = tuple[float, ...]

# Steps from 0 to 1 for two weights, and for more.
STEPS_OF_TWO, STEPS = 20, 10
DECIMALS = 10


@dataclass(frozen=True)
class Point:
    """A point of the grid, and the mean of the measure there."""

    weights: Weights
    value: float


@dataclass(frozen=True)
class TunedWeights:
    """Weights chosen on validation queries, one per part in the order of the config, and the complete grid.

    `value` is the mean of the measure with the chosen weights, `best` the highest on the grid.
    """

    measure: str
    relevance_level: int
    queries: int
    parts: list[str]
    weights: Weights
    value: float
    best: float
    grid: list[Point]

    def check(self, node: Node) -> None:
        """Refuse weights that do not sum to 1, or whose number is not that of the parts."""
        _check_shares(node, self.weights, len(self.parts))


@dataclass(frozen=True)
class Fold:
    """Weights of the queries of a fold, chosen on all other folds; `value` is their mean on the fold itself."""

    weights: Weights
    value: float
    queries: list[str]


@dataclass(frozen=True)
class FoldedWeights(TunedWeights):
    """Weights of each fold, besides those chosen on the queries of all folds."""

    folds: list[Fold]

    def check(self, node: Node) -> None:
        """Check the weights of each fold, too."""
        super().check(node)
        for own, fold in zip(node["folds"].items(), self.folds, strict=True):
            _check_shares(own, fold.weights, len(self.parts))


def _check_shares(node: Node, weights: Weights, parts: int) -> None:
    if len(weights) != parts or min(weights, default=-1) < 0 or abs(sum(weights) - 1) > 1e-6:
        raise node["weights"].complain(f"{list(weights)}", f"{parts} numbers from 0 with the sum 1")


def weights_of_folds(path: str | Path | None, folded: bool) -> dict[str, Weights]:
    """Read the weights of each query that is in a fold; none unless `folded`."""
    folds = read_artifact(path, FoldedWeights).folds if path and folded else []
    return {query_id: fold.weights for fold in folds for query_id in fold.queries}


def own_weights(path: str | Path | None, folded: bool) -> dict[str, float]:
    """Read the re-ranker's weight of each query that is in a fold; none unless `folded`."""
    return {query_id: weight for query_id, (_, weight) in weights_of_folds(path, folded).items()}


def read_weights(path: str | Path, parts: Sequence[str | None]) -> Weights:
    """Read the weights chosen for parts with these names, in order; None stands for any name."""
    tuned: TunedWeights = read_artifact(path, TunedWeights)
    pairs = zip(parts, tuned.parts, strict=False)
    if len(parts) != len(tuned.parts) or any(name not in (own, None) for name, own in pairs):
        found, expected = (", ".join(name or "any" for name in names) for names in (tuned.parts, parts))
        fix = "tune weights for these, in this order"
        raise input_error(path, f"weights of {found}", f"those of {expected}", fix)
    return tuned.weights


def weight_of(weight: float, tuned: str | Path | None, candidates: str | None) -> float:
    """Return the weight of a re-ranker: the tuned one if there is a file, otherwise `weight`.

    :param candidates: name of the system whose results are re-ranked; None stands for any.
    """
    if tuned:
        return read_weights(tuned, (candidates, None))[1]
    return weight


def check_weights(source: str, weights: Weights, parts: int) -> None:
    """Refuse weights that are negative or all 0, or not one per part; no weights mean equal ones."""
    listed = " ".join(f"{weight:g}" for weight in weights)
    if weights and len(weights) != parts:
        raise input_error(source, f"{listed}, for {parts} parts", f"{parts} numbers", "give one per part")
    if weights and not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
        raise input_error(source, listed, "numbers from 0, not all 0", "fix them")


def make_grid(parts: int) -> list[Weights]:
    """List all weights that sum to 1: for two parts in steps of 0.05, for more in steps of 0.1."""
    steps = STEPS_OF_TWO if parts == 2 else STEPS
    points = (point for point in itertools.product(range(steps + 1), repeat=parts) if sum(point) == steps)
    return [tuple(share / steps for share in point) for point in points]


class Case(NamedTuple):
    """One query: its documents in order of doc_id, their normalised scores in each part, and documents below them."""

    query_id: str
    doc_ids: list[str]
    parts: list[Scores]
    below: Sequence[str] = ()


def merged(case: Case, grid: Sequence[Weights], depth: int) -> Iterator[Ranking]:
    """Rank the documents of a case, as `fuse` or `rerank` does, at each point of a grid, whose number is the query."""
    doc_ids, below = np.array([*case.doc_ids, *case.below], dtype=object), np.arange(1, len(case.below) + 1)
    for number, weights in enumerate(grid):
        scores = weigh(case.parts, weights)
        scores = np.concatenate([scores, scores.min(initial=np.inf) - below])
        by = np.argsort(-scores, kind="stable")[:depth]
        yield Ranking(str(number), doc_ids[by].tolist(), strictly_decreasing(scores[by]))


def measure_grid(
    cases: Iterable[Case],
    qrels: Qrels,
    grid: Sequence[Weights],
    measure: str,
    relevance_level: int,
    depth: int,
    aggregate: str = "none",
) -> npt.NDArray[np.float64]:
    """Evaluate every query of the qrels at each point of a grid, on rankings of `depth` results; (grid, queries).

    :param aggregate: how the passages that are ranked become the documents that are judged.
    """
    by_point: list[dict[str, JudgedRanks]] = [{} for _ in grid]
    for case in (case for case in cases if case.query_id in qrels):
        run = as_documents(run_of(list(merged(case, grid, depth))), aggregate)
        judged = judged_ranks(run, dict.fromkeys(run.query_ids, qrels[case.query_id]))
        for ranks, own in zip(by_point, judged.values(), strict=True):
            ranks[case.query_id] = own
    values = (evaluate_ranks(ranks, qrels, [measure], relevance_level) for ranks in by_point)
    return np.array([[value[measure] for value in by_query.values()] for by_query in values])


def choose_by_fold(
    grid: Sequence[Weights],
    values: npt.NDArray[np.float64],
    query_ids: Sequence[str],
    folds: Sequence[Sequence[str]],
    choose: Callable[[Sequence[Weights], npt.NDArray[np.float64]], int],
) -> Iterator[Fold]:
    """Choose the weights of each fold on the queries of all others; `query_ids` name the columns of `values`."""
    for fold in folds:
        members = {*fold}
        inside = np.array([query_id in members for query_id in query_ids])
        chosen = choose(grid, values[:, ~inside])
        yield Fold(grid[chosen], float(values[chosen, inside].mean()), [*fold])


def choose(grid: Sequence[Weights], values: npt.NDArray[np.float64]) -> int:
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
    mean = shares @ np.array(grid) / shares.sum()  # (parts,)
    return _nearest(grid, mean, means, np.flatnonzero(z <= 2).tolist())


def choose_carefully(grid: Sequence[Weights], values: npt.NDArray[np.float64], lexical: Sequence[bool]) -> int:
    """Choose weights on queries made from documents, which favour encoders: their words are no longer in the passages.

    They are half way from those of `choose` to equal ones, and no term-based part has less than an equal share.

    :param lexical: which parts are term-based.
    """
    equal, kept = 1 / len(lexical), np.array(lexical)
    wanted = (np.array(grid[choose(grid, values)]) + equal) / 2  # (parts,)
    if not kept.all():
        wanted[kept] = np.maximum(wanted[kept], equal)
        wanted[~kept] *= max(1 - wanted[kept].sum(), 0) / wanted[~kept].sum()
    return _nearest(grid, wanted, values.mean(axis=1).round(DECIMALS), range(len(grid)))


def _nearest(
    grid: Sequence[Weights], wanted: npt.NDArray[np.float64], means: npt.NDArray[np.float64], points: Iterable[int]
) -> int:
    # Rounded, so that equal distances compare equal.
    distances = np.square(np.array(grid) - wanted).sum(axis=1).round(DECIMALS)
    return min(points, key=lambda point: (distances[point], -means[point], point))
