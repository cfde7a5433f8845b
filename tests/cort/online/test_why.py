"""Why a passage is ranked where it is: parts that add up to the score, of every kind of system and model."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cort.formats.embeddings import write_shard
from cort.formats.tokens import Tokens
from cort.models.encoder import new_encoder, save_encoder
from cort.models.settings import EncoderSettings
from cort.models.transformer import model_fingerprint
from cort.online import why
from cort.online.alignment import best_matches, nearest_tokens, word_scores
from cort.online.manifest import Model
from cort.online.neural import QueryEncoder, Reranker
from cort.online.terms import TermScore, read_explanation
from cort.system.errors import InputError
from tests.support.online import SYSTEMS, Slow, manifest_with

CPU = torch.device("cpu")
# Of two terms, one of which the query has twice; as Lucene 9 writes it.
EXPLANATION = """5.5 = sum of:
  3.5 = weight(contents:list in 12) [BM25Similarity], result of:
    3.5 = score(freq=2.0), computed as boost * idf * tf from:
      2.0 = boost
      2.5 = idf, computed as log(1 + (N - n + 0.5) / (n + 0.5)) from:
        3 = n, number of documents containing term
        60 = N, total number of documents with field
      0.7 = tf, computed as freq / (freq + k1 * (1 - b + b * dl / avgdl)) from:
        4.0 = freq, occurrences of term within document
        0.9 = k1, term saturation parameter
        17.0 = dl, length of field (approximate)
  2.0 = weight(contents:n = boost in 12) [BM25Similarity], result of:
    2.0 = score(freq=1.0), computed as boost * idf * tf from:
      4.0 = idf, computed as log(1 + (N - n + 0.5) / (n + 0.5)) from:
        1 = n, number of documents containing term
        60 = N, total number of documents with field
      0.5 = tf, computed as freq / (freq + k1 * (1 - b + b * dl / avgdl)) from:
        1.0 = freq, occurrences of term within document
"""


def test_lucenes_words_are_read():
    expected = [TermScore("list", 2, 4, 3, 2.5, 3.5), TermScore("n = boost", 1, 1, 1, 4, 2)]
    assert read_explanation(EXPLANATION) == expected
    # Of one term there is no sum.
    assert read_explanation(EXPLANATION.partition("\n")[2]) == expected
    assert read_explanation("0.0 = No matching clauses\n") == []


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
        {"similarity": "l2", "fill_queries": True},
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
            assert len(matches) <= reranker.model.settings.query_length
            passage = reranker.tokenize.names(Tokens(reranker._passages.path)[row])
            assert {one.match for one in matches} <= {*passage, "[CLS]", "[SEP]"}
    if settings.get("fill_queries"):
        assert len(matches) == reranker.model.settings.query_length
        assert matches[-1][0] == "[MASK]"
    # A passage without tokens that count.
    reranker.model.punctuation = torch.arange(10**5)
    matches = best_matches(reranker, reranker.pairs("ba"), 0)
    assert sum(one.similarity * one.weight for one in matches) == pytest.approx(reranker.score("ba", [0])[0])
    assert {one.match for one in matches} == {""}


@pytest.mark.parametrize("settings", [{"kind": "knrm"}, {"kind": "conv_knrm", "filters": 6}])
def test_what_words_add_is_the_score_of_kernel_pooling(reranker_of, world, settings):
    reranker = reranker_of(**settings)
    with torch.no_grad():
        reranker.model.weigh.weight.mul_(30)
    for query in (world.query_texts[0], "baluko"):
        expected = reranker.score(query, range(6))
        for row in range(6):
            found = word_scores(reranker, query, row)
            assert sum(score for _, score in found) == pytest.approx(expected[row], abs=1e-4)
            assert found[-1][0] == ""
            assert len({round(score, 6) for _, score in found}) > 1


@pytest.fixture
def encoder_of(lm, tmp_path):
    def build(**settings):
        folder = tmp_path / "model"
        save_encoder(new_encoder(lm, EncoderSettings(dimension=8, **settings), 3), lm, folder)
        (tmp_path / "model" / ".sum").unlink(missing_ok=True)
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
    for kind in ("bm25", "exact"):
        monkeypatch.setitem(why.REASONS, kind, lambda case: case.reason("a part"))

    def of_model(case, name, rank, score):
        return why.Reason(name, "cross_encoder", rank, score, "a model")

    monkeypatch.setattr(why, "_of_model", of_model)

    def build(**systems):
        searcher = Slow().searcher(manifest_with(tmp_path, SYSTEMS | systems), list(systems))
        return searcher, lambda name, doc_id: why.explain(searcher, name, "q", doc_id)

    return build


def check_total(searcher, name, reasons_of):
    """The last column adds up to the score of every result."""
    for one in searcher.search(name, "q", 10).results:
        reason = reasons_of(name, one.doc_id)
        assert (reason.rank, reason.score) == (one.rank, pytest.approx(one.score))
        assert sum(row[-1] for row in reason.rows) == pytest.approx(one.score, abs=1e-5)
        assert reason.total
    searcher.close()


@pytest.mark.parametrize(
    "more", [{"kind": "rrf", "k": 7}, {"kind": "linear", "normalization": "min-max", "weights": [0.6, 0.4]}]
)
def test_what_parts_add_is_the_score_of_both(explain, more):
    searcher, reasons_of = explain(merged={"parts": ["dense", "bm25"], **more})
    reason = reasons_of("merged", "e2")
    assert reason.rows[0][:3] == ["dense", 3, -2.0]
    assert reason.rows[1][:3] == ["bm25", None, None]
    assert [(one.system, one.rank) for one in reason.parts] == [("dense", 3), ("bm25", None)]
    check_total(searcher, "merged", reasons_of)


def test_of_turns_the_ranks_of_both_are_told(explain):
    searcher, reasons_of = explain(both=SYSTEMS["both"])
    reason = reasons_of("both", "b1")
    assert (reason.rank, reason.score, reason.total) == (4, 0.25, False)
    assert reason.rows == [["dense", None, None], ["bm25", 2, -1.0]]
    searcher.close()


@pytest.mark.parametrize("weight", [0.25, 0.75])
def test_what_a_re_ranker_and_its_candidates_add_is_the_score(explain, weight):
    reranked = {"kind": "rerank", "candidates": "dense", "reranker": "cross", "depth": 3}
    searcher, reasons_of = explain(mixed=reranked | {"weight": weight})
    reason = reasons_of("mixed", "e0")
    # First before, last by the re-ranker, which turns the order round.
    assert reason.rows == [["dense", 1, 0.0, 1.0, 1 - weight, 1 - weight], ["cross", 3, 0.0, 0.0, weight, 0.0]]
    assert [one.system for one in reason.parts] == ["cross", "dense"]
    for one in searcher.search("mixed", "q", 3).results:
        found = reasons_of("mixed", one.doc_id)
        assert found.total
        assert sum(row[-1] for row in found.rows) == pytest.approx(one.score, abs=1e-5)
    # What is below is not scored.
    reason = reasons_of("mixed", "e4")
    assert (reason.rank, reason.rows, reason.total) == (5, [], False)
    assert "this passage is not among them" in reason.about
    searcher.close()


def test_a_re_ranker_alone_gives_its_score(explain):
    reranked = {"kind": "rerank", "candidates": "dense", "reranker": "cross", "depth": 3}
    searcher, reasons_of = explain(alone=reranked)
    reason = reasons_of("alone", "e2")
    assert (reason.rank, reason.score, reason.total) == (1, 2.0, False)
    assert reason.rows == [["dense", 3, -2.0], ["cross", 1, 2.0]]
    searcher.close()


def test_a_model_that_reads_both_together_says_so():
    model = SimpleNamespace(model=SimpleNamespace(settings=SimpleNamespace(kind="cross_encoder")))
    searcher = SimpleNamespace(models=SimpleNamespace(rerankers={"cross": model}))
    searcher.passages = SimpleNamespace(rows=lambda ids: [0])
    reason = why._of_model(SimpleNamespace(searcher=searcher, doc_id="d", text="q"), "cross", 2, 1.5)
    assert (reason.rank, reason.score, reason.rows) == (2, 1.5, [])
    assert reason.about == "It reads query and passage together, so its score has no parts."


def test_what_is_not_there_has_no_reason(explain):
    searcher, reasons_of = explain(both=SYSTEMS["both"])
    assert reasons_of("both", "nowhere").rank is None
    with pytest.raises(InputError, match="system: found 'bm26'"):
        reasons_of("bm26", "b0")
    searcher.close()


def test_every_kind_of_system_has_its_reason():
    from cort.online.manifest import KEYS
    from cort.retrieval.fusion import FUSIONS

    assert set(why.REASONS) == set(KEYS)
    assert set(why.MERGED) == set(FUSIONS)
