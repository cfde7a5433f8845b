import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cort.retrieval.fusion import FUSIONS, fuse, interleave, reciprocal_ranks

ROOT = Path(__file__).parents[3]


def merge(rankings, depth):
    return interleave(rankings, depth)[0]


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


@pytest.mark.parametrize("seed", range(50))
def test_against_the_literal_transcription(seed):
    generator = np.random.default_rng(seed)
    rankings = [random_ranking(generator, 30, generator.integers(0, 31)) for _ in range(generator.integers(1, 5))]
    depth = int(generator.integers(1, 36))
    assert merge(rankings, depth) == oracle(rankings, depth)


def test_an_empty_ranking_leaves_the_other_as_it_is():
    assert merge([[], ["b", "a"]], 10) == ["b", "a"]
    assert merge([["b", "a"], []], 10) == ["b", "a"]
    assert merge([[], []], 10) == []
    assert merge([], 10) == []


def test_depth_cuts_within_a_position():
    assert merge([["a", "b"], ["c", "d"]], 3) == ["a", "c", "b"]


def test_reciprocal_ranks_are_added():
    doc_ids, scores = reciprocal_ranks([["a", "b", "c"], ["c", "d"]], 10)
    assert doc_ids == ["c", "a", "b", "d"]
    # b and d tie, and go by id.
    assert scores.tolist() == [1 / (60 + 3) + 1 / (60 + 1), 1 / (60 + 1), 1 / (60 + 2), 1 / (60 + 2)]


def test_equal_sums_tie_whatever_the_order_of_the_rankings():
    # z has the ranks 1, 2 and 3, and a has 3, 1 and 2, and m has 2, 3 and 1.
    rankings = [["z", "m", "a"], ["a", "z", "m"], ["m", "a", "z"]]
    for order in itertools.permutations(rankings):
        doc_ids, scores = reciprocal_ranks(order, 10)
        assert doc_ids == ["a", "m", "z"]
        assert len(set(scores.tolist())) == 1
        assert scores[0] == pytest.approx(1 / 61 + 1 / 62 + 1 / 63)


def test_reciprocal_ranks_of_nothing_and_of_one_ranking():
    assert reciprocal_ranks([[], []], 10)[0] == reciprocal_ranks([], 10)[0] == []
    assert reciprocal_ranks([["b", "a", "c"], []], 2)[0] == ["b", "a"]


@pytest.mark.parametrize("seed", range(10))
def test_reciprocal_ranks_against_the_formula(seed):
    generator = np.random.default_rng(seed)
    rankings = [random_ranking(generator, 30, generator.integers(0, 31)) for _ in range(generator.integers(1, 5))]

    def score(doc_id):
        return math.fsum(1 / (60 + ranking.index(doc_id) + 1) for ranking in rankings if doc_id in ranking)

    expected = sorted({doc_id for ranking in rankings for doc_id in ranking}, key=lambda one: (-score(one), one))
    doc_ids, scores = reciprocal_ranks(rankings, 12)
    assert doc_ids == expected[:12]
    assert scores.tolist() == [score(doc_id) for doc_id in doc_ids]


@pytest.mark.parametrize("method", FUSIONS)
def test_every_method_keeps_each_document_once_with_scores_that_do_not_increase(method):
    generator = np.random.default_rng(3)
    rankings = [random_ranking(generator, 50, 40) for _ in range(3)]
    found = fuse(method, "q", rankings, 45)
    assert found.query_id == "q"
    assert len(found.doc_ids) == len(set(found.doc_ids)) == len(found.scores) == 45
    assert (np.diff(found.scores) <= 0).all()
    if not FUSIONS[method].needs_all:
        assert fuse(method, "q", [ranking[:7] for ranking in rankings], 7).doc_ids == found.doc_ids[:7]


def test_the_registries_are_read_without_slow_libraries():
    """The workflow does so whenever it starts."""
    program = (
        "import sys; import cort.retrieval.fusion, cort.retrieval.graphs\n"
        "print([name for name in ('numpy', 'pyarrow', 'torch', 'ngtpy', 'hnswlib') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout == "[]\n"
