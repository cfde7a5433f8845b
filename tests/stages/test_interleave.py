import itertools

import numpy as np
import pytest

from cort import interleave
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from cort.interleave import interleave as merge


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


def run(tmp_path, *paths, depth=1000):
    output = tmp_path / "out" / "merged.trec"
    options = ["--runs", *paths, "--depth", str(depth), "--tag", "a+b", "--output", str(output)]
    return interleave.main(options), output


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
