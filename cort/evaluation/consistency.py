"""How far a run stays within a reference run: RepBERT's consistency factor (section 4.4.3 and Figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.artifacts import Node
from cort.formats.ids import positions
from cort.formats.runs import Run

REFERENCE_DEPTH = 1000


@dataclass(frozen=True)
class Consistency:
    """The consistency factor of one run, by depth; `queries` are those that it answers."""

    system: str
    split: str
    reference: str
    queries: int
    depths: list[int]
    consistency: list[float | None]

    def check(self, node: Node) -> None:
        """Refuse values that do not belong to a depth each."""
        found, expected = len(self.consistency), len(self.depths)
        if found != expected:
            raise node["consistency"].complain(f"{found} values", f"{expected}, one per depth")


def consistency(run: Run, reference: Run, depths: Sequence[int], reference_depth: int = REFERENCE_DEPTH) -> list[float]:
    """Compute C(run, n) for each n of `depths`; an empty run has none (an error of the caller)."""
    inside = _is_inside(run, reference, reference_depth).astype(np.int64)
    sizes = np.diff(run.offsets)
    # counted[i] is the number of documents before position i of the whole run that the reference has too.
    counted = np.concatenate([[0], np.cumsum(inside)])
    starts = run.offsets[:-1]
    found = []
    for depth in depths:
        kept = np.minimum(sizes, depth)
        found.append(float(np.mean((counted[starts + kept] - counted[starts]) / kept)))
    return found


def _is_inside(run: Run, reference: Run, reference_depth: int) -> npt.NDArray[np.bool_]:
    """Whether each result of the run is among the first results of the reference for the same query."""
    numbers = {query_id: number for number, query_id in enumerate(reference.query_ids)}
    documents = pc.unique(reference.doc_ids)
    near = np.flatnonzero(reference.ranks() <= reference_depth)
    known = _pairs(reference, np.arange(len(reference)), documents)[near]
    asked = _pairs(run, np.array([numbers.get(query_id, -1) for query_id in run.query_ids], dtype=np.int64), documents)
    return np.isin(asked, known) & (asked >= 0)


def _pairs(run: Run, queries: npt.NDArray[np.int64], documents: pa.Array) -> npt.NDArray[np.int64]:
    """Give each result a number for its query and document; -1 where either is unknown.

    :param queries: one number per query of the run, -1 for an unknown one.
    """
    found, of_query = positions(run.doc_ids, documents), queries[run.query_numbers()]
    pairs: npt.NDArray[np.int64] = np.where((found < 0) | (of_query < 0), -1, of_query * len(documents) + found)
    return pairs
