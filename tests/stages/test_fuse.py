import numpy as np
import pytest

from cort import fuse
from cort.formats.runs import read_run
from cort.retrieval.fusion import interleave
from tests.support.common import write_ranked


def run(tmp_path, *paths, depth=1000, method="interleave"):
    output = tmp_path / "out" / "merged.trec"
    options = ["--method", method, "--runs", *paths, "--depth", str(depth), "--tag", "a+b", "--output", str(output)]
    return fuse.main(options), output


@pytest.fixture
def two(tmp_path):
    first = write_ranked(tmp_path / "a.trec", {"2": ["x", "y"], "1": ["x"]})
    return first, write_ranked(tmp_path / "b.trec", {"3": ["z"], "2": ["y", "w"]})


def test_queries_in_order_of_first_mention_and_scores_one_over_rank(tmp_path, two):
    status, output = run(tmp_path, *two)
    assert status == 0
    lines = [line.split() for line in output.read_text().splitlines()]
    assert [line[0] + line[2] + line[3] for line in lines] == ["2x1", "2y2", "2w3", "1x1", "3z1"]
    assert [float(line[4]) for line in lines] == pytest.approx([1, 1 / 2, 1 / 3, 1, 1])
    assert {line[5] for line in lines} == {"a+b"}


def test_the_written_order_survives_reading(tmp_path):
    generator = np.random.default_rng(7)
    rankings = [[f"d{number}" for number in generator.permutation(900)[:600]] for _ in range(2)]
    paths = [write_ranked(tmp_path / f"{i}.trec", {"q": ranking}) for i, ranking in enumerate(rankings)]
    _, output = run(tmp_path, *paths, depth=800)
    assert read_run(output).by_query()["q"] == interleave(rankings, 800)[0]


def test_the_stage_merges_by_reciprocal_ranks(tmp_path, two):
    status, output = run(tmp_path, *two, method="rrf")
    assert status == 0
    found = read_run(output)
    assert {query: "".join(found.by_query()[query]) for query in found.query_ids} == {"2": "yxw", "1": "x", "3": "z"}
    assert found.scores == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 61, 1 / 61])


@pytest.mark.parametrize("method", ["interleave", "rrf", "linear"])
def test_a_run_without_results_adds_nothing(tmp_path, two, method):
    empty = write_ranked(tmp_path / "empty.trec", {})
    status, output = run(tmp_path, empty, two[0], method=method)
    assert status == 0
    assert {one.query_id: one.doc_ids for one in read_run(output)} == {"2": ["x", "y"], "1": ["x"]}
    status, output = run(tmp_path, empty, write_ranked(tmp_path / "none.trec", {}), method=method)
    assert (status, output.read_bytes()) == (0, b"")


def test_an_unknown_method_is_refused(tmp_path, capsys):
    path = write_ranked(tmp_path / "a.trec", {"1": ["x"]})
    with pytest.raises(SystemExit):
        run(tmp_path, path, path, method="borda")
    assert "invalid choice: 'borda'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        (["a"], "--runs: found 1 run, expected two or more"),
        (["a", "a"], "--runs: found 1 different runs of 2"),
        (["a", "b"], "a.trec: found no query of the other runs"),
        (["a", "bad"], "bad.trec: row 1: found 4 fields"),
    ],
)
def test_runs_that_cannot_be_merged_are_refused(tmp_path, capsys, files, complaint):
    write_ranked(tmp_path / "a.trec", {"1": ["x"]})
    write_ranked(tmp_path / "b.trec", {"2": ["x"]})
    (tmp_path / "bad.trec").write_text("1 Q0 x 1\n")
    status, output = run(tmp_path, *(str(tmp_path / f"{name}.trec") for name in files), depth=9)
    assert status == 1
    assert complaint in capsys.readouterr().err
    assert not output.parent.exists()
