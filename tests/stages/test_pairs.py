import itertools
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from cort import pairs
from cort.formats import tables
from cort.formats.runs import read_run
from tests.support.common import command_line
from tests.support.training import Pool, pools_of


def options(world, folder, **changes):
    named = {
        "qrels": world.path("qrels.parquet"),
        "run": world.path("ranking.trec"),
        "first-rank": 1,
        "last-rank": 10,
        "epochs": 3,
        "seed": 1,
        "negatives": 2,
        "output": folder / "pairs.parquet",
        "output-counts": folder / "counts.json",
    }
    return command_line(named, changes)


def sample(world, folder, **changes):
    assert pairs.main(options(world, folder, **changes)) == 0
    return tables.read_table(folder / "pairs.parquet", tables.PAIRS).to_pylist()


@pytest.mark.parametrize("negatives", [1, 2, 5])
def test_every_query_has_one_positive_and_its_negatives_per_epoch(world, tmp_path, negatives):
    rows = sample(world, tmp_path, negatives=negatives)
    size = 1 + negatives
    assert len(rows) == 3 * 30 * size
    ranking = read_run(world.path("ranking.trec")).by_query()
    seen = Counter()
    for start in range(0, len(rows), size):
        group = rows[start : start + size]
        assert len({(row["epoch"], row["query_id"]) for row in group}) == 1
        assert [row["relevance"] for row in group] == [1] + [0] * negatives
        query_id = group[0]["query_id"]
        seen[group[0]["epoch"], query_id] += 1
        assert group[0]["doc_id"] == world.target[query_id]
        drawn = [row["doc_id"] for row in group[1:]]
        assert len(set(drawn)) == negatives
        assert set(drawn) <= set(ranking[query_id][:10]) - {world.target[query_id]}
    assert seen == {(epoch, query_id): 1 for epoch in range(3) for query_id in world.query_ids}
    assert [row["epoch"] for row in rows] == sorted(row["epoch"] for row in rows)


def test_fewer_negatives_where_there_are_no_more():
    pools = pools_of(Pool("q", ["a"], ["x", "y"], [1, 2]), Pool("r", ["a"], list("uvwxyz"), [1, 2, 3, 4, 5, 6]))
    rows = pairs.sample_epoch(pools, pairs.Groups(4), seed=1, epoch=0).to_pylist()
    assert sorted(row["doc_id"] for row in rows if row["query_id"] == "q") == ["a", "x", "y"]
    assert len({row["doc_id"] for row in rows if row["query_id"] == "r"}) == 5


def test_no_negatives_leaves_the_positives():
    table = pairs.sample_epoch(pools_of(Pool("q", ["a"], ["x"], [1])), pairs.Groups(0), seed=1, epoch=0)
    assert table.to_pylist() == [{"epoch": 0, "query_id": "q", "doc_id": "a", "relevance": 1}]


def test_negatives_are_drawn_evenly():
    pools = pools_of(Pool("q", ["a"], list("wxyz"), [1, 2, 3, 4]))
    rows = pa.concat_tables(pairs.sample_epoch(pools, pairs.Groups(2), 1, epoch) for epoch in range(2000)).to_pylist()
    counts = Counter(row["doc_id"] for row in rows if not row["relevance"])
    # Two of four: probability 1/2 each, six standard deviations.
    assert all(abs(counts[doc_id] - 1000) < 6 * np.sqrt(2000 / 4) for doc_id in "wxyz")


def groups_of(rows):
    """Document ids of each group, the positive first, with the group's query."""
    starts = [place for place, row in enumerate(rows) if row["relevance"]]
    parts = [rows[start:end] for start, end in itertools.pairwise([*starts, len(rows)])]
    return [(part[0]["query_id"], [row["doc_id"] for row in part]) for part in parts]


@pytest.mark.parametrize("positives", ["one", "all"])
def test_random_negatives_are_positives_of_the_queries_that_follow(positives):
    # Each query has two positives, one of which is that of another, too.
    names = [f"q{number}" for number in range(12)]
    pools = pools_of(
        *(Pool(q, [f"{q}-a", f"shared{i // 2}"], [f"{q}-x", f"{q}-y"], [1, 2]) for i, q in enumerate(names))
    )
    judged = dict(zip(names, pools["positives"].to_pylist(), strict=True))
    groups = groups_of(pairs.sample_epoch(pools, pairs.Groups(5, 4, positives), seed=1, epoch=0).to_pylist())
    started = Counter((query_id, doc_ids[0]) for query_id, doc_ids in groups)
    if positives == "all":
        assert started == {(query_id, doc_id): 1 for query_id in names for doc_id in judged[query_id]}
    else:
        assert Counter(query_id for query_id, _ in started) == dict.fromkeys(names, 1)
    for place, (query_id, doc_ids) in enumerate(groups):
        assert len(doc_ids) == len(set(doc_ids)) == 6
        assert doc_ids[1] in {f"{query_id}-x", f"{query_id}-y"}
        following = [groups[(place + step) % len(groups)][1][0] for step in range(1, len(groups))]
        expected = [one for one in dict.fromkeys(following) if one not in judged[query_id]][:4]
        assert doc_ids[2:] == expected


def test_groups_with_fewer_negatives_are_counted(world, tmp_path):
    # Of 30 queries, each group can have 29 positives of others at most.
    sample(world, tmp_path, negatives=40, random=35)
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert counts["positives with fewer negatives than asked"] == 3 * 30


def test_more_random_negatives_than_negatives_are_refused(world, tmp_path, complaint):
    line = complaint(pairs.main, options(world, tmp_path, negatives=2, random=3), tmp_path / "pairs.parquet")
    assert line == "--random: found 3, expected at most the 2 negatives; lower it"


def test_the_seed_decides_the_bytes(world, tmp_path):
    contents = []
    for number, seed in enumerate((1, 1, 2)):
        sample(world, tmp_path / str(number), seed=seed)
        contents.append((tmp_path / str(number) / "pairs.parquet").read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_the_epochs_differ(world, tmp_path):
    rows = sample(world, tmp_path)
    epochs = [[(row["query_id"], row["doc_id"]) for row in rows if row["epoch"] == epoch] for epoch in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert len({frozenset(epoch) for epoch in epochs}) == 3


def test_the_counts_are_written(world, tmp_path):
    sample(world, tmp_path)
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert (counts["queries in the ranking"], counts["queries kept"]) == (30, 30)


def test_nothing_left_is_an_error_without_output(world, tmp_path, complaint):
    line = complaint(pairs.main, options(world, tmp_path, minimum_results=31), tmp_path / "pairs.parquet")
    assert "found no query to train on" in line
    assert not list(tmp_path.iterdir())
