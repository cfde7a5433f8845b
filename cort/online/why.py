"""Why a system ranks a passage where it does: what its score is made of, down to terms and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from cort.formats.records import Ranking
from cort.online.searcher import Searcher
from cort.systems.live import Reason, Rows

if TYPE_CHECKING:
    from cort.online.alignment import Match
    from cort.online.neural import ImpactSearch, QueryEncoder, SparseQueryEncoder, TokenEncoder

MATCHES = "Each query token adds its weight times its similarity to the nearest token of the passage."
MATCH_COLUMNS = ["token", "nearest in the passage", "similarity", "weight", "adds"]


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

    def nearest_tokens(self) -> tuple[list[Match], str]:
        """Return the nearest tokens of the passage, and the settings of the encoder."""
        from cort.online.alignment import nearest_tokens

        encoder = cast("QueryEncoder", self.searcher.models.retrievers[self.name].encoder)
        return nearest_tokens(encoder, self.text, self._passage()), encoder.model.similarity

    def shared_tokens(self) -> Rows:
        """List the tokens of both query and passage: which of them it expands, its impacts in both, their product."""
        encoder, index = cast("tuple[SparseQueryEncoder, ImpactSearch]", self.searcher.models.retrievers[self.name])
        texts = {"query": self.text, "passage": self._passage()}
        own = {kind: set(encoder.tokenize([text], kind)[0].tolist()) for kind, text in texts.items()}
        [impacts] = encoder.encode(encoder.tokenize([self.text]))
        rows: Rows = []
        for token, in_query, in_passage in index.explain(impacts, self.doc_id):
            expanded = " and ".join(kind for kind, tokens in own.items() if token not in tokens)
            rows.append([encoder.tokenize.names([token])[0], expanded, in_query, in_passage, in_query * in_passage])
        return rows

    def matches(self) -> Reason:
        """Explain the score by the matches of tokens that late interaction adds up."""
        from cort.online.alignment import best_matches

        encoder = cast("TokenEncoder", self.searcher.models.retrievers[self.name].encoder)
        matches = best_matches(encoder, encoder.pairs(self.text, self._passage()), 0)
        return self.reason(MATCHES, columns=MATCH_COLUMNS, rows=match_rows(matches), total=True)

    def model(self, name: str, rank: int, score: float) -> Reason:
        """Explain a re-ranker's score of the passage, as far as it has parts."""
        from cort.online import alignment

        reranker = self.searcher.models.rerankers[name]
        kind = reranker.model.kind
        [row] = self.searcher.passages.rows([self.doc_id])
        about = "It reads query and passage together, so its score has no parts."
        columns: list[str] = []
        rows: Rows = []
        if kind == "late_interaction":
            about, columns = MATCHES, MATCH_COLUMNS
            rows = match_rows(alignment.best_matches(reranker, reranker.pairs(self.text), row))
        elif kind in ("knrm", "conv_knrm"):
            about = "Its kernels add a weighted count for each query token; the last row is the bias of the layer."
            columns = ["token", "adds"]
            rows = [[token or "(bias)", value] for token, value in alignment.word_scores(reranker, self.text, row)]
        return Reason(name, kind, rank, score, about, columns, rows, total=bool(rows))

    def _passage(self) -> str:
        return self.searcher.passages.texts([self.doc_id])[0]


def match_rows(matches: Sequence[Match]) -> Rows:
    """Rows of a table with `MATCH_COLUMNS`."""
    return [
        [match.token, match.match, match.similarity, match.weight, match.weight * match.similarity] for match in matches
    ]


def explain(searcher: Searcher, system: str, text: str, doc_id: str) -> Reason:
    """Explain how a system ranks a passage for a query.

    :raises InputError: for a system that is not open, an unknown passage, or a query without a word.
    """
    searcher.passages.rows([doc_id])
    return _search(searcher, system, text, doc_id, searcher.depth).explain()


def _search(searcher: Searcher, system: str, text: str, doc_id: str, depth: int) -> Case:
    [ranking], _ = searcher.search_batch(system, [text], depth)
    return Case(searcher, system, text, doc_id, depth, ranking)
