"""The first pass of a search: from approximate scores with bounded errors, every passage that may be in the top k."""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cort.formats.shards import Matrix
from cort.retrieval.vectors import PassageVectors, StackedVectors
from cort.runtime.errors import input_error

# Passages whose scores a CPU compares as a group, because selecting takes longer than computing them.
GROUP = 16
# Sample for estimating the score threshold: one passage in SAMPLED, but FEWEST to MOST passages.
SAMPLED, FEWEST, MOST = 16, 4_096, 32_768
# Candidates are filtered once there are this many times `depth` of them per query.
FILTERED_AT = 4
# Safety of the estimated threshold, in standard deviations of the number of top results in the sample.
DEVIATIONS = 4
# Scores held at once on a CPU: 8 MB, which fit in its caches; on a GPU, which starts several kernels for each selection
# and waits for them, 1 GB.
SCORES_AT_ONCE = {"cpu": 1 << 21, "cuda": 1 << 28}
# Products of longer vectors could exceed single precision.
LONGEST = 1e18
UNIT_ROUNDOFF = 2.0**-24
# Smaller numbers, terms and sums alike, lose digits in single precision or underflow.
SMALLEST = 2.0**-125
# The source of queries, in messages.
QUERIES = "the queries' embeddings"


class FirstPass(NamedTuple):
    """Scores of a sample of passages, (queries, sample), and a function that computes those of all.

    The scores of each query are in a unit of its own. `margins`, (1, queries), are twice the largest error of a score,
    as both sides of a comparison may err. `scores` yields the first row and the scores, (rows, queries), of consecutive
    passages, of which so many are compared as a group.
    """

    sampled: Tensor
    margins: Tensor
    scores: Callable[[], Iterator[tuple[int, Tensor]]]
    group: int | None = None


def scores_at_once(device: str, queries: int) -> int:
    """Return of how many passages to hold the scores for so many queries."""
    return max(SCORES_AT_ONCE[torch.device(device).type] // queries, 1)


def score_blocks(
    rows: range, queries: int, at_once: int, device: str, multiply: Callable[[range, Tensor], object]
) -> Iterator[tuple[int, Tensor]]:
    """Multiply passages in some rows with queries, at most `at_once` of them at a time.

    :param multiply: writes the scores of some rows to a tensor, (rows, queries); its memory is reused.
    :returns: yields the first row and the scores of each block.
    """
    memory = torch.empty(min(at_once, len(rows)), queries, device=device)
    for start in range(0, len(rows), len(memory)):
        block = rows[start : start + len(memory)]
        multiply(block, memory[: len(block)])
        yield block.start, memory[: len(block)]


def moved(vectors: StackedVectors, rows: range, device: str) -> Iterator[tuple[slice, Tensor]]:
    """Yield the vectors in some rows in single precision, on a device; each piece with its place among these."""
    for row, piece in vectors.pieces(rows.start, rows.stop):
        start = row - rows.start
        yield slice(start, start + len(piece)), as_tensor(piece).to(device, torch.float32)


def sample_step(count: int) -> int:
    """Return the step with which `count` passages are sampled."""
    return max(count // min(max(count // SAMPLED, FEWEST), MOST), 1)


def estimate_threshold(sampled: Tensor, count: int, depth: int, caution: int) -> Tensor:
    """Estimate a score that `depth` passages reach, but hardly more; it must be verified afterwards.

    :param sampled: scores of a sample of the `count` passages, (queries, sample).
    :param caution: 1, or more if the last estimate was too high.
    :returns: (1, queries); -inf if the sample is too small.
    """
    size = sampled.shape[1]
    expected = depth * size / count
    rank = caution * math.ceil(expected + DEVIATIONS * math.sqrt(expected) + 2)
    if rank > size:
        return torch.full((1, len(sampled)), -torch.inf, device=sampled.device)
    return sampled.topk(rank, dim=1, sorted=False).values.amin(1)[None]


class CandidateFilter:
    """If at least `depth` scores reach the estimated threshold, these are the candidates for the top `depth`."""

    def __init__(self, estimated: Tensor, margins: Tensor, depth: int, group: int | None = None) -> None:
        """Take estimated thresholds, (1, queries), or -inf, and the margins and the group of a `FirstPass`."""
        self._estimated, self._margins, self._depth, self._group = estimated, margins, depth, group or GROUP
        # Scores that `depth` passages reach if the estimate is right; (1, queries).
        self._reached = estimated
        # Queries, rows and scores of candidates, their number, and the number at which they are filtered.
        self._held: list[tuple[Tensor, Tensor, Tensor]] = []
        self._count, self._filter_at = 0, FILTERED_AT * depth * estimated.shape[1]

    def add(self, first: int, scores: Tensor) -> None:
        """Keep those passages that may be among the top `depth`: from row `first` on, with scores (rows, queries)."""
        whole = len(scores) // self._group * self._group
        if self._group > 1 and whole:
            self._add_groups(first, scores[:whole].view(self._group, -1, scores.shape[1]))
            first, scores = first + whole, scores[whole:]
        if len(scores):
            limits = self._reached - self._margins  # (1, queries)
            place, queries = (scores >= limits).nonzero().unbind(1)
            self._hold(queries, first + place, scores[place, queries])
        if self._count > self._filter_at:
            self._filter()

    def _hold(self, queries: Tensor, rows: Tensor, scores: Tensor) -> None:
        self._held.append((queries, rows, scores))
        self._count += len(rows)

    def _add_groups(self, first: int, scores: Tensor) -> None:
        """Add scores of shape (group size, groups, queries), with rows numbered along the first two axes."""
        limits = self._reached - self._margins  # (1, queries)
        highest = torch.amax(scores, 0, out=torch.empty_like(scores[0]))  # faster in the layout of the scores
        chosen, queries = (highest >= limits).nonzero().unbind(1)
        members = scores[:, chosen, queries]  # (group size, chosen groups)
        place, which = (members >= limits[0, queries]).nonzero().unbind(1)
        rows = first + place * scores.shape[1] + chosen[which]
        self._hold(queries[which], rows, members[place, which])

    def rows(self) -> tuple[Tensor, bool]:
        """Return the rows of all candidates, padded with -1, (queries, candidates), and whether they are complete.

        Candidates are missing if a threshold was too high.
        """
        rows, scores = self._tables()
        enough = (scores >= self._estimated.T).sum(1) >= self._depth
        complete = bool((enough | self._estimated[0].isneginf()).all())
        return rows.where(scores >= (self._floor(scores) - self._margins).T, -1), complete

    def _filter(self) -> None:
        """Drop candidates that can no longer be among the top `depth`."""
        rows, scores = self._tables()
        self._reached = torch.maximum(self._reached, self._floor(scores))
        queries, columns = (scores >= (self._reached - self._margins).T).nonzero().unbind(1)
        kept = rows[queries, columns] >= 0
        queries, columns = queries[kept], columns[kept]
        self._held = [(queries, rows[queries, columns], scores[queries, columns])]
        self._count = len(queries)
        self._filter_at = max(self._filter_at, 2 * self._count)

    def _floor(self, scores: Tensor) -> Tensor:
        """Return a score that `depth` candidates reach, or -inf, (1, queries), from scores, (queries, candidates)."""
        if scores.shape[1] < self._depth:
            return torch.full_like(self._estimated, -torch.inf)
        return scores.topk(self._depth, dim=1, sorted=False).values.amin(1)[None]

    def _tables(self) -> tuple[Tensor, Tensor]:
        """Arrange candidates in tables of rows and scores, (queries, candidates), padded with -1 and -inf."""
        queries, rows, scores = (torch.cat(column) for column in zip(*self._held, strict=True))
        if self._estimated.shape[1] == 1:
            return rows[None], scores[None]
        queries, order = queries.sort(stable=True)
        counts = torch.bincount(queries, minlength=self._estimated.shape[1])
        columns = torch.arange(len(queries), device=queries.device) - (counts.cumsum(0) - counts)[queries]
        shape, places = (len(counts), int(counts.max())), (queries, columns)
        return (
            torch.full(shape, -1, device=rows.device).index_put_(places, rows[order]),
            torch.full(shape, -torch.inf, device=scores.device).index_put_(places, scores[order]),
        )


def bound_errors(products: Tensor, dimension: int) -> Tensor:
    """Bound the errors of inner products in single precision by the products of the vectors' lengths.

    With e terms they are below e u / (1 - e u) of these, u = 2^-24, in any order of summation; 8 more terms and 1 %
    cover the rounding of exact scores and of the lengths. Underflow is added.
    """
    return 1.01 * (dimension + 8) * (products * UNIT_ROUNDOFF + SMALLEST)


def bound_rounding(norms: Tensor, residuals: Tensor, longest: float, residual: float) -> Tensor:
    """Bound how far products of rounded vectors are from those of the vectors, by Cauchy-Schwarz; shape (queries, 1).

    With rounding residuals r = q - q' of queries and d - d' of passages::

        |q.d - q'.d'| <= |q| |d - d'| + |q - q'| |d'|

    :param norms: lengths of the queries and, `residuals`, of their residuals, (queries, 1).
    :param longest: largest length of a passage and, `residual`, of its residual.
    """
    return 1.01 * (norms * residual + residuals * (longest + residual))


def norms_of(vectors: Tensor) -> Tensor:
    """Return the lengths of vectors, (rows, 1), rounded up where their squares underflow in single precision."""
    norms: Tensor = vectors.norm(dim=1, keepdim=True) + math.sqrt(vectors.shape[1] * SMALLEST)
    return norms


def vector_norms(vectors: Tensor, source: str) -> Tensor:
    """Return the lengths of vectors, (rows, 1); refuse NaN, infinite and very large values."""
    norms = norms_of(vectors)
    if not bool((norms < LONGEST).all()):
        found = "a vector with NaN, infinite or very large values"
        raise input_error(source, found, f"a length below {LONGEST:g}", "train or encode again")
    return norms


def longest_of(vectors: PassageVectors, rows: range, device: str) -> float:
    """Return a length that no vector in some rows exceeds: what the files say, or else that of the longest."""
    if vectors.longest:
        return vectors.longest
    return max(float(vector_norms(piece, vectors.source).max()) for _, piece in moved(vectors, rows, device))


def as_tensor(vectors: Matrix) -> Tensor:
    """Make a tensor that shares the memory of an array, which may be read-only; nothing writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(vectors)
