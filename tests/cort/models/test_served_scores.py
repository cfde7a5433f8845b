"""Scores by a re-ranking service: each pair once, in order, checked, within limits; errors in one line."""

import re
from collections import Counter

import numpy as np
import pytest

from cort.config.collection import TextLimits
from cort.models import service
from cort.models.served_scores import score, score_now
from cort.runtime.errors import InputError
from tests.support.errors import line_of
from tests.support.model_server import configured_server

KEY = "sk-secret-of-the-tests"


def relevance(query, passage):
    """A number that differs with query and passage, and that float32 holds."""
    return query.count("a") - float(passage.rpartition(" ")[2]) / 4


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(service, "RETRIES", 1)
    with configured_server(KEY, relevance=relevance) as server:
        yield server


def pairs_of(queries, passages):
    return [(f"quer{'a' * query}", f"passage {passage}") for query in range(queries) for passage in range(passages)]


def scores(pairs, cache, model="small", **limits):
    return score(pairs, model, TextLimits(**limits), cache).tolist()


def test_scores_are_those_of_the_service_in_the_order_of_the_pairs(server, cache):
    pairs = pairs_of(3, 7)[::-1]
    assert scores(pairs, cache, texts_per_request=3) == [relevance(*pair) for pair in pairs]
    bodies = [body for _, _, body in server.attempts]
    assert sorted(len(body["documents"]) for body in bodies) == [1, 1, 1, 3, 3, 3, 3, 3, 3]
    for body in bodies:
        assert (body["model"], body["top_n"], body["return_documents"]) == ("small", len(body["documents"]), False)


def test_a_pair_is_asked_once_also_if_ids_share_its_texts_and_another_model_is_asked(server, cache):
    pairs = pairs_of(2, 4)
    assert scores([*pairs, *pairs[:3]], cache) == [relevance(*pair) for pair in [*pairs, *pairs[:3]]]
    scores(pairs_of(2, 5), cache)
    assert server.answered == Counter(pairs_of(2, 5))
    scores(pairs, cache, "large")
    assert server.answered == Counter(pairs_of(2, 5)) + Counter(pairs)


# 2 queries of 1 and 2 tokens ("quer", "quera"), each with 4 passages of 3 tokens: 4 * (1 + 3) + 4 * (2 + 3).
@pytest.mark.parametrize(("key", "most", "needed"), [("max_requests", 3, 4), ("max_tokens", 35, 36)])
def test_limits_hold_before_the_first_request(server, cache, key, most, needed):
    with pytest.raises(InputError, match=rf"endpoint\.{key}: found {needed} .* needed, expected at most {most}"):
        scores(pairs_of(2, 4), cache, texts_per_request=3, **{key: most})
    assert not server.attempts
    assert len(scores(pairs_of(2, 4), cache, texts_per_request=3, **{key: needed})) == 8


def test_requests_have_at_most_so_many_tokens_with_those_of_the_query_for_each_passage(server, cache):
    scores(pairs_of(2, 4), cache, tokens_per_request=10)
    assert Counter((body["query"], len(body["documents"])) for *_, body in server.attempts) == {
        **{("quer", 2): 2, ("quera", 2): 2}
    }


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (413, "status 413 for 4 passages and a query, together of about 16 tokens"),
        (404, "status 404 Not Found"),
        ("html", "no answer of a model \\(HTML or other JSON\\)"),
        ("json", "no answer of a model \\(HTML or other JSON\\)"),
        ("few", "3 scores for 4 passages"),
        ("twice", "4 scores, but not one for each passage"),
        ("nan", "scores that are NaN or infinite"),
    ],
)
def test_an_error_that_stays_is_one_line_and_what_came_before_is_kept(server, cache, step, found):
    pairs = pairs_of(1, 8)
    server.steps = [200, step, step]
    line = line_of(scores, pairs, cache, texts_per_request=4, at_once=1)
    assert re.match(f"rerankers: found {found}, expected an answer; check ", line)
    assert KEY not in line
    assert server.url not in line
    server.steps = []
    server.answered.clear()
    assert scores(pairs, cache) == [relevance(*pair) for pair in pairs]
    assert set(server.answered) == set(pairs[4:])


def test_live_scores_are_not_kept_and_keep_to_the_size_of_requests(server):
    passages = [f"passage {number}" for number in (3, 1, 3, 2)]
    for _ in range(2):
        found = score_now("quera", passages, "small", TextLimits(texts_per_request=2))
        np.testing.assert_array_equal(found, [relevance("quera", passage) for passage in passages])
    assert server.answered["quera", "passage 3"] == 2
    assert len(server.attempts) == 4
    assert len(score_now("quera", [], "small", TextLimits())) == 0
