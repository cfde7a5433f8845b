"""The records that all formats share, named as in the field; ids are always strings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Measures need memory for every grade up to the largest.
LARGEST_GRADE = 1000


class Text(NamedTuple):
    """A passage, the unit of retrieval, or a query."""

    id: str
    text: str


class Qrel(NamedTuple):
    """One judgement; `relevance` is the grade, and 0 or less means not relevant."""

    query_id: str
    doc_id: str
    relevance: int


class Ranking(NamedTuple):
    """The results of one query, best first; ``doc_ids[i]`` has rank ``i + 1`` and ``scores[i]``."""

    query_id: str
    doc_ids: list[str]
    scores: npt.NDArray[np.floating]
