import numpy as np
import pytest

from cort.formats.runs import read_run
from cort.retrieval.fusion import interleave
from tests.support.common import write_ranked


def options(tmp_path, *paths, depth=1000, method="interleave"):
    output = tmp_path / "out" / "merged.trec"
    return {"method": method, "runs": [*paths], "depth": depth, "tag": "a+b", "output": output}


@pytest.fixture
def two(tmp_path):
    first = write_ranked(tmp_path / "a.trec", {"2": ["x", "y"], "1": ["x"]})
    return first, write_ranked(tmp_path / "b.trec", {"3": ["z"], "2": ["y", "w"]})


def test_queries_in_order_of_first_mention_and_scores_one_over_rank(stage, tmp_path, two):
    lines = [line.split() for line in stage("fuse", **options(tmp_path, *two)).read_text().splitlines()]
    assert [line[0] + line[2] + line[3] for line in lines] == ["2x1", "2y2", "2w3", "1x1", "3z1"]
    assert [float(line[4]) for line in lines] == pytest.approx([1, 1 / 2, 1 / 3, 1, 1])
    assert {line[5] for line in lines} == {"a+b"}


def test_the_written_order_survives_reading(stage, tmp_path):
    generator = np.random.default_rng(7)
    rankings = [[f"d{number}" for number in generator.permutation(900)[:600]] for _ in range(2)]
    paths = [write_ranked(tmp_path / f"{i}.trec", {"q": ranking}) for i, ranking in enumerate(rankings)]
    found = read_run(stage("fuse", **options(tmp_path, *paths, depth=800))).by_query()
    assert found["q"] == interleave(rankings, 800)[0]


def test_the_stage_merges_by_reciprocal_ranks(stage, tmp_path, two):
    found = read_run(stage("fuse", **options(tmp_path, *two, method="rrf")))
    assert {query: "".join(found.by_query()[query]) for query in found.query_ids} == {"2": "yxw", "1": "x", "3": "z"}
    assert found.scores == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 61, 1 / 61])


@pytest.mark.parametrize("method", ["interleave", "rrf", "linear"])
def test_a_run_without_results_adds_nothing(stage, tmp_path, two, method):
    empty, none = (write_ranked(tmp_path / f"{name}.trec", {}) for name in ("empty", "none"))
    output = stage("fuse", **options(tmp_path, empty, two[0], method=method))
    assert {one.query_id: one.doc_ids for one in read_run(output)} == {"2": ["x", "y"], "1": ["x"]}
    assert stage("fuse", **options(tmp_path, empty, none, method=method)).read_bytes() == b""


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["a"], "--runs: found 1 run, expected two or more"),
        (["a", "a"], "--runs: found 1 different runs of 2"),
        (["a", "b"], "a.trec: found no query of the other runs"),
        (["a", "bad"], "bad.trec: row 1: found 4 fields"),
    ],
)
def test_runs_that_cannot_be_merged_are_refused(refused, tmp_path, files, words):
    write_ranked(tmp_path / "a.trec", {"1": ["x"]})
    write_ranked(tmp_path / "b.trec", {"2": ["x"]})
    (tmp_path / "bad.trec").write_text("1 Q0 x 1\n")
    assert words in refused("fuse", **options(tmp_path, *(tmp_path / f"{name}.trec" for name in files)))
    assert not (tmp_path / "out").exists()
