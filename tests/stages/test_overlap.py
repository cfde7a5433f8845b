import pytest

from cort import analyze
from cort.evaluation.overlap import Common, Overlap
from cort.formats.artifacts import read_artifact
from cort.formats.tables import QUERIES
from tests.support.common import logged, write_ranked, write_rows

pytestmark = pytest.mark.usefixtures("record_messages")

RUNS = {
    "a": {"q1": "d1 d2 d3 d4", "q2": "d1 d2", "q3": "d5"},
    "b": {"q1": "d1 d3 d2 d9", "q2": "d2 d1 d7", "q4": "d1"},
    "none": {"q1": "d8"},
}


def run(folder, *more):
    queries = write_rows(folder / "queries.parquet", QUERIES, [(f"q{number}", "") for number in range(1, 6)])
    runs = [
        write_ranked(folder / f"{name}.trec", {query: docs.split() for query, docs in rankings.items()})
        for name, rankings in RUNS.items()
    ]
    words = ["--split", "eval", "--systems", *RUNS, "--runs", *runs]
    words += ["--queries", queries, "--output", str(folder / "overlap.json")]
    return analyze.main(["overlap", *words, *more])


def test_pairs_of_systems_are_compared_on_all_queries(tmp_path):
    assert run(tmp_path, "--depth", "3") == 0
    pairs = [Common("a", "b", pytest.approx((1 + 2 / 3) / 5), 1 / 5)]
    pairs += [Common("a", "none", 0, 0), Common("b", "none", 0, 0)]
    assert read_artifact(tmp_path / "overlap.json", Overlap) == Overlap("eval", 5, 3, [*RUNS], pairs)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--depth", "0"], "--depth: found 0, expected 1 or more; change it"),
        (["--systems", "a", "b"], "--runs: found 3 files, expected 2, one per system"),
    ],
)
def test_bad_options_are_refused(tmp_path, caplog, more, complaint):
    assert run(tmp_path, *more) == 1
    assert complaint in logged(caplog, "ERROR")[0]
