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
    queries, documents = pa.array(reference.query_ids, pa.string()), pc.unique(reference.doc_ids)

    def pairs(one: Run) -> npt.NDArray[np.int64]:
        """Give each result a number for its query and document; -1 where the reference does not know either."""
        query = positions(pa.array(one.query_ids, pa.string()), queries)[one.query_numbers()]
        document = positions(one.doc_ids, documents)
        return np.where((query < 0) | (document < 0), -1, query * len(documents) + document)

    inside = np.isin(pairs(run), pairs(reference)[reference.ranks() <= reference_depth]).astype(np.int64)
    # counted[i] is the number of documents before position i of the whole run that the reference has too.
    counted = np.concatenate([[0], np.cumsum(inside)])
    starts = run.offsets[:-1]
    found = []
    for depth in depths:
        kept = np.minimum(np.diff(run.offsets), depth)
        found.append(float(np.mean((counted[starts + kept] - counted[starts]) / kept)))
    return found
