"""Why a system ranks a passage where it does: what its score is made of, down to terms and tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

from cort.formats.records import Ranking
from cort.online.manifest import KINDS, System
from cort.online.searcher import Searcher
from cort.retrieval.fusion import Settings, normalize

if TYPE_CHECKING:
    from cort.online.alignment import Match
    from cort.online.neural import QueryEncoder, TokenEncoder

Rows: TypeAlias = list[list[str | float | int | None]]


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


@dataclass(frozen=True)
class Case:
    """A query, a passage, and the ranking of a system that is to be explained."""

    searcher: Searcher
    name: str
    text: str
    doc_id: str
    depth: int
    ranking: Ranking

    @property
    def system(self) -> System:
        """The system as the manifest has it."""
        return self.searcher.manifest.systems[self.name]

    def place(self) -> tuple[int, float] | tuple[None, None]:
        """Return rank and score of the passage."""
        if self.doc_id not in self.ranking.doc_ids:
            return None, None
        place = self.ranking.doc_ids.index(self.doc_id)
        return place + 1, float(self.ranking.scores[place])

    def reason(self, about: str, **more: object) -> Reason:
        """Make the reason of the passage's rank and score."""
        rank, score = self.place()
        return Reason(self.name, self.system["kind"], rank, score, about, **more)  # type: ignore[arg-type]

    def explain(self) -> Reason:
        """Explain the rank of the passage."""
        return REASONS[KINDS[self.system["kind"]].family](self)


def explain(searcher: Searcher, system: str, text: str, doc_id: str) -> Reason:
    """Explain how a system ranks a passage for a query.

    :raises InputError: for a system that is not open, an unknown passage, or a query without a word.
    """
    searcher.passages.rows([doc_id])
    return _search(searcher, system, text, doc_id, searcher.manifest.depth).explain()


def _search(searcher: Searcher, system: str, text: str, doc_id: str, depth: int) -> Case:
    [ranking], _ = searcher.search_batch(system, [text], depth)
    return Case(searcher, system, text, doc_id, depth, ranking)


def _search_part(case: Case, part: str) -> Case:
    """Search with a part of a system, for as many results as the system needs from it."""
    return _search(case.searcher, part, case.text, case.doc_id, case.searcher.needed(case.name, case.depth))


def _explain_terms(case: Case) -> Reason:
    parameters, lucene = case.searcher.parameters[case.name], case.searcher.lucene[case.system["lexical"]]
    terms = sorted(lucene.explain(case.text, parameters, case.doc_id), key=lambda term: -term.score)
    if not terms:
        return case.reason("The passage contains no term of the query.")
    about = (
        f"BM25 with k1 {parameters.k1:g} and b {parameters.b:g}. Terms are those of the index: stemmed, and with the "
        "expansions or weights it was built with. The score is their sum, rounded and, among ties, slightly lowered."
    )
    rows = [[term.term, term.boost, term.frequency, term.passages, term.idf, term.score] for term in terms]
    columns = ["term", "in the query", "in the passage", "passages with it", "idf", "adds"]
    return case.reason(about, columns=columns, rows=rows, total=True)


def _explain_vectors(case: Case) -> Reason:
    from cort.online.alignment import nearest_tokens

    encoder = cast("QueryEncoder", case.searcher.models.retrievers[case.name].encoder)
    settings = encoder.model.settings
    about = (
        f"The score is the similarity ({settings.similarity}) of one vector of the query and one of the passage "
        f"(pooling: {settings.pooling}), which has no parts. For orientation, the table shows the passage token with "
        "the most similar vector (cosine) for each query token. These values do not add up to the score."
    )
    matches = nearest_tokens(encoder, case.text, case.searcher.passages.texts([case.doc_id])[0])
    rows: Rows = [[match.token, match.match, match.similarity] for match in matches]
    return case.reason(about, columns=["token", "nearest in the passage", "cosine"], rows=rows)


MATCHES = "Each query token adds its weight times its similarity to the nearest token of the passage."
MATCH_COLUMNS = ["token", "nearest in the passage", "similarity", "weight", "adds"]


def _match_rows(matches: Sequence[Match]) -> Rows:
    return [[one.token, one.match, one.similarity, one.weight, one.weight * one.similarity] for one in matches]


def _explain_tokens(case: Case) -> Reason:
    from cort.online.alignment import best_matches

    encoder = cast("TokenEncoder", case.searcher.models.retrievers[case.name].encoder)
    pairs = encoder.pairs(case.text, case.searcher.passages.texts([case.doc_id])[0])
    rows = _match_rows(best_matches(encoder, pairs, 0))
    return case.reason(MATCHES, columns=MATCH_COLUMNS, rows=rows, total=True)


def _by_turns(_: Settings, parts: Sequence[Case]) -> tuple[str, list[str], Rows]:
    return "The parts take turns in the order given; the score is 1 / rank.", [], [[] for _ in parts]


def _by_ranks(settings: Settings, parts: Sequence[Case]) -> tuple[str, list[str], Rows]:
    ranks = [part.place()[0] for part in parts]
    rows: Rows = [[1 / (settings.k + rank) if rank else 0.0] for rank in ranks]
    return f"Each part adds 1 / ({settings.k:g} + rank).", ["adds"], rows


def _by_scores(settings: Settings, parts: Sequence[Case]) -> tuple[str, list[str], Rows]:
    weights = settings.weights or (1 / len(parts),) * len(parts)
    rows: Rows = []
    for weight, part in zip(weights, parts, strict=True):
        scores, missing = normalize(part.ranking.scores, settings.normalization)
        rank = part.place()[0]
        normalized = float(scores[rank - 1]) if rank else missing
        rows.append([normalized, float(weight), float(weight) * normalized])
    about = f"Each part adds its weight times its normalized score ({settings.normalization})."
    return about, ["normalized", "weight", "adds"], rows


#: explains each method of `FUSIONS`: a sentence, more columns, and their cells for each part
MERGED: Mapping[str, Callable[[Settings, Sequence[Case]], tuple[str, list[str], Rows]]] = {
    "interleave": _by_turns,
    "rrf": _by_ranks,
    "linear": _by_scores,
}


def _explain_fusion(case: Case) -> Reason:
    parts = [_search_part(case, part) for part in case.system["parts"]]
    about, columns, cells = MERGED[case.system["kind"]](case.searcher.settings[case.name], parts)
    rows: Rows = [[part.name, *part.place(), *more] for part, more in zip(parts, cells, strict=True)]
    reasons = [part.explain() for part in parts]
    columns = ["part", "rank", "score", *columns]
    return case.reason(about, columns=columns, rows=rows, total="adds" in columns, parts=reasons)


def _explain_reranking(case: Case) -> Reason:
    searcher, scored, reranker = case.searcher, int(case.system["depth"]), case.system["reranker"]
    before = _search_part(case, case.system["candidates"])
    doc_ids = before.ranking.doc_ids[:scored]
    about, reasons = f"{reranker} scores the top {scored} of {before.name} again", [before.explain()]
    if case.doc_id not in doc_ids:
        return case.reason(f"{about}; this passage is not among them and follows below.", parts=reasons)
    place, weight = doc_ids.index(case.doc_id), searcher.weights[case.name]
    scores = searcher.models.rerankers[reranker].score(case.text, searcher.passages.rows(doc_ids))
    rank = 1 + int((scores > scores[place]).sum())
    sides = [(before.name, place + 1, before.ranking.scores[:scored]), (reranker, rank, scores)]
    rows: Rows = [[name, at, float(values[place])] for name, at, values in sides]
    columns = ["by", "rank among these", "score"]
    if weight == 1:
        about += ", and its scores replace the former ones."
    else:
        about += "; each adds its weight times its score, both normalized to 0 to 1 among these."
        columns += ["normalized", "weight", "adds"]
        for row, (_, _, values), share in zip(rows, sides, (1 - weight, weight), strict=True):
            normalized = float(normalize(values, "min-max")[0][place])
            row += [normalized, share, share * normalized]
    reasons.insert(0, _explain_model(case, reranker, rank, float(scores[place])))
    return case.reason(about, columns=columns, rows=rows, total=weight < 1, parts=reasons)


def _explain_model(case: Case, name: str, rank: int, score: float) -> Reason:
    """Explain a re-ranker's score of the passage, as far as it has parts."""
    from cort.online import alignment

    model = case.searcher.models.rerankers[name]
    kind = model.model.settings.kind
    [row] = case.searcher.passages.rows([case.doc_id])
    about = "It reads query and passage together, so its score has no parts."
    columns: list[str] = []
    rows: Rows = []
    if kind == "late_interaction":
        about, columns = MATCHES, MATCH_COLUMNS
        rows = _match_rows(alignment.best_matches(model, model.pairs(case.text), row))
    elif kind in ("knrm", "conv_knrm"):
        about = "Its kernels add a weighted count for each query token; the last row is the bias of the layer."
        columns = ["token", "adds"]
        rows = [[token or "(bias)", value] for token, value in alignment.word_scores(model, case.text, row)]
    return Reason(name, kind, rank, score, about, columns, rows, total=bool(rows))


#: explains each family of systems
REASONS: Mapping[str, Callable[[Case], Reason]] = {
    "terms": _explain_terms,
    "vectors": _explain_vectors,
    "tokens": _explain_tokens,
    "fusion": _explain_fusion,
    "rerank": _explain_reranking,
}
