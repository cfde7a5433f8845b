import numpy as np
import pytest

from cort.formats.shards import TOKEN_VECTORS, Origin, write_token_shard
from cort.models.late_interaction import LOWEST
from cort.retrieval import max_similarity
from cort.retrieval.max_similarity import ExactScores, QueryVectors, TokenIndex
from cort.retrieval.vectors import open_vectors
from cort.runtime.errors import InputError
from tests.support.vectors import token_shards

pytestmark = pytest.mark.usefixtures("one_thread")
ORIGIN = Origin(dimension=6, passage_length=24, similarity="cosine", model="m")


@pytest.fixture
def generator():
    return np.random.default_rng(5)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def make_passages(generator, count=90, scale=1.0):
    """Vectors of the tokens of passages; some have none, and every fifth is like the one before."""
    found = []
    for number in range(count):
        tokens = int(generator.integers(0, 9)) if number % 7 else 0
        found.append((unit(generator.standard_normal((tokens, 6))) * scale).astype(np.float16))
        if number % 5 == 4:
            found[-1] = found[-2]
    return found


def make_queries(generator, count=7, scale=1.0):
    sizes = generator.integers(1, 6, count)
    vectors = [(unit(generator.standard_normal((size, 6))) * scale).astype(np.float32) for size in sizes]
    return [QueryVectors(one, generator.uniform(0.1, 2, len(one)).astype(np.float32)) for one in vectors]


def indexed(folder, passages, ids, kind="cosine", bounds=(), batch=32):
    """Write passages between `bounds` as a shard each, and open them for search."""
    return TokenIndex(open_vectors(token_shards(folder, ids, passages, bounds, batch, kind), TOKEN_VECTORS))


def score_alone(query, passage, kind):
    """The sum over tokens of the query of its weight times its best match."""
    tokens, others = query.vectors.astype(float).tolist(), passage.astype(float).tolist()
    best = [max(float(np.dot(token, other)) for other in others) if others else LOWEST[kind] for token in tokens]
    return sum(weight * one for weight, one in zip(query.weights.tolist(), best, strict=True))


def names(count):
    return [f"d{number * 37 % count}" for number in range(count)]


@pytest.mark.parametrize(("kind", "scale"), [("cosine", 1), ("dot", 1), ("dot", 300)])
def test_the_scores_are_those_of_a_triple_loop(tmp_path, generator, kind, scale):
    passages, queries = make_passages(generator, scale=scale), make_queries(generator, 4, scale)
    ids = names(len(passages))
    index = indexed(tmp_path, passages, ids, kind)
    for depth in (1, 10, 200):
        for query, (scores, places) in zip(queries, index.search(queries, depth), strict=True):
            expected = {one: score_alone(query, passage, kind) for one, passage in zip(ids, passages, strict=True)}
            found = index.ids(places)
            assert len(found) == min(depth, len(passages))
            largest = max(map(abs, expected.values()))
            assert scores == pytest.approx([expected[one] for one in found], abs=3e-7 * largest)
            assert scores[0] == pytest.approx(max(expected.values()), abs=3e-7 * largest)
            cut = sorted(expected.values(), reverse=True)[len(found) - 1]
            assert scores[-1] == pytest.approx(cut, abs=3e-7 * largest)
            # The first by (-score, doc_id); every fifth ties with the one before.
            order = list(zip(-scores, found, strict=True))
            assert order == sorted(order)
            of = dict(zip(found, scores.tolist(), strict=True))
            assert depth < 90 or all(of[ids[number]] == of[ids[number - 1]] for number in range(4, 90, 5))


@pytest.mark.parametrize("kind", ["cosine", "dot"])
def test_passages_without_tokens_rank_last(tmp_path, generator, kind):
    queries = make_queries(generator)
    # The opposite of all tokens of a query is as bad as can be.
    passages = [*make_passages(generator), *(-unit(query.vectors[:1]).astype(np.float16) for query in queries)]
    ids = names(len(passages))
    empty = {one for one, passage in zip(ids, passages, strict=True) if not len(passage)}
    index = indexed(tmp_path, passages, ids, kind)
    for query, (scores, places) in zip(queries, index.search(queries, 97), strict=True):
        assert set(index.ids(places)[-len(empty) :]) == empty
        assert scores[-len(empty)] < scores[-len(empty) - 1]
        others = index.best_of(query, np.arange(97), 90)
        assert [one.tolist() for one in others] == [scores[:90].tolist(), places[:90].tolist()]


def test_queries_of_tiny_length(tmp_path, generator):
    passages = [np.ldexp(one, generator.integers(-14, 0)).astype(np.float16) for one in make_passages(generator)]
    index = indexed(tmp_path, passages, names(90), "dot")
    queries = make_queries(generator, 100)
    queries = [QueryVectors(np.ldexp(one.vectors, generator.integers(-149, -120)), one.weights) for one in queries]
    for query, (scores, places) in zip(queries, index.search(queries, 90), strict=True):
        for found in (index.search([query], 5)[0], index.best_of(query, np.arange(90), 5)):
            assert [one.tolist() for one in found] == [scores[:5].tolist(), places[:5].tolist()]


def results(index, queries, depth=15):
    return [(scores.tobytes(), places.tobytes()) for scores, places in index.search(queries, depth)]


@pytest.mark.parametrize(("kind", "scale"), [("cosine", 1), ("dot", 50), ("dot", np.geomspace(1e-3, 1e3, 90))])
def test_results_do_not_depend_on_shards_blocks_or_other_queries(tmp_path, generator, monkeypatch, kind, scale):
    scales = np.broadcast_to(scale, 90)
    passages = [(one * scale).astype(np.float16) for one, scale in zip(make_passages(generator), scales, strict=True)]
    queries, ids = make_queries(generator, scale=float(scales.max())), names(len(passages))
    expected = results(indexed(tmp_path, passages, ids, kind), queries)
    for bounds in ((40,), (11, 12, 64)):
        assert results(indexed(tmp_path, passages, ids, kind, bounds, 9), queries) == expected
    for products, tokens, candidates in ((1, 1, 1), (50, 6, 7), (1 << 20, 512, 256)):
        monkeypatch.setitem(max_similarity.PRODUCTS_AT_ONCE, "cpu", products)
        monkeypatch.setitem(max_similarity.TOKENS_AT_ONCE, "cpu", tokens)
        monkeypatch.setitem(max_similarity.PASSAGES_AT_ONCE, "cpu", candidates)
        monkeypatch.setattr(max_similarity, "CANDIDATES_AT_ONCE", candidates)
        index = indexed(tmp_path, passages, ids, kind, batch=13)
        assert results(index, queries) == expected
        assert [results(index, [query])[0] for query in queries] == expected


def test_only_what_may_be_among_the_best_is_scored_again(tmp_path, generator, monkeypatch):
    passages, queries = make_passages(generator, 400), make_queries(generator, 3)
    index = indexed(tmp_path, passages, names(400))
    seen = []
    score = ExactScores.scores
    monkeypatch.setattr(ExactScores, "scores", lambda *given: seen.append(len(given[-1])) or score(*given))
    index.search(queries, 20)
    assert sum(seen) < 3 * 30


def test_no_passages_and_no_queries(tmp_path, generator):
    queries = make_queries(generator, 2)
    write_token_shard(tmp_path / "x.arrow", [], ORIGIN, 0)
    index = TokenIndex(open_vectors([tmp_path / "x.arrow"], TOKEN_VECTORS))
    assert [len(scores) for scores, _ in index.search(queries, 5)] == [0, 0]
    assert indexed(tmp_path, make_passages(generator), names(90)).search([], 5) == []


def test_nan_and_infinite_values_are_refused(tmp_path, generator):
    passages = make_passages(generator)
    passages[50] = np.full((2, 6), np.nan, np.float16)
    index = indexed(tmp_path, passages, names(90))
    found = r"0-32-0.arrow: found a vector with NaN, infinite or very large values, expected"
    with pytest.raises(InputError, match=found):
        index.search(make_queries(generator), 5)
