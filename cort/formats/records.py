"""The vocabulary of the project: the field's own names, ids as strings end to end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Measures need memory for every grade up to the highest.
LARGEST_GRADE = 1000


class Text(NamedTuple):
    """A passage, the unit of retrieval, or a query."""

    id: str
    text: str


class Qrel(NamedTuple):
    """One judgement; `relevance` is the grade, 0 and below meaning not relevant."""

    query_id: str
    doc_id: str
    relevance: int


class Ranking(NamedTuple):
    """The result list of one query, best first; ``doc_ids[i]`` has rank ``i + 1`` and ``scores[i]``."""

    query_id: str
    doc_ids: list[str]
    scores: npt.NDArray[np.floating]
