"""Records that all formats share, with the field's usual names; ids are always strings."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Item = TypeVar("Item")
#: text of a document without any: nothing is indexed for it, but its id stays known
EMPTY = "."


def offsets_of(counts: npt.ArrayLike) -> Integers:
    """Return where each of several consecutive groups begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def in_blocks(items: Iterable[Item], size: Callable[[Item], int], least: int) -> Iterator[list[Item]]:
    """Divide a stream into lists whose sizes add up to `least` or more, except the last one."""
    block, total = list[Item](), 0
    for item in items:
        block.append(item)
        total += size(item)
        if total >= least:
            yield block
            block, total = [], 0
    if block:
        yield block


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
