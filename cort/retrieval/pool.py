"""Scores of the rankings that are merged: undone ties, normalisation (`NORMALIZATIONS`), and the pool of documents."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.ids import sort_keys
from cort.formats.records import Integers
from cort.formats.runs import STEP, Run, top

Scores: TypeAlias = npt.NDArray[np.float64]
# Normalised scores, and for each ranking the score of the documents that it lacks.
Normalized: TypeAlias = tuple[Scores, Scores]
Weights: TypeAlias = tuple[float, ...]
NONE: Mapping[str, Any] = MappingProxyType({})


class FusionSettings(NamedTuple):
    """Parameters of the methods.

    :ivar k: of reciprocal rank fusion; dampens the top ranks.
    :ivar normalization: of the scores that are added, one of `NORMALIZATIONS`.
    :ivar weights: of the components, in order; empty for equal weights.
    :ivar own: weights of queries that have some of their own.
    :ivar from_zero: of each component, whether it scores documents by the terms that they share with the query; those
        without any have the score 0.
    :ivar depth: results to which rankings are cut.
    """

    k: int = 60
    normalization: str = "min-max"
    weights: Weights = ()
    own: Mapping[str, Weights] = NONE
    from_zero: tuple[bool, ...] = ()
    depth: int = 0


def untied(scores: npt.NDArray[np.floating], offsets: Integers) -> Scores:
    """Undo the small steps by which run files keep ties in order: tied documents get the score of the first of them.

    Scores are rounded to single precision, as in run files, so that live searches and runs agree.

    :param scores: of several rankings, ``offsets[i]:offsets[i + 1]`` those of ranking i, in any order.
    """
    ordered = np.asarray(scores, dtype=np.float32)
    ranking = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    by = None
    if ((ordered[1:] > ordered[:-1]) & (ranking[1:] == ranking[:-1])).any():
        by = np.lexsort((-ordered, ranking))
        ordered = ordered[by]
    above, below = ordered[:-1], ordered[1:]
    # Of single precision; six decimals round Anserini's steps by up to three times as much.
    spacing = np.spacing(np.maximum(np.abs(above), np.abs(below))).astype(np.float64)
    steps = above.astype(np.float64) - below
    is_tied = ((steps <= spacing) | (np.abs(steps - STEP) <= 3 * spacing)) & (ranking[1:] == ranking[:-1])
    places = np.arange(len(ordered))
    places[1:][is_tied] = 0
    first = ordered[np.maximum.accumulate(places)].astype(np.float64)
    if by is None:
        return first
    values = np.empty(len(by))
    values[by] = first
    return values


def bounds(scores: Scores, offsets: Integers) -> tuple[Scores, Scores]:
    """Return the lowest and the highest score of each ranking; 0 if it is empty."""
    filled, starts = np.diff(offsets) > 0, offsets[:-1]
    low, high = np.zeros((2, len(starts)))
    if len(scores):
        low[filled], high[filled] = (one.reduceat(scores, starts[filled]) for one in (np.minimum, np.maximum))
    return low, high


def min_max(scores: Scores, offsets: Integers, from_zero: npt.NDArray[np.bool_]) -> Normalized:
    """Scale scores from 0 (lowest) to 1 (highest); if all are equal, to 1. Missing documents get 0.

    :param from_zero: of which rankings the lowest score is 0, that of the documents that they lack.
    """
    low, high = bounds(scores, offsets)
    low = np.where(from_zero, np.minimum(low, 0), low)
    low, width = (np.repeat(values, np.diff(offsets)) for values in (low, high - low))
    scaled = np.divide(scores - low, width, out=np.ones(len(scores)), where=width > 0)
    return scaled, np.zeros(len(offsets) - 1)


def z_score(scores: Scores, offsets: Integers, from_zero: npt.NDArray[np.bool_]) -> Normalized:
    """Scale scores to mean 0 and standard deviation 1; if all are equal, to 0. Missing documents get the lowest."""
    sizes = np.diff(offsets)
    low, high = bounds(scores, offsets)

    def mean(values: Scores) -> Scores:
        total = np.zeros(len(sizes))
        if len(values):
            total[sizes > 0] = np.add.reduceat(values, offsets[:-1][sizes > 0]) / sizes[sizes > 0]
        return np.repeat(total, sizes)

    difference = scores - mean(scores)
    deviation = np.sqrt(mean(difference**2))
    scaled = np.divide(difference, deviation, out=np.zeros(len(scores)), where=np.repeat(high > low, sizes))
    return scaled, bounds(scaled, offsets)[0]


NORMALIZATIONS: Mapping[str, Callable[[Scores, Integers, npt.NDArray[np.bool_]], Normalized]] = {
    "min-max": min_max,
    "z-score": z_score,
}


def normalize(scores: npt.NDArray[np.floating], method: str, from_zero: bool = False) -> tuple[Scores, float]:
    """Normalise the scores of one ranking by a method of `NORMALIZATIONS`, as they are in a run file."""
    offsets = np.array([0, len(scores)])
    normalized, missing = NORMALIZATIONS[method](untied(scores, offsets), offsets, np.array([from_zero]))
    return normalized, float(missing[0])


def weigh(scores: Iterable[Scores], weights: Iterable[Any]) -> Scores:
    """Compute the weighted sum of the components' normalised scores of the same documents, in order.

    :param weights: a number for each component, or an array that fits its scores.
    """
    added = (weight * own for weight, own in zip(weights, scores, strict=True))
    return functools.reduce(operator.add, added)


def grouped(queries: Integers, by: Integers) -> Integers:
    """Group rows, which are in some order, by query; each group keeps this order."""
    # Of such small numbers, the sort takes linear time.
    own = queries[by].astype(np.uint16 if len(queries) == 0 or queries.max() < 1 << 16 else np.int64)
    order: Integers = by[np.argsort(own, kind="stable")]
    return order


@dataclass(frozen=True)
class Pool:
    """The documents of several queries that any component has, by query, then by doc_id.

    :ivar runs: of the components: rankings of the same queries in the same order, which may be empty.
    :ivar queries: position of the query of each document, (documents,).
    :ivar places: of each component, the place in the pool of each of its results.
    """

    runs: Sequence[Run]
    queries: Integers
    doc_ids: pa.Array
    places: Sequence[Integers]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Pool:
        """Pool the results of runs that have the same queries in the same order."""
        doc_ids = pa.concat_arrays([run.doc_ids.cast("string") for run in runs])
        queries, keys = np.concatenate([run.query_numbers() for run in runs]), sort_keys(doc_ids)
        by = grouped(queries, np.argsort(keys))
        is_first = np.ones(len(by), dtype=bool)
        is_first[1:] = (np.diff(queries[by]) != 0) | (keys[by[1:]] != keys[by[:-1]])
        places = np.empty(len(by), dtype=np.int64)
        places[by] = np.cumsum(is_first) - 1
        ends = np.cumsum([len(run.doc_ids) for run in runs])
        first = by[is_first]
        return cls(runs, queries[first], doc_ids.take(first), np.split(places, ends[:-1]))

    def ranks(self) -> Integers:
        """Return the rank of each document in each component, from 1; 0 if it is missing (components, documents)."""
        ranks = np.zeros((len(self.runs), len(self.queries)), dtype=np.int64)
        for own, run, places in zip(ranks, self.runs, self.places, strict=True):
            own[places] = run.ranks()
        return ranks

    def scores(self, settings: FusionSettings) -> Scores:
        """Return the normalised scores of all documents by each component (components, documents).

        With `min-max`, missing documents get 0, as if the term were omitted, and so does the last result of a ranking.
        It gets more if documents are scored `from_zero` and the ranking is shorter than `depth`: then it is complete,
        and 0 is the score of the documents that it lacks (the theoretical minimum of Bruch et al. 2023).
        """
        columns = np.empty((len(self.runs), len(self.queries)))
        flags = settings.from_zero or (False,) * len(self.runs)
        for own, run, places, from_zero in zip(columns, self.runs, self.places, flags, strict=True):
            is_complete = (np.diff(run.offsets) < settings.depth) & from_zero
            scores = untied(run.scores, run.offsets)
            scaled, missing = NORMALIZATIONS[settings.normalization](scores, run.offsets, is_complete)
            own[:] = missing[self.queries]
            own[places] = scaled
        return columns

    def weights(self, settings: FusionSettings) -> Scores:
        """Return the weight of each component for each document (components, documents)."""
        default = settings.weights or (1 / len(self.runs),) * len(self.runs)
        own = [settings.own.get(query_id, default) for query_id in self.runs[0].query_ids]
        return np.array(own).reshape(-1, len(self.runs)).T[:, self.queries]

    def ranked(self, scores: Scores, depth: int) -> Run:
        """Rank the documents of each query by (-score, doc_id), and cut the rankings."""
        query_ids = self.runs[0].query_ids
        # The sort is stable, and the documents of a query are ordered by id.
        by = grouped(self.queries, np.argsort(-scores, kind="stable"))
        sizes = np.bincount(self.queries, minlength=len(query_ids))
        return top(Run.of_sizes(query_ids, sizes, self.doc_ids.take(by), scores[by]), depth)
