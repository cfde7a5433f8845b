import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cort import fuse
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from cort.retrieval.fusion import FUSIONS, interleave, reciprocal_ranks
from cort.retrieval.fusion import fuse as merge_rankings

ROOT = Path(__file__).parents[2]


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


def write(path, rankings):
    write_run(path, [Ranking(q, docs, -np.arange(len(docs), dtype=float)) for q, docs in rankings.items()], "x")
    return str(path)


def run(tmp_path, *paths, depth=1000, method="interleave"):
    output = tmp_path / "out" / "merged.trec"
    options = ["--method", method, "--runs", *paths, "--depth", str(depth), "--tag", "a+b", "--output", str(output)]
    return fuse.main(options), output


def test_queries_in_order_of_first_mention_and_scores_one_over_rank(tmp_path):
    first = write(tmp_path / "a.trec", {"2": ["x", "y"], "1": ["x"]})
    second = write(tmp_path / "b.trec", {"3": ["z"], "2": ["y", "w"]})
    status, output = run(tmp_path, first, second)
    assert status == 0
    lines = [line.split() for line in output.read_text().splitlines()]
    assert [(line[0], line[2], int(line[3])) for line in lines] == [
        ("2", "x", 1),
        ("2", "y", 2),
        ("2", "w", 3),
        ("1", "x", 1),
        ("3", "z", 1),
    ]
    assert [float(line[4]) for line in lines] == pytest.approx([1, 1 / 2, 1 / 3, 1, 1])
    assert {line[5] for line in lines} == {"a+b"}


def test_the_written_order_survives_reading(tmp_path):
    generator = np.random.default_rng(7)
    rankings = [random_ranking(generator, 900, 600) for _ in range(2)]
    paths = [write(tmp_path / f"{i}.trec", {"q": ranking}) for i, ranking in enumerate(rankings)]
    _, output = run(tmp_path, *paths, depth=800)
    assert read_run(output).by_query()["q"] == oracle(rankings, 800)


def test_one_run_is_refused(tmp_path, capsys):
    status, output = run(tmp_path, write(tmp_path / "a.trec", {"1": ["x"]}))
    assert status == 1
    assert "--runs: found 1 run, expected two or more" in capsys.readouterr().err
    assert not output.parent.exists()


def test_a_depth_of_zero_is_refused(tmp_path, capsys):
    first = write(tmp_path / "a.trec", {"1": ["x"]})
    status, output = run(tmp_path, first, first, depth=0)
    assert status == 1
    assert "--depth: found 0, expected 1 or more" in capsys.readouterr().err
    assert not output.exists()


def test_a_broken_run_leaves_no_output(tmp_path, capsys):
    (tmp_path / "bad.trec").write_text("1 Q0 x 1\n")
    status, output = run(tmp_path, write(tmp_path / "a.trec", {"1": ["x"]}), str(tmp_path / "bad.trec"))
    assert status == 1
    assert "bad.trec: row 1: found 4 fields" in capsys.readouterr().err
    assert not output.exists()


# Reciprocal rank fusion.


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


def test_the_stage_merges_by_reciprocal_ranks(tmp_path):
    first = write(tmp_path / "a.trec", {"2": ["x", "y"], "1": ["x"]})
    second = write(tmp_path / "b.trec", {"3": ["z"], "2": ["y", "w"]})
    status, output = run(tmp_path, first, second, method="rrf")
    assert status == 0
    found = read_run(output)
    assert {query_id: found.by_query()[query_id] for query_id in found.query_ids} == {
        "2": ["y", "x", "w"],
        "1": ["x"],
        "3": ["z"],
    }
    assert found.scores == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 61, 1 / 61])


@pytest.mark.parametrize("method", FUSIONS)
def test_every_method_keeps_each_document_once_with_scores_that_do_not_increase(method):
    generator = np.random.default_rng(3)
    rankings = [random_ranking(generator, 50, 40) for _ in range(3)]
    found = merge_rankings(method, "q", rankings, 45)
    assert found.query_id == "q"
    assert len(found.doc_ids) == len(set(found.doc_ids)) == len(found.scores) == 45
    assert (np.diff(found.scores) <= 0).all()


def test_an_unknown_method_is_refused(tmp_path, capsys):
    path = write(tmp_path / "a.trec", {"1": ["x"]})
    with pytest.raises(SystemExit):
        run(tmp_path, path, path, method="borda")
    assert "invalid choice: 'borda'" in capsys.readouterr().err


def test_the_registries_are_read_without_slow_libraries():
    """The workflow does so whenever it starts."""
    program = (
        "import sys; import cort.retrieval.fusion, cort.retrieval.graphs\n"
        "print([name for name in ('numpy', 'pyarrow', 'torch', 'ngtpy', 'hnswlib') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout == "[]\n"
