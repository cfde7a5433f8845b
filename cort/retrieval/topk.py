"""Selection of the top k: from batches of approximate scores, every passage that may be among them."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from cort.formats.ids import alphabetic_codes, joined
from cort.retrieval.vectors import Rows, Vectors

# Passages whose scores are compared as a group.
GROUP = 16
# Sample for estimating the score threshold: one passage in SAMPLED, but FEWEST to MOST passages.
SAMPLED, FEWEST, MOST = 16, 4_096, 32_768
# Candidates are filtered once there are this many times `depth` of them per query.
SIFTED_AT = 4
# Safety of the estimated threshold, in standard deviations of the number of top results in the sample.
DEVIATIONS = 4


class DocIds:
    """The doc_ids of all passages by row; they break ties."""

    def __init__(self, ids: pa.ChunkedArray) -> None:
        self._ids = joined(ids)

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, rows: Rows) -> list[str]:
        """Look up doc_ids."""
        doc_ids: list[str] = self._ids.take(pa.array(rows)).to_pylist()
        return doc_ids

    def best(self, scores: Vectors, rows: Rows, depth: int) -> tuple[Vectors, Rows]:
        """Order the passages in these rows by (-score, doc_id); return the top `depth` scores and rows."""
        # Adding 0 turns -0 into 0, which is equal but has different bytes.
        scores = scores + np.float32(0)
        if len(scores) > depth > 0:
            least = np.partition(scores, len(scores) - depth)[len(scores) - depth]
            rows, scores = rows[scores >= least], scores[scores >= least]
        order = np.argsort(-scores, kind="stable")
        rows, scores = rows[order], scores[order]
        equal = np.concatenate([[False], scores[1:] == scores[:-1], [False]])
        tied = np.flatnonzero(equal[1:] | equal[:-1])
        if len(tied):
            by = np.lexsort((alphabetic_codes(self._ids.take(pa.array(rows[tied]))), -scores[tied]))
            rows[tied] = rows[tied[by]]
        return scores[:depth], rows[:depth]


class Scores(NamedTuple):
    """Scores of consecutive passages, from row `first` on, for all queries.

    `values` has the shape (group size, groups, queries), with rows numbered along the first two axes; the last group is
    padded with -inf. `units`, (1, queries), are the positive factors that turn them into
    scores.
    """

    first: int
    values: Tensor
    units: Tensor


class FirstPass(NamedTuple):
    """Scores of a sample of passages, (queries, sample), and a function that computes those of all, in batches.

    `margins`, (1, queries), are twice the largest error of a score, as both sides of a comparison may err.
    """

    sampled: Tensor
    margins: Tensor
    scores: Callable[[], Iterator[Scores]]


def sample_step(count: int) -> int:
    """Return the step with which `count` passages are sampled."""
    return max(count // min(max(count // SAMPLED, FEWEST), MOST), 1)


def guess(sampled: Tensor, count: int, depth: int, slack: int) -> Tensor:
    """Estimate a score that `depth` passages reach, but hardly more; it must be verified afterwards.

    :param sampled: scores of a sample of the `count` passages, (queries, sample).
    :param slack: 1, or more if the last estimate was too high.
    :returns: (1, queries); -inf if the sample is too small.
    """
    size = sampled.shape[1]
    expected = depth * size / count
    rank = slack * math.ceil(expected + DEVIATIONS * math.sqrt(expected) + 2)
    if rank > size:
        return torch.full((1, len(sampled)), -torch.inf, device=sampled.device)
    return sampled.topk(rank, dim=1, sorted=False).values.amin(1)[None]


class Sieve:
    """If at least `depth` scores reach the estimated threshold, these are the candidates for the top `depth`."""

    def __init__(self, guessed: Tensor, margins: Tensor, depth: int) -> None:
        """Take estimated thresholds, (1, queries), or -inf, and the margins of a `FirstPass`."""
        self._guessed, self._margins, self._depth = guessed, margins, depth
        # Scores that `depth` passages reach if the estimate is right; (1, queries).
        self._reached = guessed
        # Queries, rows and scores of candidates, their number, and the number at which they are filtered.
        self._held: list[tuple[Tensor, Tensor, Tensor]] = []
        self._count, self._sift_at = 0, SIFTED_AT * depth * guessed.shape[1]

    def add(self, scores: Scores) -> None:
        """Keep the passages that may be among the top `depth`."""
        values, units = scores.values, scores.units
        groups = values.shape[1]
        limits = (self._reached - self._margins) / units  # (1, queries)
        highest = torch.amax(values, 0, out=torch.empty_like(values[0]))  # faster in the layout of the values
        chosen, queries = (highest >= limits).nonzero().unbind(1)
        members = values[:, chosen, queries]  # (group size, chosen groups)
        place, which = ((members >= limits[0, queries]) & (members > -torch.inf)).nonzero().unbind(1)
        query = queries[which]
        rows = scores.first + place * groups + chosen[which]
        self._held.append((query, rows, members[place, which] * units[0, query]))
        self._count += len(query)
        if self._count > self._sift_at:
            self._sift()

    def left(self) -> tuple[Tensor, bool]:
        """Return the rows of all candidates, padded with -1, (queries, candidates), and whether they are complete.

        Candidates are missing if a threshold was too high.
        """
        rows, scores = self._tables()
        enough = (scores >= self._guessed.T).sum(1) >= self._depth
        complete = bool((enough | self._guessed[0].isneginf()).all())
        return rows.where(scores >= (self._floor(scores) - self._margins).T, -1), complete

    def _sift(self) -> None:
        """Drop candidates that can no longer be among the top `depth`."""
        rows, scores = self._tables()
        self._reached = torch.maximum(self._reached, self._floor(scores))
        queries, columns = (scores >= (self._reached - self._margins).T).nonzero().unbind(1)
        kept = rows[queries, columns] >= 0
        queries, columns = queries[kept], columns[kept]
        self._held = [(queries, rows[queries, columns], scores[queries, columns])]
        self._count = len(queries)
        self._sift_at = max(self._sift_at, 2 * self._count)

    def _floor(self, scores: Tensor) -> Tensor:
        """Return a score that `depth` candidates reach, or -inf, (1, queries), from scores, (queries, candidates)."""
        if scores.shape[1] < self._depth:
            return torch.full_like(self._guessed, -torch.inf)
        return scores.topk(self._depth, dim=1, sorted=False).values.amin(1)[None]

    def _tables(self) -> tuple[Tensor, Tensor]:
        """Arrange candidates in tables of rows and scores, (queries, candidates), padded with -1 and -inf."""
        queries, rows, scores = (torch.cat(column) for column in zip(*self._held, strict=True))
        queries, order = queries.sort(stable=True)
        counts = torch.bincount(queries, minlength=self._guessed.shape[1])
        columns = torch.arange(len(queries), device=queries.device) - (counts.cumsum(0) - counts)[queries]
        shape, places = (len(counts), int(counts.max())), (queries, columns)
        return (
            torch.full(shape, -1, device=rows.device).index_put_(places, rows[order]),
            torch.full(shape, -torch.inf, device=scores.device).index_put_(places, scores[order]),
        )
