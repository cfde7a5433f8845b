import itertools
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from cort import pairs, triples
from cort.formats import tables
from cort.formats.runs import read_run
from tests.support.training import Pool, pools_of

# Table, and options that differ, of each stage.
STAGES = {
    "triples": (tables.TRIPLES, {"first_rank": 3, "last_rank": 12, "epochs": 4}),
    "pairs": (tables.PAIRS, {"first_rank": 1, "last_rank": 10, "epochs": 3, "negatives": 2}),
}
each_stage = pytest.mark.parametrize("name", STAGES)


@pytest.fixture
def options(world, tmp_path):
    named = {"qrels": world.path("qrels.parquet"), "run": world.path("ranking.trec"), "seed": 1}
    named |= {"output": tmp_path / "examples.parquet", "output_counts": tmp_path / "counts.json"}
    return lambda name, **changes: {**named, **STAGES[name][1], **changes}


@pytest.fixture
def sample(stage, options):
    return lambda name, **changes: tables.read_table(
        stage(name, **options(name, **changes)), STAGES[name][0]
    ).to_pylist()


def counts_of(folder):
    return json.loads((folder / "counts.json").read_text())


@each_stage
def test_the_seed_decides_the_bytes(stage, options, name):
    contents = [stage(name, **options(name, seed=seed)).read_bytes() for seed in (1, 1, 2)]
    assert contents[0] == contents[1] != contents[2]


@each_stage
@pytest.mark.parametrize("largest", [1, 200])
def test_ids_of_more_than_two_gigabytes_change_no_byte(world, stage, options, name, largest, monkeypatch):
    # Those of one part may need longer offsets, and those of another not.
    changes = {"run": [world.path("ranking.trec")] * 2} | ({"random": 1} if name == "pairs" else {})
    expected = stage(name, **options(name, **changes)).read_bytes()
    monkeypatch.setattr("cort.formats.ids.LARGEST_OFFSET", largest)
    assert stage(name, **options(name, **changes)).read_bytes() == expected


@each_stage
def test_epochs_differ_and_fewer_epochs_are_the_first_ones(sample, name):
    rows = sample(name)
    epochs = [[row | {"epoch": 0} for row in group] for _, group in itertools.groupby(rows, lambda row: row["epoch"])]
    assert len(epochs) == STAGES[name][1]["epochs"]
    assert len({tuple(row["query_id"] for row in epoch) for epoch in epochs}) == len(epochs)
    assert len({frozenset(tuple(row.values()) for row in epoch) for epoch in epochs}) == len(epochs)
    assert sample(name, epochs=2) == rows[: 2 * len(epochs[0])]


@each_stage
def test_counts_are_written(world, tmp_path, sample, name):
    sample(name, maximum_queries=7)
    first, last = (STAGES[name][1][rank] for rank in ("first_rank", "last_rank"))
    ranking = read_run(world.path("ranking.trec")).by_query()
    inside = sum(target in ranking[query_id][first - 1 : last] for query_id, target in world.target.items())
    counts = counts_of(tmp_path)
    counts.pop(pairs.FEWER, None)
    expected = {"queries in the ranking": 30, "queries kept": 7, "dropped: more than maximum_queries": 23}
    expected |= {"judged positives excluded from the negatives": inside, "queries without results": 0}
    nobody = ("no judged positive", "ranking too short", "too few negatives left on these ranks")
    assert counts == expected | {f"dropped: {reason}": 0 for reason in nobody}


@each_stage
@pytest.mark.parametrize(
    "changes",
    [
        *({"first_rank": 31, "last_rank": 100}, {"first_rank": 9, "last_rank": 8}),
        *({"minimum_results": 31}, {"relevance_level": 2}),
    ],
)
def test_nothing_left_is_an_error_without_output(world, tmp_path, refused, options, name, changes):
    line = refused(name, **options(name, **changes))
    assert line.startswith(f"{world.path('ranking.trec')}: found no query to train on ({{'queries in the ranking': 30,")
    assert not list(tmp_path.iterdir())


def test_random_negatives_are_some_of_the_negatives(refused, options):
    assert refused("pairs", **options("pairs", random=3)).startswith("--random: found 3, expected at most the 2 neg")


def test_every_triple_is_as_the_paper_wants_it(world, sample):
    rows = sample("triples")
    ranking = read_run(world.path("ranking.trec")).by_query()
    assert [row["epoch"] for row in rows] == [epoch for epoch in range(4) for _ in range(30)]
    for epoch in range(4):
        assert sorted(row["query_id"] for row in rows if row["epoch"] == epoch) == sorted(world.query_ids)
    for row in rows:
        assert row["positive"] == world.target[row["query_id"]] != row["negative"]
        assert 3 <= row["negative_rank"] <= 12
        assert ranking[row["query_id"]][row["negative_rank"] - 1] == row["negative"]


def test_positives_and_negatives_are_drawn_evenly():
    pools = pools_of(Pool("q", ["a", "b"], ["x", "y", "z"], [4, 5, 9]))
    rows = pa.concat_tables(triples.sample_epoch(pools, seed=1, epoch=epoch) for epoch in range(1500)).to_pylist()
    counts = Counter((row["positive"], row["negative"], row["negative_rank"]) for row in rows)
    assert set(counts) == {(p, n, r) for p in "ab" for n, r in zip("xyz", (4, 5, 9), strict=True)}
    # Six standard deviations of a binomial count with probability 1/6.
    assert all(abs(count - 250) < 6 * np.sqrt(1500 * 1 / 6 * 5 / 6) for count in counts.values())


def test_several_negatives_of_a_positive_are_consecutive_triples(world, sample, tmp_path):
    rows = sample("triples", negatives=4, last_rank=7)
    ranking = read_run(world.path("ranking.trec")).by_query()
    groups = [rows[start : start + 4] for start in range(0, len(rows), 4)]
    left = {query: {*ranking[query][2:7]} - {world.target[query]} for query in world.query_ids}
    # A target on one of the five ranks leaves just enough.
    assert {len(some) for some in left.values()} == {4, 5}
    assert sorted(group[0]["query_id"] for group in groups) == sorted(4 * world.query_ids)
    for group in groups:
        (query_id,), (positive,) = ({row[name] for row in group} for name in ("query_id", "positive"))
        drawn = {row["negative"] for row in group}
        assert len(drawn) == 4
        assert positive == world.target[query_id]
        assert drawn <= left[query_id]
    # Queries with fewer are dropped.
    sample("triples", negatives=5, last_rank=7, epochs=1)
    short = sum(len(some) == 4 for some in left.values())
    assert counts_of(tmp_path)["dropped: too few negatives left on these ranks"] == short
    assert counts_of(tmp_path)["queries kept"] == 30 - short


@pytest.mark.parametrize("negatives", [1, 5])
def test_every_query_has_one_positive_and_its_negatives_per_epoch(world, sample, negatives):
    rows = sample("pairs", negatives=negatives)
    ranking = read_run(world.path("ranking.trec")).by_query()
    for query_id, (positive, *drawn) in groups_of(rows):
        assert positive == world.target[query_id]
        assert len(drawn) == len(set(drawn)) == negatives
        assert set(drawn) <= set(ranking[query_id][:10]) - {positive}
    positives = [(row["epoch"], row["query_id"]) for row in rows if row["relevance"] == 1]
    assert sorted(positives) == sorted(itertools.product(range(3), world.query_ids))
    assert [row["relevance"] for row in rows] == [1, *[0] * negatives] * len(positives)
    assert [(row["epoch"], row["query_id"]) for row in rows] == [one for one in positives for _ in range(1 + negatives)]
    assert [row["epoch"] for row in rows] == sorted(row["epoch"] for row in rows)


def test_a_group_may_have_fewer_negatives_or_none():
    pools = pools_of(Pool("q", ["a"], ["x", "y"], [1, 2]), Pool("r", ["a"], list("uvwxyz"), [1, 2, 3, 4, 5, 6]))
    rows = pairs.sample_epoch(pools, 1, 0, 4).to_pylist()
    assert sorted(row["doc_id"] for row in rows if row["query_id"] == "q") == ["a", "x", "y"]
    assert len({row["doc_id"] for row in rows if row["query_id"] == "r"}) == 5
    table = pairs.sample_epoch(pools_of(Pool("q", ["a"], ["x"], [1])), 1, 0, 0)
    assert table.to_pylist() == [{"epoch": 0, "query_id": "q", "doc_id": "a", "relevance": 1}]


def test_with_retrieved_positives_each_result_is_a_pair(world, sample):
    rows = sample("pairs", positives="retrieved")
    rankings = read_run(world.path("ranking.trec")).by_query()
    shown = [(query, doc, int(doc == world.target[query])) for query in world.query_ids for doc in rankings[query][:10]]
    assert any(relevance for *_, relevance in shown)
    for epoch in range(3):
        own = [(row["query_id"], row["doc_id"], row["relevance"]) for row in rows if row["epoch"] == epoch]
        assert own != sorted(own) == sorted(shown)


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
    groups = groups_of(pairs.sample_epoch(pools, 1, 0, 5, 4, positives).to_pylist())
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


def test_groups_with_fewer_negatives_are_counted(sample, tmp_path):
    # Of 30 queries, each group can have 29 positives of others at most.
    sample("pairs", negatives=40, random=35)
    assert counts_of(tmp_path)["positives with fewer negatives than requested"] == 3 * 30
