import logging

import numpy as np
import pytest

from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts
from cort.models.tokenizer import Template
from cort.training.guide import ByRow, Guide, report_left_out
from cort.training.triples import TripleTexts, numbered


def unit(*degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@pytest.fixture
def guide():
    """Queries 3 and 5 at 0 and 90 degrees; passages 10 to 13 at 30, 60, 20 and 31 degrees."""
    passages = ByRow(np.array([10, 11, 12, 13]), unit(30, 60, 20, 31))
    return Guide(0.05, ByRow(np.array([3, 5]), unit(0, 90)), passages)


TRIPLES = np.array([[[3, 5]], [[10, 11]], [[12, 13]]])


def test_what_scores_above_a_share_of_the_positive_is_left_out_but_never_the_querys_own(guide):
    # cos 31 > .95 cos 30 > cos 60; sin 31 < .95 sin 60.
    assert guide.too_near(TRIPLES).tolist() == [[[True, False, True, True], [False, True, False, False]]]
    _, others = TripleTexts(TRIPLES, None, None, None, guide=guide).relevance(TRIPLES)
    assert others.tolist() == [[[False, False, True, True], [False, False, False, False]]]


def test_what_has_the_text_of_a_relevant_passage_is_left_out():
    # Passages 0 and 3 are equal, and 1 and 4 as far as the model reads them.
    tokens = Tokens.of_texts([np.array(text, np.int32) for text in ([7, 8], [5, 6, 1], [9], [7, 8], [5, 6, 2])])
    passages = FramedTexts(tokens, Template((1,), (2,), (2,), 1, 0), 4)
    triples = np.array([[[0, 1]], [[0, 1]], [[4, 3]]])
    texts = TripleTexts(triples, None, passages, None, texts=numbered(passages, triples[1:]))
    _, others = texts.relevance(triples)
    assert others.tolist() == [[[False, False, False, True], [False, False, True, False]]]


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.5, 0.9])
def test_any_margin_says_what_a_loop_over_pairs_says(margin):
    generator = np.random.default_rng(1)
    queries, passages = (generator.normal(size=(count, 3)).astype(np.float32) for count in (6, 9))
    triples = generator.integers(0, [[[6]], [[9]], [[9]]], size=(3, 2, 4))
    found = Guide(margin, ByRow(np.arange(6), queries), ByRow(np.arange(9), passages)).too_near(triples)
    for batch, query, column in np.ndindex(2, 4, 8):
        shown = np.concatenate(triples[1:], axis=-1)[batch]
        if column != query:
            own, score = (float(queries[triples[0, batch, query]] @ passages[shown[one]]) for one in (query, column))
            assert abs(score - own + margin * abs(own)) < 1e-6 or found[batch, query, column] == (
                score > own - margin * abs(own)
            )


def test_the_share_is_logged(guide, caplog):
    with caplog.at_level(logging.INFO):
        report_left_out(guide, TRIPLES[:, 0])
    # Of two hard negatives that of query 3.
    assert caplog.messages == ["left out as likely relevant: 50.0 % of hard negatives"]
