import json

import pytest

from cort.formats import tables
from cort.formats.runs import read_run
from tests.support.common import write_ranked, write_rows


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
    rankings = [[f"d{number}" for number in range(first, 1200, 2)] for first in (0, 1)]
    paths = [write_ranked(tmp_path / f"{i}.trec", {"q": ranking}) for i, ranking in enumerate(rankings)]
    found = read_run(stage("fuse", **options(tmp_path, *paths, depth=800))).by_query()
    assert found["q"] == [f"d{number}" for number in range(800)]


def test_a_term_based_run_that_is_shorter_than_the_depth_begins_at_zero(stage, tmp_path):
    """Its last document is better than those that it lacks, in the fusion as in the tuning of its weights."""
    (tmp_path / "terms.trec").write_text("q Q0 a 1 8 terms\nq Q0 b 2 2 terms\n")
    (tmp_path / "other.trec").write_text("q Q0 c 1 1 other\nq Q0 d 2 0.5 other\nq Q0 b 3 0.25 other\n")
    write_rows(tmp_path / "qrels.parquet", tables.QRELS, [("q", "b", 1)])
    names = ["terms", "other"]
    paths = [tmp_path / f"{name}.trec" for name in names]
    for term_based, depth, first in (("terms", 3, "b"), ("terms", 2, "a"), ("other", 3, "a")):
        named = {"term_based": [term_based], "depth": depth}
        output = stage("fuse", **options(tmp_path, *paths, method="linear") | {"weights": [0.8, 0.2]} | named)
        scores = dict(zip(*(read_run(output)[0][1:]), strict=True))
        assert scores.get("b", 0) == pytest.approx(0.8 / 4 if first == "b" else 0)
        tuning = {"runs": paths, "parts": names, "qrels": tmp_path / "qrels.parquet", "measure": "RR"}
        weights = stage("tune weights", **tuning, **named, output=tmp_path / "weights.json")
        points = {tuple(point["weights"]): point["value"] for point in json.loads(weights.read_text())["grid"]}
        ranks = sorted(scores, key=lambda one: (-scores[one], one))
        assert points[0.8, 0.2] == (1 / (ranks.index("b") + 1) if "b" in ranks else 0)


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
