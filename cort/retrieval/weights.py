"""Tuned weights: their file, and what a stage takes from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cort.formats.artifacts import read_artifact
from cort.retrieval.pool import Weights
from cort.runtime.errors import input_error


@dataclass(frozen=True)
class Point:
    """A point of the grid, and the mean of the measure there."""

    weights: Weights
    value: float


@dataclass(frozen=True)
class TunedWeights:
    """Weights chosen on validation queries, one per component in the order of the config, and the complete grid.

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


def weights_of_folds(path: str | Path | None, folded: bool) -> dict[str, Weights]:
    """Read the weights of each query that is in a fold; none unless `folded`."""
    folds = read_artifact(path, FoldedWeights).folds if path and folded else []
    return {query_id: fold.weights for fold in folds for query_id in fold.queries}


def own_weights(path: str | Path | None, folded: bool) -> dict[str, float]:
    """Read the re-ranker's weight of each query that is in a fold; none unless `folded`."""
    return {query_id: weight for query_id, (_, weight) in weights_of_folds(path, folded).items()}


def read_weights(path: str | Path, components: Sequence[str | None]) -> Weights:
    """Read the weights chosen for components with these names, in order; None stands for any name."""
    tuned: TunedWeights = read_artifact(path, TunedWeights)
    pairs = zip(components, tuned.parts, strict=False)
    if len(components) != len(tuned.parts) or any(name not in (own, None) for name, own in pairs):
        found, expected = (", ".join(name or "any" for name in names) for names in (tuned.parts, components))
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
