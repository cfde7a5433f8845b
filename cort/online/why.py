"""Why a system ranks a passage where it does: what its score is made of, down to terms and tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from cort.formats.records import Ranking
from cort.online.searcher import Searcher
from cort.retrieval.fusion import FUSIONS, Settings, normalize
from cort.retrieval.graphs import GRAPHS, TOKEN_INDEXES

if TYPE_CHECKING:
    from cort.online.alignment import Match

Cell: TypeAlias = str | float | int | None


@dataclass(frozen=True)
class Reason:
    """A system, or a model in it, and its score of a passage: what this is, a table, and the reasons of its parts.

    `rank` and `score` are None where the passage is not among the results. If `total` is true, the last column of the
    table adds up to the score.
    """

    system: str
    kind: str
    rank: int | None
    score: float | None
    about: str
    columns: list[str] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)
    total: bool = False
    parts: list[Reason] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """A query, a passage and its row in the collection, and where a system ranks it."""

    searcher: Searcher
    name: str
    text: str
    doc_id: str
    depth: int
    ranking: Ranking

    def reason(self, about: str, **more: object) -> Reason:
        """Give the reason, with the place of the passage in the ranking."""
        rank, score = place_of(self.ranking, self.doc_id)
        kind = str(self.searcher.manifest.systems[self.name]["kind"])
        return Reason(self.name, kind, rank, score, about, **more)  # type: ignore[arg-type]

    def of_part(self, part: str) -> Case:
        """Look at a part of the system, with as many results as are needed of it."""
        return case_of(self.searcher, part, self.text, self.doc_id, self.searcher.needed(self.name, self.depth))


def explain(searcher: Searcher, system: str, text: str, doc_id: str) -> Reason:
    """Explain what a system makes of a passage.

    :raises InputError: a system that is not open, a passage that is not there, a query without a word.
    """
    searcher.passages.rows([doc_id])
    return _explain(case_of(searcher, system, text, doc_id, searcher.manifest.depth))


def case_of(searcher: Searcher, system: str, text: str, doc_id: str, depth: int) -> Case:
    """Search, and look at one passage."""
    [ranking], _ = searcher.search_batch(system, [text], depth)
    return Case(searcher, system, text, doc_id, depth, ranking)


def place_of(ranking: Ranking, doc_id: str) -> tuple[int, float] | tuple[None, None]:
    """Find rank and score of a passage."""
    if doc_id not in ranking.doc_ids:
        return None, None
    place = ranking.doc_ids.index(doc_id)
    return place + 1, float(ranking.scores[place])


def _explain(case: Case) -> Reason:
    return REASONS[case.searcher.manifest.systems[case.name]["kind"]](case)


def _by_terms(case: Case) -> Reason:
    searcher = case.searcher
    parameters = searcher.parameters[case.name]
    lucene = searcher.lucene[searcher.manifest.systems[case.name]["lexical"]]
    terms = sorted(lucene.explain(case.text, parameters, case.doc_id), key=lambda one: -one.score)
    about = (
        f"BM25 with k1 {parameters.k1:g} and b {parameters.b:g}. Terms are those of the index: stemmed, some appended "
    )
    about += "or weighted if it is built so. Rounded, and a little lower among ties, their sum is the score."
    rows = [[one.term, one.boost, one.frequency, one.passages, one.idf, one.score] for one in terms]
    columns = ["term", "in the query", "in the passage", "passages with it", "idf", "adds"]
    if not terms:
        return case.reason("No term of the query is in it.")
    return case.reason(about, columns=columns, rows=rows, total=True)


def _by_vectors(case: Case) -> Reason:
    from cort.online.alignment import nearest_tokens

    searcher, system = case.searcher, case.searcher.manifest.systems[case.name]
    encoder = searcher.models.encoders[system["encoder"]]
    settings = encoder.model.settings
    about = f"The score is the similarity ({settings.similarity}) of one vector of the query and one of the passage "
    about += (
        f"(pooling: {settings.pooling}), which has no parts. For orientation: of each token of the query, the token "
    )
    about += "of the passage with the most similar vector, by cosine. These do not add up to the score."
    matches = nearest_tokens(encoder, case.text, searcher.passages.texts([case.doc_id])[0])
    rows: list[list[Cell]] = [[one.token, one.match, one.similarity] for one in matches]
    return case.reason(about, columns=["token", "nearest in the passage", "cosine"], rows=rows)


#: what is said of late interaction, and of the columns of its matches
MATCHES = (
    "Each token of the query adds its weight times its similarity to the nearest token of the passage.",
    ["token", "nearest in the passage", "similarity", "weight", "adds"],
)


def matches_of(matches: Sequence[Match]) -> list[list[Cell]]:
    """Rows of a table of matches."""
    return [[one.token, one.match, one.similarity, one.weight, one.weight * one.similarity] for one in matches]


def _by_tokens(case: Case) -> Reason:
    from cort.online.alignment import best_matches

    searcher = case.searcher
    model = searcher.models.token_encoders[searcher.manifest.systems[case.name]["token_encoder"]]
    [passage] = searcher.passages.texts([case.doc_id])
    about, columns = MATCHES
    rows = matches_of(best_matches(model, model.pairs(case.text, passage), 0))
    return case.reason(about, columns=columns, rows=rows, total=True)


def _in_turns(_: Settings, parts: Sequence[Case]) -> tuple[str, list[str], list[list[Cell]]]:
    return "The parts take turns, the first-named first; the score is 1 / rank.", [], [[] for _ in parts]


def _by_ranks(settings: Settings, parts: Sequence[Case]) -> tuple[str, list[str], list[list[Cell]]]:
    ranks = [place_of(part.ranking, part.doc_id)[0] for part in parts]
    rows: list[list[Cell]] = [[1 / (settings.k + rank) if rank else 0.0] for rank in ranks]
    return f"Each part adds 1 / ({settings.k:g} + rank).", ["adds"], rows


def _by_scores(settings: Settings, parts: Sequence[Case]) -> tuple[str, list[str], list[list[Cell]]]:
    weights = settings.weights or (1 / len(parts),) * len(parts)
    rows: list[list[Cell]] = []
    for weight, part in zip(weights, parts, strict=True):
        scores, missing = normalize(part.ranking.scores, settings.normalization)
        rank = place_of(part.ranking, part.doc_id)[0]
        normalised = float(scores[rank - 1]) if rank else missing
        rows.append([normalised, float(weight), float(weight) * normalised])
    about = f"Each part adds its weight times its normalised score ({settings.normalization})."
    return about, ["normalised", "weight", "adds"], rows


#: what a method of `FUSIONS` says of its parts: in words, more columns, and a row of these per part
MERGED: Mapping[str, Callable[[Settings, Sequence[Case]], tuple[str, list[str], list[list[Cell]]]]] = {
    "interleave": _in_turns,
    "rrf": _by_ranks,
    "linear": _by_scores,
}


def _by_fusion(case: Case) -> Reason:
    manifest = case.searcher.manifest
    parts = [case.of_part(part) for part in manifest.parts_of(case.name)]
    settings = case.searcher.settings[case.name]
    about, columns, more = MERGED[manifest.systems[case.name]["kind"]](settings, parts)
    rows = [[part.name, *place_of(part.ranking, case.doc_id), *rest] for part, rest in zip(parts, more, strict=True)]
    columns = ["part", "rank", "score", *columns]
    reasons = [_explain(part) for part in parts]
    return case.reason(about, columns=columns, rows=rows, total="adds" in columns, parts=reasons)


def _by_reranking(case: Case) -> Reason:
    searcher, system = case.searcher, case.searcher.manifest.systems[case.name]
    before, scored = case.of_part(system["candidates"]), int(system["depth"])
    doc_ids = before.ranking.doc_ids[:scored]
    about = f"The first {scored} of {before.name} are scored again by {system['reranker']}"
    reasons = [_explain(before)]
    if case.doc_id not in doc_ids:
        return case.reason(f"{about}; this passage is not among them and follows below.", parts=reasons)
    place, weight = doc_ids.index(case.doc_id), searcher.weights[case.name]
    model = searcher.models.rerankers[system["reranker"]]
    scores = model.score(case.text, searcher.passages.rows(doc_ids))
    rank = 1 + int((scores > scores[place]).sum())
    kinds = [(before.name, place + 1, before.ranking.scores[:scored]), (system["reranker"], rank, scores)]
    rows: list[list[Cell]] = [[name, at, float(values[place])] for name, at, values in kinds]
    columns = ["by", "rank among these", "score"]
    if weight == 1:
        about += ", whose scores take the place of the former."
    else:
        about += "; each adds its weight times its score, both from 0 to 1 among these."
        columns += ["normalised", "weight", "adds"]
        for row, (_, _, values), share in zip(rows, kinds, (1 - weight, weight), strict=True):
            normalised = float(normalize(values, "min-max")[0][place])
            row += [normalised, share, share * normalised]
    reasons.insert(0, _of_model(case, system["reranker"], rank, float(scores[place])))
    return case.reason(about, columns=columns, rows=rows, total=weight < 1, parts=reasons)


def _of_model(case: Case, name: str, rank: int, score: float) -> Reason:
    """Explain a re-ranker's score of the passage, as far as it has parts."""
    from cort.online import alignment

    model = case.searcher.models.rerankers[name]
    kind = model.model.settings.kind
    [row] = case.searcher.passages.rows([case.doc_id])
    about = "It reads query and passage together, so its score has no parts."
    columns: list[str] = []
    rows: list[list[Cell]] = []
    if kind == "late_interaction":
        about, columns = MATCHES
        rows = matches_of(alignment.best_matches(model, model.pairs(case.text), row))
    elif kind in ("knrm", "conv_knrm"):
        about = "What its kernels count for each token of the query, weighed; the last row is the bias of the layer."
        columns = ["token", "adds"]
        rows = [[token or "(bias)", value] for token, value in alignment.word_scores(model, case.text, row)]
    return Reason(name, kind, rank, score, about, columns, rows, total=bool(rows))


#: kind of a system -> what explains it
REASONS: Mapping[str, Callable[[Case], Reason]] = {
    "bm25": _by_terms,
    "exact": _by_vectors,
    **dict.fromkeys(GRAPHS, _by_vectors),
    "late_interaction": _by_tokens,
    **dict.fromkeys(TOKEN_INDEXES, _by_tokens),
    **dict.fromkeys(FUSIONS, _by_fusion),
    "rerank": _by_reranking,
}
