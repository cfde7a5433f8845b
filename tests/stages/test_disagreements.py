import json

import pytest

from cort.evaluation.disagreements import Disagreement, Disagreements, compare, largest
from cort.formats.artifacts import read_artifact, to_json
from cort.formats.tables import PASSAGES, QRELS, QUERIES
from tests.support.common import write_rows


@pytest.mark.parametrize(
    ("first", "second", "judged", "expected"),
    [
        # The difference of reciprocal ranks.
        (["a", "b", "r"], ["x", "r"], {"r": 1, "a": 0}, (1 / 3 - 1 / 2, "r", 3, 2, "a", "x")),
        # What was not retrieved counts 0.
        (["r"], [], {"r": 1}, (1 - 0, "r", 1, None, "r", None)),
        (["a"], ["r"], {"r": 1}, (0 - 1, "r", None, 1, "a", "r")),
        (["a"], ["b"], {"r": 1}, None),
        # Both rank a relevant passage first: no disagreement, although they rank each of the two differently.
        (["r", "s"], ["s", "r"], {"r": 1, "s": 1}, None),
        # The best relevant passage of the system that is ahead.
        (["r", "s"], ["x", "s", "r"], {"r": 1, "s": 1}, (1 - 1 / 2, "r", 1, 3, "r", "x")),
    ],
)
def test_compare(first, second, judged, expected):
    assert compare("q", first, second, judged) == (expected and Disagreement("q", *expected))


def test_compare_obeys_the_relevance_level():
    compared = compare("q", ["r", "s"], ["s"], {"r": 1, "s": 2}, relevance_level=2)
    assert compared is not None
    assert compared.advantage == 1 / 2 - 1


def test_largest_takes_both_sides_and_breaks_ties_by_query_id():
    ahead = [("c", 0.5), ("b", -1.0), ("a", 0.5), ("e", 0.25), ("d", -0.1), ("f", -1.0)]
    several = [Disagreement(*one, "d", 1, None, "d", None) for one in ahead]
    assert [one.query_id for one in largest(several, 2)] == ["a", "c", "b", "f"]
    assert [one.query_id for one in largest(several, 9)] == ["a", "c", "e", "b", "f", "d"]


@pytest.fixture
def options(tmp_path):
    texts = [("1", "first query"), ("2", "second <query>"), ("3", "third")]
    write_rows(tmp_path / "queries.parquet", QUERIES, texts)
    write_rows(tmp_path / "qrels.parquet", QRELS, [("1", "p1", 1), ("1", "p2", 0), ("2", "p3", 2), ("3", "p1", 1)])
    write_rows(tmp_path / "passages.parquet", PASSAGES, [(f"p{number}", f"text {number}") for number in range(1, 9)])
    (tmp_path / "first.trec").write_text("1 Q0 p1 1 9 a\n1 Q0 p2 2 8 a\n2 Q0 p4 1 7 a\n3 Q0 p1 1 5 a\n")
    (tmp_path / "second.trec").write_text("1 Q0 p2 1 9 b\n1 Q0 p1 2 8 b\n2 Q0 p3 1 7 b\n3 Q0 p1 1 5 b\n9 Q0 p1 1 5 b\n")
    files = {"first": "first.trec", "second": "second.trec", "output": "examples.json"}
    files |= {name: f"{name}.parquet" for name in ("queries", "qrels", "passages")}
    named = {"first-name": "cort", "second-name": "bm25", "split": "test", "number": 5}
    return {"name": "analyze disagreements", **named, **{name: tmp_path / file for name, file in files.items()}}


def test_stage_writes_texts_ranks_and_labels(options, stage):
    output = stage(**options)
    once = output.read_text()
    assert stage(**options).read_text() == once
    assert to_json(read_artifact(output, Disagreements)) == once
    content = json.loads(once)
    assert {key: content[key] for key in content if key != "examples"} == {
        "split": "test", "first": "cort", "second": "bm25", "queries": 3, "better_first": 1, "better_second": 1,
    }  # fmt: skip
    first, second = content["examples"]
    assert (first["query_id"], first["query"], first["advantage"]) == ("1", "first query", 1 - 1 / 2)
    assert first["relevant"] == {"doc_id": "p1", "text": "text 1", "rank_first": 1, "rank_second": 2}
    assert first["top_first"] == {"doc_id": "p1", "text": "text 1", "relevant": True}
    assert first["top_second"] == {"doc_id": "p2", "text": "text 2", "relevant": False}
    assert (second["query_id"], second["query"], second["advantage"]) == ("2", "second <query>", -1.0)
    assert second["relevant"] == {"doc_id": "p3", "text": "text 3", "rank_first": None, "rank_second": 1}
    assert second["top_first"] == {"doc_id": "p4", "text": "text 4", "relevant": None}
    assert second["top_second"] == {"doc_id": "p3", "text": "text 3", "relevant": True}


def test_a_passage_that_is_not_there_and_equal_names_are_refused(options, refused, tmp_path):
    assert refused(**options | {"second-name": "cort"}).startswith("--second-name: found 'cort' again")
    path = write_rows(tmp_path / "passages.parquet", PASSAGES, [("p1", "a"), ("p2", "b"), ("p3", "c")])
    assert refused(**options).startswith(f"{path}: found no doc_id 'p4'")
