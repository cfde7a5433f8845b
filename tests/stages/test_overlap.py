import numpy as np
import pytest

from cort.evaluation.overlap import Common, Overlap, P, rank_biased_overlap
from cort.formats.artifacts import read_artifact
from cort.formats.tables import QUERIES
from tests.support.common import write_ranked, write_rows

RUNS = {
    "a": {"q1": "d1 d2 d3 d4", "q2": "d1 d2", "q3": "d5"},
    "b": {"q1": "d1 d3 d2 d9", "q2": "d2 d1 d7", "q4": "d1"},
    "none": {"q1": "d8"},
}


def options(folder, runs=RUNS, **more):
    """Write runs; options of the command."""
    files = [
        write_ranked(folder / f"{name}.trec", {query: docs.split() for query, docs in rankings.items()})
        for name, rankings in runs.items()
    ]
    queries = write_rows(folder / "queries.parquet", QUERIES, [(f"q{number}", "") for number in range(1, 6)])
    named = {"split": "eval", "systems": [*runs], "runs": files, "queries": queries}
    return {**named, "output": folder / "overlap.json", **more}


def test_pairs_of_systems_are_compared_on_all_queries(tmp_path, stage):
    output = stage("analyze overlap", **options(tmp_path, depth=3))
    # d1 d2 d3 and d1 d3 d2; d1 d2 and d2 d1 d7, whose last rank agrees as d1 d2 does with d2 d1.
    rbo = (1 - P) * 1 + (1 - P) * P * (1 / 2) + P**2 * 1
    rbo += (1 - P) * P * 1 + P**2 * 1
    pairs = [Common("a", "b", pytest.approx((1 + 2 / 3) / 5), 1 / 5, pytest.approx(rbo / 5))]
    pairs += [Common("a", "none", 0, 0, 0), Common("b", "none", 0, 0, 0)]
    # d5; d7 and d1; d8.
    assert read_artifact(output, Overlap) == Overlap("eval", 5, 3, [*RUNS], pairs, [1 / 5, 2 / 5, 1 / 5])


def test_systems_that_find_nothing_have_nothing_in_common(tmp_path, stage):
    output = stage("analyze overlap", **options(tmp_path, {"a": {}, "b": {}}))
    expected = Overlap("eval", 5, 10, ["a", "b"], [Common("a", "b", 0, 0, 0)], [0, 0])
    assert read_artifact(output, Overlap) == expected


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_rank_biased_overlap_is_that_of_lists_that_go_on_as_they_were(p):
    """An oracle: equation 32 as printed, and the series of which it is the sum, with the agreement that it assumes."""
    generator = np.random.default_rng(0)
    lists = [[generator.permutation(12)[: generator.integers(0, 9)] for _ in range(300)] for _ in range(2)]
    same = np.zeros((300, 8, 8), dtype=bool)
    for query, pair in enumerate(zip(*lists, strict=True)):
        same[query, : len(pair[0]), : len(pair[1])] = pair[0][:, None] == pair[1]
    lengths = np.array([[len(one) for one in system] for system in lists])
    found = rank_biased_overlap(same, lengths.min(axis=0), lengths.max(axis=0), p)
    assert found == pytest.approx(
        [0 if min(map(len, pair)) == 0 else extrapolated(*pair, p) for pair in zip(*lists, strict=True)]
    )
    # In the other order, and of the same lists.
    assert rank_biased_overlap(same.swapaxes(1, 2), lengths.min(axis=0), lengths.max(axis=0), p) == pytest.approx(found)
    whole = np.eye(8, dtype=bool)[None]
    assert rank_biased_overlap(whole, np.array([8]), np.array([8]), p) == pytest.approx([1])


def extrapolated(first, second, p):
    shorter, longer = sorted((first, second), key=len)
    ended, length = len(shorter), len(longer)
    x = [len({*shorter[:depth]} & {*longer[:depth]}) for depth in range(length + 1)]
    printed = sum(x[depth] / depth * p**depth for depth in range(1, length + 1))
    printed += sum(x[ended] * (depth - ended) / (ended * depth) * p**depth for depth in range(ended + 1, length + 1))
    printed = (1 - p) / p * printed + ((x[length] - x[ended]) / length + x[ended] / ended) * p**length

    def agreement(depth):
        within = min(depth, length)
        return (x[within] + max(0, within - ended) * x[ended] / ended) / within

    assert sum((1 - p) * p ** (depth - 1) * agreement(depth) for depth in range(1, 1000)) == pytest.approx(printed)
    return printed


def test_systems_that_are_not_as_many_as_runs_are_refused(tmp_path, refused):
    line = refused("analyze overlap", **options(tmp_path, systems=["a", "b"]))
    assert line.startswith("--runs: found 3 files, expected 2")
