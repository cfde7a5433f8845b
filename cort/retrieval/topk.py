"""The passages that can be among the best of a query, out of scores that come in batches; and the best of them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

Scores: TypeAlias = npt.NDArray[np.float32]
Places: TypeAlias = npt.NDArray[np.int64]

# With so few queries at once a processor waits for memory: each product by itself, in threads, is the fastest.
FEW = 3
# Passages whose scores are looked at together, for few queries and for many.
FEW_GROUP, GROUP = 32, 8
# Candidates are sifted when a query may have this many times `depth`; a few spare ones come cheaper than a second look.
SIFTED_AT, SPARE = 2, 32


class Alphabet:
    """Ids of all passages by their places in alphabetical order, which decides between equal scores."""

    def __init__(self, ids: pa.ChunkedArray) -> None:
        by_id = pc.sort_indices(ids).to_numpy()
        self._places = np.empty(len(ids), dtype=np.int64)
        self._places[by_id] = np.arange(len(ids))
        self._sorted = ids.combine_chunks().take(pa.array(by_id))

    def __len__(self) -> int:
        return len(self._places)

    def ids(self, places: Places) -> list[str]:
        """Document ids by their places."""
        found: list[str] = self._sorted.take(pa.array(places)).to_pylist()
        return found

    def best(self, scores: Scores, rows: Places, depth: int) -> tuple[Scores, Places]:
        """Order passages of some rows by (-score, doc_id); the first `depth` scores and places."""
        # Adding 0 makes -0 into 0, which is its equal but looks different.
        scores = scores + np.float32(0)
        places = self._places[rows]
        best = np.lexsort((places, -scores))[:depth]
        return scores[best], places[best]


class Sieve:
    """Candidates of some queries, among scores that come in batches."""

    def __init__(self, queries: int, depth: int, device: str) -> None:
        self._queries, self._depth = queries, depth
        # Of each query: a score that `depth` passages reach, and the largest margin so far.
        self._reached = torch.full((1, queries), -torch.inf, device=device)
        self._margins = torch.zeros((1, queries), device=device)
        # Tables of scores and of rows, (queries, candidates) each; -inf and -1 where a query has fewer.
        self._found: list[tuple[Tensor, Tensor]] = []
        self._sifted = False

    def group_size(self, count: int) -> int:
        """Scores of a batch of `count` that are looked at together; at first at least twice `depth` groups."""
        size = FEW_GROUP if self._queries <= FEW else GROUP
        return size if self._sifted else min(max(count // (2 * self._depth), 1), size)

    def add(self, scores: Tensor, first: int, margins: Tensor) -> None:
        """Take in scores of shape (group size, groups, queries), of passages numbered along the first two axes.

        :param first: row of the first passage.
        :param margins: twice the largest error of a score, of shape (1, queries).
        """
        groups = scores.shape[1]
        largest = scores.amax(0)  # (groups, queries)
        if not self._sifted and groups >= self._depth:
            self._reached = largest.T.topk(self._depth, dim=1, sorted=False).values.amin(1)[None]
        self._margins = torch.maximum(self._margins, margins)
        limits = self._reached - self._margins  # (1, queries)
        queries, chosen = (largest >= limits).T.nonzero().unbind(1)
        members = scores[:, chosen, queries].T  # (chosen groups, group size)
        # What fills the last group is not a score.
        which, place = ((members >= limits[0, queries, None]) & (members > -torch.inf)).nonzero().unbind(1)
        self._found.append(self._table(queries[which], first + place * groups + chosen[which], members[which, place]))
        if not self._sifted or sum(table.shape[1] for table, _ in self._found) >= SIFTED_AT * self._depth:
            self._sift()

    def left(self) -> Tensor:
        """Return the rows of the candidates that are left after all batches, and -1; shape (queries, candidates)."""
        self._sift()
        scores, rows = self._found[0]
        return rows.where(scores >= (self._reached - self._margins).T, -1)

    def _table(self, queries: Tensor, rows: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Put candidates, which come query by query, in tables."""
        counts = torch.bincount(queries, minlength=self._queries)
        columns = torch.arange(len(queries), device=queries.device) - (counts.cumsum(0) - counts)[queries]
        shape = (self._queries, int(counts.max()))
        places = (queries, columns)
        table = torch.full(shape, -torch.inf, device=scores.device).index_put_(places, scores)
        return table, torch.full(shape, -1, device=scores.device).index_put_(places, rows)

    def _sift(self) -> None:
        """Keep, of each query, the best candidates and all that may be as good."""
        scores, rows = (torch.cat(tables, dim=1) for tables in zip(*self._found, strict=True))
        if scores.shape[1] > self._depth:
            best = scores.topk(min(self._depth + SPARE, scores.shape[1]), dim=1)
            self._reached = best.values[:, self._depth - 1][None]
            needed = int((scores >= (self._reached - self._margins).T).sum(1).max())
            if needed > best.values.shape[1]:
                best = scores.topk(needed, dim=1)
            scores, rows = best.values, rows.gather(1, best.indices)
        self._found = [(scores, rows)]
        self._sifted = True
