"""Why a passage ranks where it does: parts that add up to the score, for every kind of system and model."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cort.formats.shards import Tokens, write_shard
from cort.models.layout import model_fingerprint
from cort.online import why
from cort.online.alignment import best_matches, nearest_tokens, word_scores
from cort.online.neural import Model, QueryEncoder, Reranker
from cort.runtime.errors import InputError
from cort.systems.lexical import Bm25
from cort.systems.vectors import Dense
from tests.support.online import SYSTEMS, Parts, results_with

CPU = torch.device("cpu")


# Neural models.


@pytest.fixture
def reranker_of(make_reranker, caches):
    def build(**settings):
        return Reranker(Model(make_reranker(**settings), "raw", "fp32", (caches["passages"],)), CPU)

    return build


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"similarity": "dot", "term_weights": True},
        {"fill_queries": True},
        {"skip_punctuation": True, "max_length": 9, "query_length": 4},
    ],
)
def test_best_matches_add_up_to_the_score_of_late_interaction(reranker_of, world, settings):
    reranker = reranker_of(kind="late_interaction", dimension=5, **settings)
    for query in (world.query_texts[0], "baluko neriga, baluko", "ba"):
        expected = reranker.score(query, range(6))
        for row in range(6):
            matches = best_matches(reranker, reranker.pairs(query), row)
            assert sum(one.similarity * one.weight for one in matches) == pytest.approx(expected[row], abs=1e-4)
            assert len(matches) <= reranker.model.framings["query"].length
            passage = reranker.tokenize.names(Tokens(reranker._passages.path)[row])
            assert {one.match for one in matches} <= {*passage, "[CLS]", "[SEP]"}
    if settings.get("fill_queries"):
        assert len(matches) == reranker.model.framings["query"].length
        assert matches[-1][0] == "[MASK]"
    # Tokens of the passage have no weight.
    reranker.model.layers[-1]._skiplist_ids = torch.arange(10**5)
    matches = best_matches(reranker, reranker.pairs("ba"), 0)
    assert sum(one.similarity * one.weight for one in matches) == pytest.approx(reranker.score("ba", [0])[0])
    assert {one.match for one in matches} == {""}


@pytest.mark.parametrize("settings", [{"kind": "knrm"}, {"kind": "conv_knrm", "filters": 6}])
def test_words_add_up_to_the_score_of_kernel_pooling(reranker_of, world, settings):
    reranker = reranker_of(**settings)
    with torch.no_grad():
        reranker.model.weigh.weight.mul_(30)
    for query in (world.query_texts[0], "baluko"):
        expected = reranker.score(query, range(6))
        for row in range(6):
            words = word_scores(reranker, query, row)
            assert sum(score for _, score in words) == pytest.approx(expected[row], abs=1e-4)
            assert words[-1][0] == ""
            assert len({round(score, 6) for _, score in words}) > 1


@pytest.fixture
def encoder_of(make_encoder, tmp_path):
    def build(**settings):
        folder = make_encoder(**settings)
        options = {"model": model_fingerprint(folder), "dimension": 8, "count": 1}
        write_shard(tmp_path / "p.arrow", [(["d"], np.zeros((1, 8), dtype=np.float32))], **options)
        return QueryEncoder(Model(folder, "raw", "fp32", (tmp_path / "p.arrow",)), CPU)

    return build


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_token_is_most_similar_to_itself(encoder_of, world, pooling):
    encoder = encoder_of(pooling=pooling, query_length=48, passage_length=48, query_segment=0)
    text = world.texts[0]
    names = encoder.tokenize.names(encoder.tokenize([text])[0])
    matches = nearest_tokens(encoder, text, text)
    assert [one.token for one in matches] == [one.match for one in matches] == names
    assert [one.similarity for one in matches] == pytest.approx([1] * len(names), abs=1e-5)


def test_only_tokens_that_the_model_reads_are_compared(encoder_of, world):
    encoder = encoder_of(query_length=5, passage_length=6)
    query, passage = (encoder.tokenize.names(encoder.tokenize([world.texts[one]])[0]) for one in (0, 1))
    matches = nearest_tokens(encoder, world.texts[0], world.texts[1])
    assert [one.token for one in matches] == query[:3]
    assert {one.match for one in matches} <= set(passage[:4])
    assert all(-1 <= one.similarity < 0.9999 for one in matches)
    assert nearest_tokens(encoder, world.texts[0], " ") == []


# Systems of several parts.


@pytest.fixture
def explain(tmp_path, monkeypatch):
    """Explain results of systems with slow parts, whose own reasons are left out."""
    for kind in (Bm25, Dense):
        monkeypatch.setattr(kind, "explain", lambda system, case: case.reason("a part"))

    def of_model(case, name, rank, score):
        return why.Reason(name, "cross_encoder", rank, score, "a model")

    monkeypatch.setattr(why.Case, "model", of_model)
    searchers = []

    def build(**systems):
        searchers.append(Parts().searcher(results_with(tmp_path, SYSTEMS | systems), list(systems)))
        return searchers[-1], lambda name, doc_id: why.explain(searchers[-1], name, "q", doc_id)

    yield build
    for searcher in searchers:
        searcher.close()


def check_total(searcher, name, reasons_of, depth=10):
    """The last column adds up to the score of every result."""
    for result in searcher.search(name, "q", depth).results:
        reason = reasons_of(name, result.doc_id)
        assert (reason.rank, reason.score) == (result.rank, pytest.approx(result.score))
        assert sum(row[-1] for row in reason.rows) == pytest.approx(result.score, abs=1e-5)
        assert reason.total


@pytest.mark.parametrize("more", [{"method": "rrf", "k": 7}, {"method": "linear", "weights": [0.6, 0.4]}])
def test_parts_add_up_to_the_score_of_a_fusion(explain, more):
    searcher, reasons_of = explain(merged={"fuse": {"systems": ["dense", "bm25"], **more}})
    reason = reasons_of("merged", "e2")
    assert reason.rows[0][:3] == ["dense", 3, -2.0]
    assert reason.rows[1][:3] == ["bm25", None, None]
    assert [(part.system, part.rank) for part in reason.parts] == [("dense", 3), ("bm25", None)]
    check_total(searcher, "merged", reasons_of)


def test_interleaving_shows_the_ranks_in_both_parts(explain):
    _, reasons_of = explain(both=SYSTEMS["both"])
    reason = reasons_of("both", "b1")
    assert (reason.rank, reason.score, reason.total) == (4, 0.25, False)
    assert reason.rows == [["dense", None, None], ["bm25", 2, -1.0]]
    assert reasons_of("both", "nowhere").rank is None
    with pytest.raises(InputError, match="system: found 'bm26'"):
        reasons_of("bm26", "b0")


RERANKED = {"rerank": "dense", "reranker": "cross", "depth": 3}


@pytest.mark.parametrize("weight", [0.25, 0.75])
def test_a_re_ranker_and_its_candidates_add_up_to_the_score(explain, weight):
    searcher, reasons_of = explain(mixed=RERANKED | {"weight": weight}, alone=RERANKED)
    reason = reasons_of("mixed", "e0")
    # Among the candidates it is first, for the re-ranker, which reverses the order, last.
    assert reason.rows == [["dense", 1, 0.0, 1.0, 1 - weight, 1 - weight], ["cross", 3, 0.0, 0.0, weight, 0.0]]
    assert [part.system for part in reason.parts] == ["cross", "dense"]
    check_total(searcher, "mixed", reasons_of, depth=3)
    # Lower candidates are not scored.
    reason = reasons_of("mixed", "e4")
    assert (reason.rank, reason.rows, reason.total) == (5, [], False)
    # A re-ranker alone gives its score.
    reason = reasons_of("alone", "e2")
    assert (reason.rank, reason.score, reason.total) == (1, 2.0, False)
    assert reason.rows == [["dense", 3, -2.0], ["cross", 1, 2.0]]


def test_the_score_of_a_cross_encoder_has_no_parts():
    model = SimpleNamespace(model=SimpleNamespace(kind="cross_encoder"))
    searcher = SimpleNamespace(models=SimpleNamespace(rerankers={"cross": model}))
    searcher.passages = SimpleNamespace(rows=lambda ids: [0])
    reason = why.Case(searcher, "alone", "q", "d", 1, None).model("cross", 2, 1.5)
    assert (reason.rank, reason.score, reason.rows, reason.parts) == (2, 1.5, [], [])
