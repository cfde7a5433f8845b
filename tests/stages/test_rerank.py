import numpy as np
import pytest

from cort.formats import tables
from cort.formats.records import Ranking
from cort.formats.runs import read_run
from cort.retrieval.rerank import rerank as reorder
from tests.support.common import write_ranked, write_rows

CANDIDATES = {"2": ["a", "b", "c", "d", "e"], "1": ["c", "a"]}
SCORES = [("2", "c", 9.0), ("2", "b", 1.0), ("2", "a", 1.0)]
SCORES += [("1", "a", -2.0), ("1", "c", -3.0), ("2", "d", 50.0), ("2", "e", 60.0)]


@pytest.fixture
def options(tmp_path):
    """Write candidates and scores; options of the stage."""

    def write(rows=SCORES, depth=3, rankings=CANDIDATES, **more):
        named = {"candidates": write_ranked(tmp_path / "candidates.trec", rankings), "depth": depth, "tag": "t"}
        named["scores"] = write_rows(tmp_path / "scores.parquet", tables.SCORES, rows)
        return {**named, "output": tmp_path / "out" / "run.trec", **more}

    return write


@pytest.fixture
def run(stage, options):
    return lambda *given, **more: read_run(stage("rerank", **options(*given, **more)))


def ranked(run):
    return {query_id: doc_ids for query_id, doc_ids, _ in run}


def test_the_first_candidates_are_ordered_by_score_and_the_others_stay_below(run):
    result = run()
    assert result.query_ids == ["2", "1"]
    assert ranked(result) == {"2": ["c", "a", "b", "d", "e"], "1": ["a", "c"]}
    scores = next(iter(result)).scores
    assert scores == pytest.approx([9, 1, 1, 0, -1], abs=1e-6)
    assert (np.diff(scores) < 0).all()


def test_scores_are_needed_for_the_first_candidates_only_and_others_are_ignored(run):
    rows = [("2", "a", 1.0), ("2", "b", 2.0), ("1", "c", 0.5), ("1", "a", 0.4), ("7", "a", 1.0), ("2", "z", 1.0)]
    assert ranked(run(rows, depth=2))["2"] == ["b", "a", "c", "d", "e"]


@pytest.mark.parametrize("weight", [1, 0.4])
def test_nothing_is_re_ranked_if_nothing_was_found(stage, options, weight):
    assert stage("rerank", **options([], rankings={}, weight=weight)).read_bytes() == b""


@pytest.mark.parametrize("seed", range(5))
def test_against_python_sorting(run, seed):
    generator = np.random.default_rng(seed)
    rankings = {str(q): [f"d{d}" for d in generator.permutation(40)[: generator.integers(1, 40)]] for q in range(9)}
    rows = [(q, d, float(generator.integers(0, 6))) for q, docs in rankings.items() for d in docs]
    lookup = {(q, d): s for q, d, s in rows}
    generator.shuffle(rows)
    depth = int(generator.integers(1, 45))
    result = ranked(run([(q, d, float(s)) for q, d, s in rows], depth, rankings))
    for q, docs in rankings.items():
        assert result[q] == sorted(docs[:depth], key=lambda d: (-lookup[q, d], d)) + docs[depth:]


def test_the_order_of_the_tail_survives_scores_of_any_size():
    candidates = Ranking("q", [f"d{i}" for i in range(5)], np.arange(5.0, 0, -1))
    for size in (1e30, -1e30, 1e-30, 0.0):
        result = reorder(candidates, np.array([size, 2 * size, np.nan, np.nan, np.nan]), 2)
        assert result.doc_ids[2:] == ["d2", "d3", "d4"]
        assert (np.diff(result.scores) < 0).all()


def test_a_weight_mixes_the_scores_of_the_first_candidates_on_one_scale(run, stage, options):
    assert stage("rerank", **options(weight=1)).read_bytes() == stage("rerank", **options()).read_bytes()
    assert ranked(run(weight=0)) == CANDIDATES
    # Candidates 1, 1/2, 0; the re-ranker 0, 0, 1: a .6, b .3, c .4, and the others below.
    result = run(weight=0.4)
    assert ranked(result)["2"] == ["a", "c", "b", "d", "e"]
    assert next(iter(result)).scores == pytest.approx([0.6, 0.4, 0.3, -0.7, -1.7], abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": SCORES[1:]}, "scores.parquet: found no score for document 'c' of query '2', expected"),
        ({"rows": [], "depth": 1}, "document 'a' of query '2', expected scores for the top 1 (2 are missing)"),
    ],
)
def test_bad_input_is_refused(refused, options, changes, words):
    assert words in refused("rerank", **options(**changes))
