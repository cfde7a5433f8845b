import itertools
import math

import numpy as np
import pytest

from cort.formats.records import Ranking
from cort.formats.runs import run_of, strictly_decreasing
from cort.retrieval.fusion import FUSIONS, fuse, fuse_runs
from cort.retrieval.lucene import lower_ties
from cort.retrieval.pool import NORMALIZATIONS, FusionSettings, normalize


def fused(method, rankings, depth=10, **settings):
    """The documents and scores of one query."""
    runs = [run_of([Ranking("q", *ranking[-2:])]) for ranking in rankings]
    (merged,) = fuse(method, runs, depth, FusionSettings(**settings))
    return merged.doc_ids, merged.scores.tolist()


def by_rank(method, rankings, depth, **settings):
    return fused(method, [(ranking, np.arange(len(ranking), 0, -1.0)) for ranking in rankings], depth, **settings)


def merge(rankings, depth):
    return by_rank("interleave", rankings, depth)[0]


def oracle(rankings, depth):
    """Section 3.4 read literally: zip the rankings, then omit what was already added."""
    merged = []
    for position in itertools.zip_longest(*rankings):
        for doc_id in position:
            if doc_id is not None and doc_id not in merged:
                merged.append(doc_id)
    return merged[:depth]


def test_the_papers_example():
    # CoRT paper, section 3.4; c and a of the second ranking are already there when their turn comes.
    assert merge([["a", "b", "c", "d"], ["e", "c", "f", "a"]], 1000) == ["a", "e", "b", "c", "f", "d"]


def random_ranking(generator, count, size):
    return [f"d{number}" for number in generator.permutation(count)[:size]]


def random_rankings(generator):
    return [random_ranking(generator, 30, generator.integers(0, 31)) for _ in range(generator.integers(1, 5))]


def test_against_the_literal_transcription():
    for seed in range(50):
        generator = np.random.default_rng(seed)
        rankings, depth = random_rankings(generator), int(generator.integers(1, 36))
        assert merge(rankings, depth) == oracle(rankings, depth)


def test_equal_sums_tie_whatever_the_order_of_the_rankings():
    # z has the ranks 1, 2 and 3, and a has 3, 1 and 2, and m has 2, 3 and 1.
    rankings = [["z", "m", "a"], ["a", "z", "m"], ["m", "a", "z"]]
    for order in itertools.permutations(rankings):
        doc_ids, scores = by_rank("rrf", order, 10)
        assert doc_ids == ["a", "m", "z"]
        assert len(set(scores)) == 1
        assert scores[0] == pytest.approx(1 / 61 + 1 / 62 + 1 / 63)


@pytest.mark.parametrize("k", [60, 1])
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_reciprocal_ranks_against_the_formula(seed, k):
    rankings = [[], []] if seed is None else random_rankings(np.random.default_rng(seed))

    def score(doc_id):
        return math.fsum(1 / (k + ranking.index(doc_id) + 1) for ranking in rankings if doc_id in ranking)

    expected = sorted({doc_id for ranking in rankings for doc_id in ranking}, key=lambda one: (-score(one), one))
    doc_ids, scores = by_rank("rrf", rankings, 12, k=k)
    assert doc_ids == expected[:12]
    assert scores == [score(doc_id) for doc_id in doc_ids]


def scored(doc_ids, generator):
    """A ranking with scores that run files can hold."""
    scores = np.sort(generator.random(len(doc_ids)).astype(np.float32))[::-1]
    return Ranking("q", list(doc_ids), scores.astype(np.float64))


def test_weighted_scores_are_added_on_one_scale():
    first = Ranking("q", ["a", "b", "c"], np.array([8.0, 4.0, 0.0]))
    second = Ranking("q", ["c", "d"], np.array([-1.0, -3.0]))
    found = fused("linear", [first, second], weights=(0.75, 0.25))
    assert found == (["a", "b", "c", "d"], [0.75, 0.375, 0.25, 0.0])
    # Equal weights are the default; a and c tie and go by id.
    assert fused("linear", [first, second], 2) == (["a", "c"], [0.5, 0.5])


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("seed", range(2))
def test_weighted_sums_against_the_formula(normalization, seed):
    generator = np.random.default_rng(seed)
    rankings = [scored(random_ranking(generator, 30, generator.integers(2, 31)), generator) for _ in range(3)]
    weights = (0.5, 0.2, 0.3)

    def on_scale(ranking):
        scores = dict(zip(ranking.doc_ids, ranking.scores.tolist(), strict=True))
        low, high = min(scores.values()), max(scores.values())
        mean = math.fsum(scores.values()) / len(scores)
        deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in scores.values()) / len(scores))
        shift, scale = (low, high - low) if normalization == "min-max" else (mean, deviation)
        return {doc: (scores.get(doc, low) - shift) / scale for one in rankings for doc in one.doc_ids}

    scales = [on_scale(ranking) for ranking in rankings]
    totals = {doc: math.fsum(w * scale[doc] for w, scale in zip(weights, scales, strict=True)) for doc in scales[0]}
    doc_ids, scores = fused("linear", rankings, 12, normalization=normalization, weights=weights)
    assert scores == pytest.approx([totals[doc_id] for doc_id in doc_ids])
    assert scores == pytest.approx(sorted(totals.values(), reverse=True)[:12])


def test_a_ranking_without_results_or_of_equal_scores_is_no_mistake():
    alone, nothing = Ranking("q", ["b"], np.array([7.0])), Ranking("q", [], np.empty(0))
    other = Ranking("q", ["a", "c"], np.array([2.0, 1.0]))
    for normalization in NORMALIZATIONS:
        assert fused("linear", [other, nothing], normalization=normalization)[0] == ["a", "c"]
        assert fused("linear", [nothing, nothing], normalization=normalization)[0] == []
    # All equal scores are the highest: the only document that a ranker finds counts as its first.
    assert fused("linear", [alone, other]) == (["a", "b", "c"], [0.5, 0.5, 0.0])


@pytest.mark.parametrize("count", [1, 2, 60, 1000])
def test_equal_scores_are_equal_in_run_files_too(count):
    """They are lowered there to keep ties in order, by `strictly_decreasing`, or before by Anserini."""
    for score in (0, 1e-9, 0.37, 1.2345, 5.4321, 9.87, 14.2, 37, 1e6):
        equal = np.full(count, score, dtype=np.float32)
        for lowered in (equal, np.round(lower_ties(equal), 6)):
            for name, level in (("min-max", 1), ("z-score", 0)):
                assert normalize(strictly_decreasing(lowered), name)[0].tolist() == [level] * count


@pytest.mark.parametrize("scores", [[0.9, 0.89999], [3e-9, 2e-9, 1e-9], [1 / rank for rank in range(1, 1001)]])
def test_small_differences_of_scores_count(scores):
    found, _ = normalize(np.array(scores), "min-max")
    assert (found[0], found[-1]) == (1, 0)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_ties_are_normalised_as_ties_wherever_they_are(normalization):
    """Of four equal hits between others, none is ahead of the others because of its id."""
    generator = np.random.default_rng(1)
    for top, lower in (
        (7.25, strictly_decreasing),
        (7.25, lambda ties: np.round(lower_ties(ties), 6)),
        (0.5, strictly_decreasing),
    ):
        tied = np.float32([2 * top, top, top, top, top, top / 2])
        expected, missing = normalize(tied.astype(np.float64), normalization)
        assert len(set(expected.tolist())) == 3
        order = generator.permutation(6)
        for by in (np.arange(6), order):
            assert normalize(lower(tied)[by], normalization)[0].tolist() == expected[by].tolist()
            assert normalize(lower(tied)[by], normalization)[1] == missing
    # The second ranking decides among the ties of the first.
    first = Ranking("q", ["a", "b", "c", "d"], strictly_decreasing(np.full(4, 3.0)).astype(float))
    second = Ranking("q", ["c", "b", "a", "d"], np.array([4.0, 3.0, 2.0, 1.0]))
    assert fused("linear", [first, second], normalization=normalization)[0] == ["c", "b", "a", "d"]


def test_the_minimum_of_a_complete_ranking_by_terms_is_zero():
    """It lacks documents without a term of the query, which score 0: less than the last one that it has."""
    terms, other = (list("abc"), np.array([8.0, 4.0, 2.0])), (list("cd"), np.array([0.9, 0.1]))

    def of_terms(depth, *from_zero):
        settings = FusionSettings(weights=(1.0, 0.0), from_zero=from_zero, depth=depth)
        (merged,) = fuse("linear", [run_of([Ranking("q", *one)]) for one in (terms, other)], 10, settings)
        return dict(zip(merged.doc_ids, merged.scores.tolist(), strict=True))

    complete, cut = {"a": 1, "b": 0.5, "c": 0.25, "d": 0}, {"a": 1, "b": 1 / 3, "c": 0, "d": 0}
    assert of_terms(4, True, False) == complete
    assert of_terms(3, True, False) == cut
    assert of_terms(4, False, True) == of_terms(4) == cut
    # One result, or equal ones, count as 1 in either case.
    for scores in ([3.0], [3.0, 3.0]):
        assert normalize(np.array(scores), "min-max", from_zero=True)[0].tolist() == [1.0] * len(scores)


@pytest.mark.parametrize("method", FUSIONS)
def test_every_method_keeps_each_document_once_with_scores_that_do_not_increase(method):
    generator = np.random.default_rng(3)
    rankings = [scored(random_ranking(generator, 50, 40), generator) for _ in range(3)]
    doc_ids, scores = fused(method, rankings, 45)
    assert len(doc_ids) == len(set(doc_ids)) == len(scores) == 45
    assert (np.diff(scores) <= 0).all()
    if not FUSIONS[method].needs_all:
        first = [Ranking("q", one.doc_ids[:7], one.scores[:7]) for one in rankings]
        assert fused(method, first, 7)[0] == doc_ids[:7]


@pytest.mark.parametrize("method", FUSIONS)
def test_queries_are_merged_as_each_would_be_alone(method, monkeypatch):
    """Runs answer different queries, in different orders; blocks end anywhere."""
    monkeypatch.setattr("cort.retrieval.fusion.QUERIES_PER_BLOCK", 3)
    generator = np.random.default_rng(5)
    runs = [
        run_of(
            [
                scored(random_ranking(generator, 30, generator.integers(1, 31)), generator)._replace(query_id=f"q{q}")
                for q in generator.permutation(10)[:7]
            ]
        )
        for _ in range(3)
    ]
    own = {"q3": (0.1, 0.2, 0.7)}
    merged = {one.query_id: one for run in fuse_runs(method, runs, 12, FusionSettings(own=own)) for one in run}
    names = dict.fromkeys(query_id for run in runs for query_id in run.query_ids)
    assert [*merged] == [*names]
    for query_id in names:
        rankings = [run.by_query().ranking(query_id) for run in runs]
        expected = fused(method, rankings, 12, weights=own.get(query_id, ()))
        assert (merged[query_id].doc_ids, merged[query_id].scores.tolist()) == expected
