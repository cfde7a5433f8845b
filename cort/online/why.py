"""Why a system ranks a passage where it does: what its score is made of, down to the terms of BM25."""

from __future__ import annotations

from dataclasses import dataclass

from cort.formats.records import Ranking
from cort.online.searcher import Searcher
from cort.systems.live import Reason


@dataclass
class Case:
    """A query, a passage, and the ranking of a system that is to be explained."""

    searcher: Searcher
    name: str
    text: str
    doc_id: str
    depth: int
    ranking: Ranking

    def place(self) -> tuple[int, float] | tuple[None, None]:
        """Return rank and score of the passage."""
        if self.doc_id not in self.ranking.doc_ids:
            return None, None
        place = self.ranking.doc_ids.index(self.doc_id)
        return place + 1, float(self.ranking.scores[place])

    def reason(self, about: str, **more: object) -> Reason:
        """Make the reason of the passage's rank and score."""
        rank, score = self.place()
        kind = self.searcher.opened[self.name].method
        return Reason(self.name, kind, rank, score, about, **more)  # type: ignore[arg-type]

    def explain(self) -> Reason:
        """Explain the rank of the passage."""
        return self.searcher.opened[self.name].explain(self)

    def part(self, name: str) -> Case:
        """Search with a part of the system, for as many results as the system needs from it."""
        return _search(self.searcher, name, self.text, self.doc_id, self.searcher.needed(self.name, self.depth))


def explain(searcher: Searcher, system: str, text: str, doc_id: str) -> Reason:
    """Explain how a system ranks a passage for a query.

    :raises InputError: for a system that is not open, an unknown passage, or a query without a word.
    """
    searcher.passages.rows([doc_id])
    return _search(searcher, system, text, doc_id, searcher.depth).explain()


def _search(searcher: Searcher, system: str, text: str, doc_id: str, depth: int) -> Case:
    [ranking], _ = searcher.search_batch(system, [text], depth)
    return Case(searcher, system, text, doc_id, depth, ranking)
