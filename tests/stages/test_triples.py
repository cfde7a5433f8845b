import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from cort import triples
from cort.formats import tables
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from tests.support.common import command_line
from tests.support.training import Pool, pools_of


def options(world, folder, **changes):
    named = {
        "qrels": world.path("qrels.parquet"),
        "run": world.path("ranking.trec"),
        "first-rank": 3,
        "last-rank": 12,
        "epochs": 4,
        "seed": 1,
        "output": folder / "triples.parquet",
        "output-counts": folder / "counts.json",
    }
    return command_line(named, changes)


def sample(world, folder, **changes):
    assert triples.main(options(world, folder, **changes)) == 0
    return tables.read_table(folder / "triples.parquet", tables.TRIPLES).to_pylist()


def test_every_triple_is_as_the_paper_wants_it(world, tmp_path):
    rows = sample(world, tmp_path)
    ranking = read_run(world.path("ranking.trec")).by_query()
    assert [row["epoch"] for row in rows] == [epoch for epoch in range(4) for _ in range(30)]
    for epoch in range(4):
        assert sorted(row["query_id"] for row in rows if row["epoch"] == epoch) == sorted(world.query_ids)
    for row in rows:
        assert row["positive"] == world.target[row["query_id"]]
        assert row["negative"] != row["positive"]
        assert 3 <= row["negative_rank"] <= 12
        assert ranking[row["query_id"]][row["negative_rank"] - 1] == row["negative"]


def test_the_epochs_differ_in_order_and_negatives(world, tmp_path):
    rows = sample(world, tmp_path)
    epochs = [[row for row in rows if row["epoch"] == epoch] for epoch in range(4)]
    assert len({tuple(row["query_id"] for row in epoch) for epoch in epochs}) == 4
    negatives = [{row["query_id"]: row["negative"] for row in epoch} for epoch in epochs]
    assert sum(negatives[0][query_id] != negatives[1][query_id] for query_id in world.query_ids) > 15


def test_the_seed_decides_the_bytes(world, tmp_path):
    contents = []
    for number, seed in enumerate((1, 1, 2)):
        sample(world, tmp_path / str(number), seed=seed)
        contents.append((tmp_path / str(number) / "triples.parquet").read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_fewer_epochs_are_the_first_ones(world, tmp_path):
    assert sample(world, tmp_path, epochs=2) == sample(world, tmp_path, epochs=4)[:60]


def test_positives_and_negatives_are_drawn_evenly():
    pools = pools_of(Pool("q", ["a", "b"], ["x", "y", "z"], [4, 5, 9]))
    rows = pa.concat_tables(triples.sample_epoch(pools, seed=1, epoch=epoch) for epoch in range(3000)).to_pylist()
    counts = Counter((row["positive"], row["negative"], row["negative_rank"]) for row in rows)
    assert set(counts) == {(p, n, r) for p in "ab" for n, r in zip("xyz", (4, 5, 9), strict=True)}
    # Six standard deviations of a binomial count with probability 1/6.
    assert all(abs(count - 500) < 6 * np.sqrt(3000 * 1 / 6 * 5 / 6) for count in counts.values())


def test_the_counts_are_written(world, tmp_path):
    sample(world, tmp_path, maximum_queries=7)
    ranking = read_run(world.path("ranking.trec")).by_query()
    inside = sum(target in ranking[query_id][2:12] for query_id, target in world.target.items())
    assert json.loads((tmp_path / "counts.json").read_text()) == {
        "queries in the ranking": 30,
        "dropped: no judged positive": 0,
        "dropped: ranking too short": 0,
        "dropped: no negative left on these ranks": 0,
        "judged positives excluded from the negatives": inside,
        "queries kept": 7,
        "queries without results": 0,
        "dropped: more than maximum_queries": 23,
    }


def test_a_hand_made_example(world, tmp_path):
    write_run(tmp_path / "run.trec", [Ranking("q1", ["a", "b", "c"], np.array([3.0, 2, 1]))], "x")
    table = pa.table({"query_id": ["q1", "q1"], "doc_id": ["b", "c"], "relevance": [2, 1]}, schema=tables.QRELS)
    tables.write_table(tmp_path / "qrels.parquet", table)
    changes = {"run": tmp_path / "run.trec", "qrels": tmp_path / "qrels.parquet", "epochs": 1, "minimum_results": 3}
    expected = {"epoch": 0, "query_id": "q1", "positive": "b", "negative": "c", "negative_rank": 3}
    assert sample(world, tmp_path, relevance_level=2, **changes) == [expected]


@pytest.mark.parametrize(
    "changes",
    [
        {"first_rank": 31, "last_rank": 100},
        {"first_rank": 9, "last_rank": 8},
        {"minimum_results": 31},
        {"relevance_level": 2},
    ],
)
def test_nothing_left_is_an_error_without_output(world, tmp_path, complaint, changes):
    line = complaint(triples.main, options(world, tmp_path, **changes), tmp_path / "triples.parquet")
    assert line.startswith(f"{world.path('ranking.trec')}: found no query to train on ({{'queries in the ranking': 30,")
    assert line.endswith("expected at least one; check that run and qrels belong together, or widen the ranks")
    assert not list(tmp_path.iterdir())


def test_ranks_count_from_1(world, tmp_path, complaint):
    line = complaint(triples.main, options(world, tmp_path, first_rank=0), tmp_path / "triples.parquet")
    assert line == "--first-rank: found 0, expected 1 or more; ranks count from 1"


def test_missing_and_wrong_files(world, tmp_path, complaint):
    output = tmp_path / "triples.parquet"
    assert "none.trec" in complaint(triples.main, options(world, tmp_path, run=tmp_path / "none.trec"), output)
    assert "none.parquet" in complaint(triples.main, options(world, tmp_path, qrels=tmp_path / "none.parquet"), output)
    line = complaint(triples.main, options(world, tmp_path, qrels=world.path("passages.parquet")), output)
    assert "passages.parquet: found columns (query_id: missing; relevance: missing)" in line
