import itertools
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from cort import pairs, triples
from cort.formats import tables
from cort.formats.runs import read_run
from tests.support.common import command_line, write_ranked, write_rows
from tests.support.training import Pool, pools_of

# Stage, table, and options that differ.
TRIPLES = triples, tables.TRIPLES, {"first-rank": 3, "last-rank": 12, "epochs": 4}
PAIRS = pairs, tables.PAIRS, {"first-rank": 1, "last-rank": 10, "epochs": 3, "negatives": 2}
each_stage = pytest.mark.parametrize("stage", [TRIPLES, PAIRS], ids=["triples", "pairs"])


def options(world, folder, stage=TRIPLES, **changes):
    named = {"qrels": world.path("qrels.parquet"), "run": world.path("ranking.trec"), "seed": 1, **stage[2]}
    outputs = {"output": folder / "examples.parquet", "output-counts": folder / "counts.json"}
    return command_line(named | outputs, changes)


def sample(world, folder, stage=TRIPLES, **changes):
    assert stage[0].main(options(world, folder, stage, **changes)) == 0
    return tables.read_table(folder / "examples.parquet", stage[1]).to_pylist()


def counts_of(folder):
    return json.loads((folder / "counts.json").read_text())


@each_stage
def test_the_seed_decides_the_bytes(world, tmp_path, stage):
    contents = []
    for number, seed in enumerate((1, 1, 2)):
        sample(world, tmp_path / str(number), stage, seed=seed)
        contents.append((tmp_path / str(number) / "examples.parquet").read_bytes())
    assert contents[0] == contents[1] != contents[2]


@each_stage
def test_epochs_differ_and_fewer_epochs_are_the_first_ones(world, tmp_path, stage):
    rows = sample(world, tmp_path, stage)
    epochs = [[row | {"epoch": 0} for row in group] for _, group in itertools.groupby(rows, lambda row: row["epoch"])]
    assert len(epochs) == stage[2]["epochs"]
    assert len({tuple(row["query_id"] for row in epoch) for epoch in epochs}) == len(epochs)
    assert len({frozenset(tuple(row.values()) for row in epoch) for epoch in epochs}) == len(epochs)
    assert sample(world, tmp_path, stage, epochs=2) == rows[: 2 * len(epochs[0])]


@each_stage
def test_counts_are_written(world, tmp_path, stage):
    sample(world, tmp_path, stage, maximum_queries=7)
    first, last = stage[2]["first-rank"], stage[2]["last-rank"]
    ranking = read_run(world.path("ranking.trec")).by_query()
    inside = sum(target in ranking[query_id][first - 1 : last] for query_id, target in world.target.items())
    counts = counts_of(tmp_path)
    counts.pop(pairs.FEWER, None)
    expected = {"queries in the ranking": 30, "queries kept": 7, "dropped: more than maximum_queries": 23}
    expected |= {"judged positives excluded from the negatives": inside, "queries without results": 0}
    nobody = ("no judged positive", "ranking too short", "no negative left on these ranks")
    assert counts == expected | {f"dropped: {reason}": 0 for reason in nobody}


@each_stage
@pytest.mark.parametrize(
    "changes",
    [
        *({"first_rank": 31, "last_rank": 100}, {"first_rank": 9, "last_rank": 8}),
        *({"minimum_results": 31}, {"relevance_level": 2}),
    ],
)
def test_nothing_left_is_an_error_without_output(world, tmp_path, complaint, stage, changes):
    line = complaint(stage[0].main, options(world, tmp_path, stage, **changes), tmp_path / "examples.parquet")
    assert line.startswith(f"{world.path('ranking.trec')}: found no query to train on ({{'queries in the ranking': 30,")
    assert line.endswith("expected at least one; check that run and qrels belong together, or widen the ranks")
    assert not list(tmp_path.iterdir())


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


def test_positives_and_negatives_are_drawn_evenly():
    pools = pools_of(Pool("q", ["a", "b"], ["x", "y", "z"], [4, 5, 9]))
    rows = pa.concat_tables(triples.sample_epoch(pools, seed=1, epoch=epoch) for epoch in range(1500)).to_pylist()
    counts = Counter((row["positive"], row["negative"], row["negative_rank"]) for row in rows)
    assert set(counts) == {(p, n, r) for p in "ab" for n, r in zip("xyz", (4, 5, 9), strict=True)}
    # Six standard deviations of a binomial count with probability 1/6.
    assert all(abs(count - 250) < 6 * np.sqrt(1500 * 1 / 6 * 5 / 6) for count in counts.values())


def test_a_hand_made_example(world, tmp_path):
    qrels = write_rows(tmp_path / "qrels.parquet", tables.QRELS, [("q1", "b", 2), ("q1", "c", 1)])
    run = write_ranked(tmp_path / "run.trec", {"q1": "abc"})
    changes = {"run": run, "qrels": qrels, "epochs": 1, "minimum_results": 3}
    expected = {"epoch": 0, "query_id": "q1", "positive": "b", "negative": "c", "negative_rank": 3}
    assert sample(world, tmp_path, relevance_level=2, **changes) == [expected]


def test_random_negatives_are_some_of_the_negatives(world, tmp_path, complaint):
    line = complaint(pairs.main, options(world, tmp_path, PAIRS, negatives=2, random=3), tmp_path / "examples.parquet")
    assert line == "--random: found 3, expected at most the 2 negatives; lower it"


@pytest.mark.parametrize("negatives", [1, 2, 5])
def test_every_query_has_one_positive_and_its_negatives_per_epoch(world, tmp_path, negatives):
    rows = sample(world, tmp_path, PAIRS, negatives=negatives)
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


def test_a_group_may_have_fewer_negatives():
    pools = pools_of(Pool("q", ["a"], ["x", "y"], [1, 2]), Pool("r", ["a"], list("uvwxyz"), [1, 2, 3, 4, 5, 6]))
    rows = pairs.sample_epoch(pools, pairs.Groups(4), seed=1, epoch=0).to_pylist()
    assert sorted(row["doc_id"] for row in rows if row["query_id"] == "q") == ["a", "x", "y"]
    assert len({row["doc_id"] for row in rows if row["query_id"] == "r"}) == 5


def test_without_negatives_only_positives_remain():
    table = pairs.sample_epoch(pools_of(Pool("q", ["a"], ["x"], [1])), pairs.Groups(0), seed=1, epoch=0)
    assert table.to_pylist() == [{"epoch": 0, "query_id": "q", "doc_id": "a", "relevance": 1}]


def test_negatives_are_drawn_evenly():
    pools = pools_of(Pool("q", ["a"], list("wxyz"), [1, 2, 3, 4]))
    rows = pa.concat_tables(pairs.sample_epoch(pools, pairs.Groups(2), 1, epoch) for epoch in range(1000)).to_pylist()
    counts = Counter(row["doc_id"] for row in rows if not row["relevance"])
    # Two of four: probability 1/2 each, six standard deviations.
    assert all(abs(counts[doc_id] - 500) < 6 * np.sqrt(1000 / 4) for doc_id in "wxyz")


def groups_of(rows):
    """Document ids of each group, the positive first, with the group's query."""
    starts = [place for place, row in enumerate(rows) if row["relevance"]]
    parts = [rows[start:end] for start, end in itertools.pairwise([*starts, len(rows)])]
    return [(part[0]["query_id"], [row["doc_id"] for row in part]) for part in parts]


@pytest.mark.parametrize("positives", ["one", "all"])
def test_random_negatives_are_positives_of_the_queries_that_follow(positives):
    # Each query has two positives, one of which is that of another, too.
    names = [f"q{number}" for number in range(12)]
    ranked = [Pool(q, [f"{q}-a", f"shared{i // 2}"], [f"{q}-x", f"{q}-y"], [1, 2]) for i, q in enumerate(names)]
    pools = pools_of(*ranked)
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
        expected = [doc_id for doc_id in dict.fromkeys(following) if doc_id not in judged[query_id]][:4]
        assert doc_ids[2:] == expected


def test_groups_with_fewer_negatives_are_counted(world, tmp_path):
    # Of 30 queries, each group can have 29 positives of others at most.
    sample(world, tmp_path, PAIRS, negatives=40, random=35)
    counts = counts_of(tmp_path)
    assert counts["positives with fewer negatives than requested"] == 3 * 30
