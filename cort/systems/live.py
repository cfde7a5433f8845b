"""What systems use of a searcher that answers and explains single queries; `cort/online` has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from cort.config.systems import Reduced
    from cort.formats.records import Ranking

Rows: TypeAlias = list[list[str | float | int | None]]
#: width of the searches of an index, by the fingerprint of the model that made its vectors
WidthFor: TypeAlias = Callable[[str], float]


@dataclass(frozen=True)
class Reason:
    """The score of a passage by a system, or by a model in it: an explanation, a table, and the reasons of its parts.

    `rank` and `score` are None if the passage is not among the results. If `total` is true, the last column of the
    table adds up to the score.
    """

    system: str
    kind: str
    rank: int | None
    score: float | None
    about: str
    columns: list[str] = field(default_factory=list)
    rows: Rows = field(default_factory=list)
    total: bool = False
    parts: list[Reason] = field(default_factory=list)


class Retriever(NamedTuple):
    """How a system retrieves: the encoder of queries, and the index that ranks passages for their vectors."""

    encoder: Any
    vector_index: Any


class Opening(Protocol):
    """Opens models and indexes by their names; systems share them where they can."""

    def exact(self, encoder: str, reduced: Reduced) -> Retriever:
        """Open an encoder and its vectors of all passages, or smaller ones."""

    def sparse(self, encoder: str) -> Retriever:
        """Open a sparse encoder."""

    def tokens(self, token_encoder: str) -> Retriever:
        """Open a late-interaction model and the token vectors of all passages."""

    def graph(self, encoder: str, kind: str, folder: Path, width_for: WidthFor) -> Retriever:
        """Open an encoder and a graph."""

    def ivfpq(self, name: str, folder: Path, width_for: WidthFor, candidates: int) -> Retriever:
        """Open an encoder or late-interaction model and its IVF-PQ index, which gives `candidates` for each vector."""


class Batch(Protocol):
    """Queries that are searched together, and the vectors that systems share.

    :ivar searcher: has `lucene`, `passages`, and `models` with `retrievers` and `rerankers`.
    """

    searcher: Any
    texts: Sequence[str]

    def timed(self, part: str) -> AbstractContextManager[None]:
        """Measure the time of a part."""

    def vectors(self, encoder: Any) -> Any:
        """Encode the queries, once per encoder."""

    def as_in_run(self, ranking: Ranking) -> Ranking:
        """Give a ranking the scores that a run file would have."""


class Case(Protocol):
    """A query, a passage, and the ranking of a system that is to be explained.

    :ivar searcher: as of a batch.
    :ivar name: of the system.
    """

    searcher: Any
    name: str
    text: str
    doc_id: str
    ranking: Ranking

    def place(self) -> tuple[int, float] | tuple[None, None]:
        """Return rank and score of the passage."""

    def part(self, name: str) -> Case:
        """Search with a part of the system, for as many results as the system needs from it."""

    def explain(self) -> Reason:
        """Explain the rank of the passage."""

    def reason(self, about: str, **more: object) -> Reason:
        """Make the reason of the passage's rank and score."""
