import numpy as np
import pytest

from cort import rerank
from cort.formats import tables
from cort.formats.records import Ranking
from cort.formats.runs import read_run
from cort.retrieval.rerank import rerank as reorder
from tests.support.common import write_ranked, write_rows

CANDIDATES = {"2": ["a", "b", "c", "d", "e"], "1": ["c", "a"]}


def run(folder, rows, depth, rankings=CANDIDATES, more=()):
    scores = write_rows(folder / "scores.parquet", tables.SCORES, rows)
    options = ["--candidates", write_ranked(folder / "candidates.trec", rankings), "--scores", scores]
    output = folder / "out" / "run.trec"
    return rerank.main([*options, "--depth", str(depth), "--tag", "t", "--output", str(output), *more]), output


SCORES = [("2", "c", 9.0), ("2", "b", 1.0), ("2", "a", 1.0)]
SCORES += [("1", "a", -2.0), ("1", "c", -3.0), ("2", "d", 50.0), ("2", "e", 60.0)]


def test_the_first_candidates_are_ordered_by_score_and_the_others_stay_below(tmp_path):
    status, output = run(tmp_path, SCORES, depth=3)
    assert status == 0
    result = read_run(output)
    assert result.query_ids == ["2", "1"]
    assert result.by_query()["2"] == ["c", "a", "b", "d", "e"]
    assert result.by_query()["1"] == ["a", "c"]
    scores = next(iter(result)).scores
    assert scores == pytest.approx([9, 1, 1, 0, -1], abs=1e-6)
    assert (np.diff(scores) < 0).all()


def test_scores_are_needed_for_the_first_candidates_only_and_others_are_ignored(tmp_path):
    rows = [("2", "a", 1.0), ("2", "b", 2.0), ("1", "c", 0.5), ("1", "a", 0.4), ("7", "a", 1.0), ("2", "z", 1.0)]
    status, output = run(tmp_path, rows, depth=2)
    assert status == 0
    assert read_run(output).by_query()["2"] == ["b", "a", "c", "d", "e"]
    _, output = run(tmp_path, SCORES, depth=1000)
    assert read_run(output).by_query()["2"] == ["e", "d", "c", "a", "b"]


@pytest.mark.parametrize("weight", ["1", "0.4"])
def test_nothing_is_re_ranked_if_nothing_was_found(tmp_path, weight):
    status, output = run(tmp_path, [], depth=3, rankings={}, more=["--weight", weight])
    assert (status, output.read_bytes()) == (0, b"")


@pytest.mark.parametrize("seed", range(5))
def test_against_python_sorting(tmp_path, seed):
    generator = np.random.default_rng(seed)
    rankings = {str(q): [f"d{d}" for d in generator.permutation(40)[: generator.integers(1, 40)]] for q in range(9)}
    rows = [(q, d, float(generator.integers(0, 6))) for q, docs in rankings.items() for d in docs]
    lookup = {(q, d): s for q, d, s in rows}
    generator.shuffle(rows)
    depth = int(generator.integers(1, 45))
    status, output = run(tmp_path, [(q, d, float(s)) for q, d, s in rows], depth, rankings)
    assert status == 0
    result = read_run(output).by_query()
    for q, docs in rankings.items():
        assert result[q] == sorted(docs[:depth], key=lambda d: (-lookup[q, d], d)) + docs[depth:]


def test_the_order_of_the_tail_survives_scores_of_any_size():
    candidates = Ranking("q", [f"d{i}" for i in range(5)], np.arange(5.0, 0, -1))
    for size in (1e30, -1e30, 1e-30, 0.0):
        result = reorder(candidates, np.array([size, 2 * size, np.nan, np.nan, np.nan]), 2)
        assert result.doc_ids[2:] == ["d2", "d3", "d4"]
        assert (np.diff(result.scores) < 0).all()


def test_a_weight_mixes_the_scores_of_the_first_candidates_on_one_scale(tmp_path):
    plain = run(tmp_path, SCORES, depth=3)[1].read_bytes()
    assert run(tmp_path, SCORES, depth=3, more=["--weight", "1"])[1].read_bytes() == plain
    _, output = run(tmp_path, SCORES, depth=3, more=["--weight", "0"])
    assert {query: read_run(output).by_query()[query] for query in CANDIDATES} == CANDIDATES
    # Candidates 1, 1/2, 0; the re-ranker 0, 0, 1: a .6, b .3, c .4, and the others below.
    _, output = run(tmp_path, SCORES, depth=3, more=["--weight", "0.4"])
    assert read_run(output).by_query()["2"] == ["a", "c", "b", "d", "e"]
    assert next(iter(read_run(output))).scores == pytest.approx([0.6, 0.4, 0.3, -0.7, -1.7], abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"rows": SCORES[1:]},
            "scores.parquet: found no score for document 'c' of query '2', expected scores for the top 3",
        ),
        ({"rows": [], "depth": 1}, "document 'a' of query '2', expected scores for the top 1 (2 are missing)"),
        ({"rows": [*SCORES, ("1", "a", 3.0)]}, "row 8: found document 'a' scored again for query '1', expected each"),
        ({"rows": [("2", "a", float("nan")), *SCORES]}, "row 1: found the score nan, expected a finite number"),
        ({"more": ["--weight=-0.1"]}, "--weight: found -0.1, expected a number from 0 to 1; fix it"),
        ({"more": ["--weight=1.5"]}, "--weight: found 1.5, expected a number from 0 to 1; fix it"),
    ],
)
def test_bad_input_is_refused(tmp_path, capsys, changes, complaint):
    status, output = run(tmp_path, **{"rows": SCORES, "depth": 3, **changes})
    assert status == 1
    assert complaint in capsys.readouterr().err
    assert not output.parent.exists()
