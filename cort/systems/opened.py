"""A system as a searcher answers single queries with it; each kind that can has a subclass in its own file.

Modules that load torch or numpy are imported where they are used: the workflow imports this package, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from cort.formats.records import Ranking
    from cort.online.alignment import Match
    from cort.online.neural import Opening, Retriever
    from cort.online.searcher import Batch
    from cort.online.why import Case, Reason, Rows

#: what the manifest says of a system
Entry: TypeAlias = Mapping[str, Any]
#: sets of keys
Keys: TypeAlias = Sequence[tuple[str, ...]]

MATCHES = "Each query token adds its weight times its similarity to the nearest token of the passage."
MATCH_COLUMNS = ["token", "nearest in the passage", "similarity", "weight", "adds"]


class Opened:
    """A system of a searcher, made from its entry in the manifest (see `cort.online.manifest`).

    :cvar kinds: the values of `kind` it answers for, and the sets of keys that an entry of this kind may have.
    :cvar needs_all: whether the first results depend on how many are retrieved.
    :cvar neural: whether it needs models.
    :cvar batches: whether several queries are searched faster together.
    """

    kinds: ClassVar[Mapping[str, Keys]] = {}
    needs_all: ClassVar[bool] = False
    neural: ClassVar[bool] = False
    batches: ClassVar[bool] = True

    def __init__(self, name: str, entry: Entry) -> None:
        """Take the entry and read what was tuned."""
        self.name, self.entry = name, entry

    @property
    def lexical_index(self) -> str | None:
        """Name of the term-based index that it searches."""
        return self.entry.get("lexical")

    @property
    def depends_on_depth(self) -> bool:
        """Whether its first results depend on how many are retrieved."""
        return self.needs_all

    def parts(self) -> list[str]:
        """List the systems whose rankings it is made from."""
        return []

    def candidates(self) -> int:
        """Count the results that it needs from its parts at least."""
        return 0

    def retriever(self, opening: Opening) -> Retriever | None:
        """Open what encodes queries and ranks passages by vectors, if it does."""
        return None

    def search(self, batch: Batch, depth: int) -> list[Ranking]:
        """Rank passages for each query of a batch; only asked of a system without parts."""
        raise NotImplementedError

    def combine(self, batch: Batch, parts: Sequence[Sequence[Ranking]], depth: int) -> list[Ranking]:
        """Rank passages for each query from the rankings of the parts; only asked of a system with parts."""
        raise NotImplementedError

    def explain(self, case: Case) -> Reason:
        """Explain the rank of a passage; a kind without an explanation of its own shows the ranks in its parts."""
        parts = [case.part(name) for name in self.parts()]
        rows: Rows = [[part.name, *part.place()] for part in parts]
        about = "The score follows from the rankings of the parts." if parts else "The score has no parts."
        reasons = [part.explain() for part in parts]
        return case.reason(about, columns=["part", "rank", "score"], rows=rows, parts=reasons)


class VectorSearch(Opened):
    """A system that searches the vectors of an encoder, or of the tokens of passages."""

    neural: ClassVar[bool] = True

    def search(self, batch: Batch, depth: int) -> list[Ranking]:
        """Encode the queries, unless another system of the batch has, and search."""
        encoder, index = batch.searcher.models.retrievers[self.name]
        vectors = batch.vectors(encoder)
        with batch.timed("search"):
            return index.search(vectors, depth)


def match_rows(matches: Sequence[Match]) -> Rows:
    """Rows of a table with `MATCH_COLUMNS`."""
    return [
        [match.token, match.match, match.similarity, match.weight, match.weight * match.similarity] for match in matches
    ]
