"""Judging a pool: what counts as a grade, the best passage of a document, and answers that are none."""

import json

import pyarrow as pa
import pytest

from cort import judge
from cort.formats.judgements import iter_qrels
from cort.formats.tables import PASSAGES, QUERIES, write_table
from cort.formats.topics import iter_queries
from cort.models.prompts import GRADE
from tests.support.common import command_line
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
        server.answer = lambda prompt: GRADES[tuple(prompt.removeprefix(GRADE).replace("Query: ", "").split()[::2])]
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


def run(place, **changes):
    # The text of each is its id, that of a query ends in "Passage:".
    ids = sorted({doc_id for run in RUNS.values() for ranked in run.values() for doc_id in ranked})
    write_table(place / "passages.parquet", pa.table([ids, ids], schema=PASSAGES))
    write_table(place / "queries.parquet", pa.table([["q1", "q2", "q3"]] * 2, schema=QUERIES))
    for name, rankings in RUNS.items():
        lines = [
            f"{query} Q0 {doc_id} {rank} {-rank} {name}\n"
            for query, ranked in rankings.items()
            for rank, doc_id in enumerate(ranked, 1)
        ]
        (place / f"{name}.trec").write_text("".join(lines), "utf-8")
    named = {"queries": place / "queries.parquet", "passages": place / "passages.parquet", "model": "small"}
    named |= {"cache": place / "cache.sqlite", "output-queries": place / "q.jsonl", "output-qrels": place / "q.tsv"}
    named |= {"output-counts": place / "q.json"}
    runs = [place / f"{name}.trec" for name in RUNS]
    return judge.main(command_line(named, {"runs": runs, "depth": 2, **changes}))


def judged(place):
    qrels = {tuple(qrel)[:2]: qrel.relevance for _, qrel in iter_qrels(place / "q.tsv")}
    return qrels, json.loads((place / "q.json").read_text("utf-8"))


def test_the_top_of_all_runs_is_judged(tmp_path, server):
    assert run(tmp_path) == 0
    expected = {("q1", "a#0"): 1, ("q1", "a#1"): 3, ("q1", "b#0"): 0, ("q2", "c#0"): 2}
    assert judged(tmp_path) == (
        expected,
        {"grade 0": 1, "grade 1": 1, "grade 2": 1, "grade 3": 1, "not judged: no grade in the answer": 3},
    )
    # Queries without results or grades are there, too.
    assert [query.id for _, query in iter_queries(tmp_path / "q.jsonl")] == ["q1", "q2", "q3"]
    assert sum(server.answered.values()) == len(GRADES)


def test_a_document_has_the_best_grade_of_its_passages_that_counted(tmp_path, server):
    assert run(tmp_path, aggregate="max") == 0
    qrels, counts = judged(tmp_path)
    assert qrels == {("q1", "a"): 3, ("q1", "b"): 0, ("q2", "c"): 2}
    assert counts == {"grade 0": 1, "grade 2": 1, "grade 3": 1, "not judged: no grade in the answer": 3}


def test_mostly_nonsense_is_an_error_that_writes_nothing(tmp_path, server, capsys):
    server.answer = lambda prompt: "I cannot say"
    assert run(tmp_path) == 1
    assert "endpoint.model: found 7 of 7 answers without a grade from 0 to 3, expected" in capsys.readouterr().err
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("q.")]
