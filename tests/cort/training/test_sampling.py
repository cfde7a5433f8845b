import numpy as np
import pytest

from cort.formats import tables
from cort.formats.runs import read_run
from cort.training.sampling import build_pools, join_runs, limit_pools, shuffle
from tests.support.common import table_of, write_ranked
from tests.support.training import Pool, each_of, pools_of


def qrels(*rows):
    return table_of(tables.QRELS, rows)


def run(folder, rankings):
    return read_run(write_ranked(folder / "run.trec", rankings))


def judged(positives):
    """Judgements of grade 1."""
    return qrels(*((query_id, doc_id, 1) for query_id, doc_ids in positives.items() for doc_id in doc_ids))


def test_results_of_several_runs_are_merged_with_each_document_at_its_best_rank(tmp_path):
    runs = [run(tmp_path, {"1": "abc", "2": "de"}), run(tmp_path, {"3": "x", "1": "cbyz"})]
    found = join_runs(runs, 1, 3)
    rows = zip(found.queries.tolist(), found.doc_ids.to_pylist(), found.ranks.tolist(), strict=True)
    assert found.query_ids.to_pylist() == ["1", "2", "3"]
    assert found.sizes.tolist() == [4, 2, 1]
    assert list(rows) == [(0, "a", 1), (0, "c", 1), (0, "b", 2), (0, "y", 3), (1, "d", 1), (1, "e", 2), (2, "x", 1)]
    pools, counts = build_pools(judged({"1": ["c", "y"]}), 1, found, 4)
    assert each_of(pools) == [Pool("1", ["c", "y"], ["a", "b"], [1, 2], ["c", "y"])]
    assert counts["judged positives excluded from the negatives"] == 2


def test_each_filter_by_hand(tmp_path):
    rankings = {"unjudged": "abcd", "short": "ab", "exactly": "abc", "all_relevant": "abcd", "some_relevant": "dcbae"}
    positives = {"short": "a", "exactly": "z", "all_relevant": "bca", "some_relevant": "baq"}
    positives |= {"not_in_the_run": "a", "nor_this_one": "b"}
    pools, counts = build_pools(judged(positives), 1, join_runs([run(tmp_path, rankings)], 2, 3), minimum_results=3)
    exactly = Pool("exactly", ["z"], ["b", "c"], [2, 3])
    assert each_of(pools) == [exactly, Pool("some_relevant", ["b", "a", "q"], ["c"], [2], ["b"])]
    dropped = ("no judged positive", "ranking too short", "too few negatives left on these ranks")
    expected = {"queries in the ranking": 5, "queries kept": 2, "queries without results": 2}
    expected |= {f"dropped: {reason}": 1 for reason in dropped}
    assert counts == expected | {"judged positives excluded from the negatives": 2 + 1}


@pytest.mark.parametrize(
    ("rankings", "counted"),
    [
        ({"q": "abc"}, {"queries in the ranking": 1, "dropped: too few negatives left on these ranks": 1}),
        ({}, {"queries without results": 1}),
    ],
    ids=["ranks beyond the ranking", "an empty run"],
)
def test_without_results_on_the_ranks_there_are_no_pools(tmp_path, rankings, counted):
    pools, counts = build_pools(judged({"q": ["x"]}), 1, join_runs([run(tmp_path, rankings)], 4, 100), 1)
    assert each_of(pools) == []
    assert {name: count for name, count in counts.items() if count} == counted


@pytest.mark.parametrize("seed", range(3))
def test_pools_against_brute_force(tmp_path, seed):
    generator = np.random.default_rng(seed)
    docs = np.array([f"d{number}" for number in range(40)])
    rankings = {f"q{q}": list(generator.permutation(docs)[: generator.integers(1, 30)]) for q in range(25)}
    grades = [
        (f"q{q}", doc, int(generator.integers(0, 3)))
        for q in range(30)
        for doc in generator.permutation(docs)[: generator.integers(0, 15)]
    ]
    level, first, minimum = (int(generator.integers(1, bound)) for bound in (3, 6, 12))
    last = first + int(generator.integers(0, 20))
    pools, counts = build_pools(qrels(*grades), level, join_runs([run(tmp_path, rankings)], first, last), minimum)
    expected = []
    for query_id, ranking in rankings.items():
        relevant = [doc for query, doc, grade in grades if query == query_id and grade >= level]
        kept = [(doc, i + 1) for i, doc in enumerate(ranking) if first <= i + 1 <= last and doc not in relevant]
        if relevant and len(ranking) >= minimum and kept:
            found = [doc for doc in ranking[first - 1 : last] if doc in relevant]
            expected.append(Pool(query_id, relevant, [doc for doc, _ in kept], [rank for _, rank in kept], found))
    assert each_of(pools) == expected
    assert counts["queries kept"] == len(expected)
    dropped = sum(count for name, count in counts.items() if name.startswith("dropped"))
    assert counts["queries in the ranking"] == len(rankings) == dropped + len(expected)


def some_pools(count):
    return pools_of(*(Pool(f"q{number}", ["p"], ["n"], [1]) for number in range(count)))


def test_an_epoch_has_every_query_once_in_an_order_of_its_own():
    pools = some_pools(50)
    orders = {(seed, epoch): shuffle(pools, seed, epoch)[0].tolist() for seed in (1, 2) for epoch in (0, 1)}
    for order in orders.values():
        assert sorted(order) == list(range(50))
    assert len({tuple(order) for order in orders.values()}) == 4
    assert shuffle(pools, 1, 0)[0].tolist() == orders[1, 0]


@pytest.mark.parametrize("maximum", [1, 7, 19])
def test_a_limit_draws_that_many_queries_and_keeps_their_order(maximum):
    pools = some_pools(20)
    assert all(limit_pools(pools, unlimited, seed=1) is pools for unlimited in (0, 20, 21))
    drawn = each_of(limit_pools(pools, maximum, seed=1))
    numbers = [int(pool.query_id[1:]) for pool in drawn]
    assert len(set(numbers)) == maximum
    assert numbers == sorted(numbers)
    assert drawn == each_of(limit_pools(pools, maximum, seed=1))
    assert any(drawn != each_of(limit_pools(pools, maximum, seed)) for seed in (2, 3, 4))
