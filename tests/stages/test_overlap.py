import pytest

from cort.evaluation.overlap import Common, Overlap
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
    # d1 d2 d3 and d1 d3 d2; d1 d2 and d2 d1 d7.
    pairs = [Common("a", "b", pytest.approx((1 + 2 / 3) / 5), 1 / 5)]
    pairs += [Common("a", "none", 0, 0), Common("b", "none", 0, 0)]
    # d5; d7 and d1; d8.
    assert read_artifact(output, Overlap) == Overlap("eval", 5, 3, [*RUNS], pairs, [1 / 5, 2 / 5, 1 / 5])


def test_systems_that_find_nothing_have_nothing_in_common(tmp_path, stage):
    output = stage("analyze overlap", **options(tmp_path, {"a": {}, "b": {}}))
    expected = Overlap("eval", 5, 10, ["a", "b"], [Common("a", "b", 0, 0)], [0, 0])
    assert read_artifact(output, Overlap) == expected


def test_systems_that_are_not_as_many_as_runs_are_refused(tmp_path, refused):
    line = refused("analyze overlap", **options(tmp_path, systems=["a", "b"]))
    assert line.startswith("--runs: found 3 files, expected 2")
