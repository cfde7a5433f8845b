"""Weights of rankings that are merged: the grid they are tuned on, the choice, and the file that has it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cort.evaluation.judged import JudgedRanks
from cort.evaluation.measures import Qrels, evaluate_ranks
from cort.formats.artifacts import Node, read_artifact
from cort.retrieval.normalization import Scores, weigh
from cort.system.errors import input_error

Weights = tuple[float, ...]

# Steps from 0 to 1 of two weights, and of more.
STEPS_OF_TWO, STEPS = 20, 10
DECIMALS = 10


@dataclass(frozen=True)
class Point:
    """Weights that were tried, and the mean of the measure with them."""

    weights: Weights
    value: float


@dataclass(frozen=True)
class TunedWeights:
    """Weights chosen on validation queries, one per part in the order of the config, and all that were tried.

    `value` is the mean of the measure with the chosen weights, `best` the highest of the grid.
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
        """Refuse weights that are no shares of 1, or not as many as parts."""
        weights = self.weights
        if len(weights) != len(self.parts) or min(weights, default=-1) < 0 or abs(sum(weights) - 1) > 1e-6:
            raise node["weights"].complain(f"{list(weights)}", f"{len(self.parts)} numbers from 0 whose sum is 1")


def read_weights(path: str | Path, parts: Sequence[str | None]) -> Weights:
    """Read the weights that were chosen for some parts, by name and in order; None is a part of any name."""
    tuned: TunedWeights = read_artifact(path, TunedWeights)
    pairs = zip(parts, tuned.parts, strict=False)
    if len(parts) != len(tuned.parts) or any(name not in (own, None) for name, own in pairs):
        found, expected = (", ".join(name or "any" for name in names) for names in (tuned.parts, parts))
        fix = "tune weights for these, in this order"
        raise input_error(path, f"weights of {found}", f"those of {expected}", fix)
    return tuned.weights


def weight_of(weight: float, tuned: str | Path | None, candidates: str) -> float:
    """Give the weight of a re-ranker: that which was chosen, if a file has it, else this one.

    :param candidates: name of the system that is re-ranked.
    """
    if tuned:
        return read_weights(tuned, (candidates, None))[1]
    if not 0 <= weight <= 1:
        raise input_error("--weight", f"{weight:g}", "a number from 0 to 1", "fix it")
    return weight


def check_weights(source: str, weights: Weights, parts: int) -> None:
    """Refuse weights that are not one per part, or all 0; without any all parts have the same."""
    listed = " ".join(f"{weight:g}" for weight in weights)
    if weights and len(weights) != parts:
        raise input_error(source, f"{listed}, for {parts} parts", f"{parts} numbers", "give one per part")
    if weights and not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
        raise input_error(source, listed, "numbers from 0, one of them above", "fix them")


def make_grid(parts: int) -> list[Weights]:
    """List weights whose sum is 1: of two parts in steps of .05, of more in steps of .1."""
    steps = STEPS_OF_TWO if parts == 2 else STEPS
    shares = [one for one in itertools.product(range(steps + 1), repeat=parts) if sum(one) == steps]
    return [tuple(share / steps for share in one) for one in shares]


class Case(NamedTuple):
    """One query: its documents by id, the normalised scores of each by every part, and what follows below them all."""

    query_id: str
    doc_ids: list[str]
    parts: list[Scores]
    rest: Sequence[str] = ()


def measure_grid(
    cases: Iterable[Case], qrels: Qrels, grid: Sequence[Weights], measure: str, relevance_level: int, depth: int
) -> npt.NDArray[np.float64]:
    """Measure every query of the qrels with each weights of a grid, on rankings of `depth` results: (grid, queries)."""
    ranks: list[dict[str, JudgedRanks]] = [{} for _ in grid]
    for case in (one for one in cases if one.query_id in qrels):
        rows = [row for row, doc_id in enumerate(case.doc_ids) if doc_id in qrels[case.query_id]]
        below = {doc_id: place for place, doc_id in enumerate(case.rest, len(case.doc_ids))}
        below = {doc_id: place for doc_id, place in below.items() if doc_id in qrels[case.query_id]}
        for weights, found in zip(grid, ranks, strict=True):
            places = np.empty(len(case.doc_ids), dtype=np.int64)
            places[np.argsort(-weigh(case.parts, weights), kind="stable")] = np.arange(len(places))
            judged = {case.doc_ids[row]: int(places[row]) for row in rows} | below
            judged = {doc_id: place for doc_id, place in judged.items() if place < depth}
            found[case.query_id] = JudgedRanks(judged, min(depth, len(case.doc_ids) + len(case.rest)))
    values = (evaluate_ranks(found, qrels, [measure], relevance_level) for found in ranks)
    return np.array([[value[measure] for value in by_query.values()] for by_query in values])


def choose(grid: Sequence[Weights], values: npt.NDArray[np.float64]) -> int:
    """Choose the weights nearest to the mean of the grid, in which each counts by how well it may be the best.

    They count exp(-z^2 / 2), z being their mean difference to the best mean, in standard errors of this difference over
    the queries. So one query that likes some weights by accident moves them little, as with bagging. Those with z above
    2 are not chosen.
    """
    means = values.mean(axis=1).round(DECIMALS)
    best, count = int(np.argmax(means)), values.shape[1]
    behind = means[best] - means  # (grid,)
    errors = (values - values[best]).std(axis=1) / math.sqrt(max(count - 1, 1))
    far = np.where(behind > 0, np.inf, 0.0)
    z = np.divide(behind, errors, out=far, where=errors > 0)
    shares = np.exp(-np.square(z) / 2)
    aim = shares @ np.array(grid) / shares.sum()  # (parts,)
    good = np.flatnonzero(z <= 2).tolist()
    return min(good, key=lambda point: (_distance(grid[point], aim), -means[point], point))


def _distance(weights: Weights, aim: npt.NDArray[np.float64]) -> float:
    """Measure how far weights are apart, so that equal distances are equal."""
    return round(math.fsum((one - other) ** 2 for one, other in zip(weights, aim.tolist(), strict=True)), DECIMALS)
