import pytest

from cort.evaluation.agreement import Agreement
from cort.evaluation.values import write_values
from cort.formats.artifacts import read_artifact
from cort.formats.tables import QRELS, QUERIES
from tests.support.common import logged, write_rows

pytestmark = pytest.mark.usefixtures("record_messages")

#: text of a query, grades of its documents, and values of the two systems, by split
LABELS = {
    "human": {
        "q1": ("wine", {"d1": 3, "d2": 0, "d3": 1}, (0.5, 1.0)),
        "q2": ("tea", {"d1": 2, "d4": -2}, (0.25, 1.0)),
        "q3": ("of this split", {"d1": 1}, (0.0, 0.0)),
        "q4": ("the one", {"d1": 1}, (0.0, 0.0)),
    },
    "model": {
        "q2": ("tea", {"d1": 1, "d4": 0, "d5": 3}, (0.5, 0.25)),
        "q1": ("wine", {"d1": 3, "d2": 1}, (1.0, 0.5)),
        "q4": ("and the other", {"d1": 3}, (1.0, 0.0)),
    },
}


@pytest.fixture
def compare(stage, tmp_path):
    """A function that writes both splits, runs the stage and returns what it wrote."""

    def run(*, measures=("RR@10", "RR@10"), systems=2, **options):
        named = {"split": "human", "other": "model", "output": tmp_path / "agreement.json"}
        for prefix, (split, labels), measure in zip(("", "other-"), LABELS.items(), measures, strict=True):
            queries = [(query, text) for query, (text, _, _) in labels.items()]
            qrels = [(query, doc, grade) for query, (_, grades, _) in labels.items() for doc, grade in grades.items()]
            named[f"{prefix}queries"] = write_rows(tmp_path / f"queries.{split}.parquet", QUERIES, queries)
            named[f"{prefix}qrels"] = write_rows(tmp_path / f"qrels.{split}.parquet", QRELS, qrels)
            paths = [tmp_path / f"{split}.{system}.parquet" for system in range(systems)]
            named[f"{prefix}per-query"] = paths or None
            for system, path in enumerate(paths):
                values = {query: {measure: of_query[system], "AP": 0.5} for query, (_, _, of_query) in labels.items()}
                write_values(path, values)
        return read_artifact(stage("analyze agreement", **named, **options), Agreement)

    return run


def test_labels_and_rankings_are_compared_on_queries_of_the_same_text(compare):
    # Grades of q1: 3 and 3, 0 and 1; of q2: 2 and 1, -2 (counted as 0) and 0. Mean squared difference .5, of all pairs
    # (28 + 14) / 16.
    expected = sum((a - b) ** 2 for a in (3, 0, 2, 0) for b in (3, 1, 1, 0)) / 16
    # Relevant from 2 on: both 1, 0, 1 and 0, and 1, 0, 0 and 0.
    found = compare(relevance_level=2, other_relevance_level=2, seed=3)
    assert (found.first, found.second, found.queries, found.pairs) == ("human", "model", 2, 4)
    assert found.weighted_kappa == pytest.approx(1 - 0.5 / expected)
    assert found.kappa == pytest.approx(1 - (1 / 4) / (1 / 2))
    # The labels rank the two systems in opposite orders.
    assert (found.systems, found.measure, found.tau) == (2, "RR@10", [-1, -1, -1])


def test_each_split_has_a_relevance_level_of_its_own(compare):
    # 1, 0, 1 and 0 from 2 on, and 1, 1, 1 and 0 from 1 on.
    assert compare(relevance_level=2, other_relevance_level=1).kappa == pytest.approx(1 - (1 / 4) / (1 / 2))


@pytest.mark.parametrize(
    ("case", "measure"), [({"measures": ("RR@10", "R@5")}, None), ({"systems": 0}, None), ({"systems": 1}, "RR@10")]
)
def test_rankings_by_different_measures_or_of_one_system_are_not_compared(compare, case, measure):
    found = compare(**case)
    assert (found.pairs, found.systems, found.measure, found.tau) == (4, case.get("systems", 2), measure, None)


def test_splits_without_a_common_query_do_not_agree_on_anything(compare, monkeypatch, caplog):
    monkeypatch.setitem(LABELS, "model", {"q9": ("another", {"d1": 1}, (0.0, 1.0))})
    assert compare() == Agreement("human", "model", 0, 0, None, None, 2, "RR@10", None)
    assert "Agreement(first='human', second='model', queries=0" in "".join(logged(caplog))
