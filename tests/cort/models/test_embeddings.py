"""Vectors by an embeddings service: each text once, in order, checked, within limits; errors in one line."""

import re

import numpy as np
import pytest

from cort.models import service
from cort.models.embeddings import Asked, embed, embed_now, name_of
from cort.models.service import batches_of, tokens_of
from cort.runtime.errors import InputError
from tests.support.errors import line_of
from tests.support.model_server import configured_server

KEY = "sk-secret-of-the-tests"


def asked(**changes):
    return Asked(**{"endpoint": "small", **changes})


def numbers_of(text):
    """Three numbers that differ with the text, of no particular length."""
    return [float(len(text)), float(text.count("a")), 1.0]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(service, "RETRIES", 1)
    with configured_server(KEY, embed=numbers_of) as server:
        yield server


def texts_of(number):
    return [f"text {'a' * (place % 7)}{place}" for place in range(number)]


def vectors(texts, cache, size=5, **changes):
    blocks = [(texts[at : at + size], texts[at : at + size]) for at in range(0, len(texts), size)]
    found = list(embed(lambda: blocks, asked(**changes), cache))
    assert [name for ids, _ in found for name in ids] == texts
    return np.concatenate([matrix for _, matrix in found])


def unit(rows):
    return np.array([np.array(row) / np.linalg.norm(row) if any(row) else row for row in rows], np.float32)


@pytest.mark.parametrize("base64", [True, False])
def test_vectors_are_those_of_the_service_in_order_and_of_length_1(server, cache, base64):
    server.base64 = base64
    texts = texts_of(23)
    np.testing.assert_allclose(vectors(texts, cache), unit(map(numbers_of, texts)), rtol=1e-6)
    raw = vectors(texts, cache, similarity="inner_product")
    np.testing.assert_array_equal(raw, np.array([*map(numbers_of, texts)], np.float32))
    assert set(server.answered.values()) == {1}


def test_nothing_is_asked_twice_and_another_model_or_dimension_is_asked(server, cache):
    texts = [*texts_of(8), "text 0", " "]
    found = vectors(texts, cache)
    assert len(server.answered) == 8
    assert max(server.answered.values()) == 1
    # Blank texts, which services refuse, are zeros.
    assert not found[-1].any()
    assert vectors(texts_of(10), cache).shape == (10, 3)
    assert sum(server.answered.values()) == 10
    assert vectors(texts_of(4), cache, dimension=2).shape == (4, 2)
    vectors(texts_of(4), cache, endpoint="other")
    assert sum(server.answered.values()) == 18


def test_requests_have_at_most_so_many_texts_and_tokens():
    texts = ["abcd" * number for number in (1, 2, 3, 9, 1, 1, 1, 1)]
    batches = list(batches_of(texts, asked(texts_per_request=3, tokens_per_request=5)))
    assert [text for batch in batches for text in batch] == texts
    assert [[tokens_of(text) for text in batch] for batch in batches] == [[1, 2], [3], [9], [1, 1, 1], [1]]


@pytest.mark.parametrize(("key", "most", "needed"), [("max_requests", 2, 3), ("max_tokens", 19, 20)])
def test_limits_hold_before_the_first_request(server, cache, key, most, needed):
    texts = [f"{place:08}" for place in range(10)]
    with pytest.raises(InputError, match=rf"endpoint\.{key}: found {needed} .* needed, expected at most {most}"):
        vectors(texts, cache, size=10, texts_per_request=4, **{key: most})
    assert not server.attempts
    assert len(vectors(texts, cache, size=10, texts_per_request=4, **{key: needed})) == 10


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (413, "status 413 for 4 texts, the longest of about 2 tokens"),
        (401, "status 401 Unauthorized"),
        ("html", "no (vectors|answer of a model) \\(HTML or other JSON\\)"),
        ("json", "no (vectors|answer of a model) \\(HTML or other JSON\\)"),
        ("few", "3 vectors for 4 texts"),
        ("nan", "zeros, NaN or infinite numbers for the text 'text 4'"),
    ],
)
def test_an_error_that_stays_is_one_line_and_what_came_before_is_kept(server, cache, step, found):
    texts = [f"text {place}" for place in range(8)]
    server.steps = [200, step, step]
    line = line_of(vectors, texts, cache, size=8, texts_per_request=4, at_once=1)
    assert re.match(f"encoders: found {found}, expected an answer; check ", line)
    assert KEY not in line
    assert server.url not in line
    server.steps = []
    server.answered.clear()
    assert len(vectors(texts, cache, size=8)) == 8
    assert set(server.answered) == set(texts[4:])


def test_another_number_of_components_is_refused(server, cache):
    with pytest.raises(InputError, match="vectors of 3 numbers instead of 4"):
        vectors(texts_of(3), cache, dimension=4)
    server.embed = lambda text: [1.0] * (2 if text == "odd" else 3)
    with pytest.raises(InputError, match=r"vectors of 2 numbers instead of 3|one length"):
        vectors(["even", "odd"], cache)


def test_live_queries_are_not_kept(server):
    for _ in range(2):
        np.testing.assert_allclose(embed_now(["a query"], asked()), unit([numbers_of("a query")]), rtol=1e-6)
    assert server.answered["a query"] == 2


def test_files_of_another_model_dimension_or_prompt_are_told_apart():
    changes = ({}, {"endpoint": "b"}, {"dimension": 2}, {"query_prompt": "q"}, {"passage_prompt": "q"})
    assert len({name_of(asked(**one)) for one in (*changes, {"similarity": "inner_product"})}) == 6
    # Limits change no result.
    assert name_of(asked(max_requests=1, at_once=2)) == name_of(asked())
