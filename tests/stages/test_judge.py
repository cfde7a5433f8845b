"""Judging a pool: what counts as a grade, the best passage of a document, and answers that are none."""

import json

import pytest

from cort import judge
from cort.formats.judgements import iter_qrels
from cort.formats.tables import PASSAGES, QUERIES
from cort.formats.topics import iter_queries
from cort.models.prompts import GRADE_PROMPT
from tests.support.common import write_ranked, write_rows
from tests.support.model_server import model_server

RUNS = {
    "one": {"q1": ["a#0", "b#0", "c#0"], "q2": ["c#0", "a#1"]},
    "other": {"q1": ["a#1", "d#0"], "q2": ["c#0", "b#0"]},
}
GRADES = {
    **{("q1", "a#0"): "1", ("q1", "a#1"): "Grade: 3.", ("q1", "b#0"): "0", ("q1", "d#0"): "none of it"},
    **{("q2", "c#0"): "**2**", ("q2", "a#1"): "3/3", ("q2", "b#0"): "2 or 3"},
}


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        *(("3", 3), ("0", 0), ("Grade: 2.", 2), ("**1**", 1), ("2, because it is clear", 2), ("grade 2 (2)", 2)),
        *((text, judge.NONE) for text in ("", "4", "13", "2.5", "2/3", "0-3", "2 out of 3", "ok", "-1", "1,5", "x")),
    ],
)
def test_a_grade_stands_alone(answer, grade):
    assert judge.grade_of(answer) == grade


@pytest.fixture
def server(monkeypatch):
    with model_server() as server:
        server.answer = lambda prompt: GRADES[
            tuple(prompt.removeprefix(GRADE_PROMPT).replace("Query: ", "").split()[::2])
        ]
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


@pytest.fixture
def options(tmp_path):
    # The text of each is its id, that of a query ends in "Passage:".
    ids = sorted({doc_id for run in RUNS.values() for ranked in run.values() for doc_id in ranked})
    named = {"queries": write_rows(tmp_path / "queries.parquet", QUERIES, [(f"q{n}", f"q{n}") for n in (1, 2, 3)])}
    named["passages"] = write_rows(tmp_path / "passages.parquet", PASSAGES, zip(ids, ids, strict=True))
    named["runs"] = [write_ranked(tmp_path / f"{name}.trec", rankings) for name, rankings in RUNS.items()]
    outputs = {"queries": "q.jsonl", "qrels": "q.tsv", "counts": "q.json"}
    named |= {f"output_{name}": tmp_path / file for name, file in outputs.items()}
    return named | {"model": "small", "cache": tmp_path / "cache.sqlite", "depth": 2}


def judged(place):
    qrels = {tuple(qrel)[:2]: qrel.relevance for _, qrel in iter_qrels(place / "q.tsv")}
    return qrels, json.loads((place / "q.json").read_text("utf-8"))


NONE = {"not judged: no grade in the answer": 3}


def test_the_top_of_all_runs_is_judged(tmp_path, server, stage, options):
    stage("judge", **options)
    expected = {("q1", "a#0"): 1, ("q1", "a#1"): 3, ("q1", "b#0"): 0, ("q2", "c#0"): 2}
    assert judged(tmp_path) == (expected, {f"grade {grade}": 1 for grade in range(4)} | NONE)
    # Queries without results or grades are there, too.
    assert [query.id for _, query in iter_queries(tmp_path / "q.jsonl")] == ["q1", "q2", "q3"]
    assert sum(server.answered.values()) == len(GRADES)


def test_a_document_has_the_best_grade_of_its_passages_that_counted(tmp_path, server, stage, options):
    given, swapped = server.answer, {"1": "3", "Grade: 3.": "1"}
    # The best one may come first or last.
    for answer, cache in ((given, "a"), (lambda prompt: swapped.get(given(prompt), given(prompt)), "b")):
        server.answer = answer
        stage("judge", **options | {"aggregate": "max", "cache": tmp_path / cache})
        expected = {("q1", "a"): 3, ("q1", "b"): 0, ("q2", "c"): 2}
        assert judged(tmp_path) == (expected, {f"grade {grade}": 1 for grade in (0, 2, 3)} | NONE)


def test_mostly_nonsense_is_an_error_that_writes_nothing(tmp_path, server, refused, options):
    server.answer = lambda prompt: "I cannot say"
    assert refused("judge", **options).startswith("endpoint.model: found 7 of 7 answers without a grade")
    assert not list(tmp_path.glob("q.*"))
