import pytest

from cort.formats import tables
from cort.formats.runs import read_run
from tests.support.common import write_ranked, write_rows

RUN = {"2": ["a", "c", "b"], "1": ["b"]}


@pytest.fixture
def options(tmp_path):
    """Write a run; options of the stage."""
    queries = write_rows(tmp_path / "queries.parquet", tables.QUERIES, [("1", ""), ("2", "")])

    def write(run, **more):
        path = write_ranked(tmp_path / "run.trec", run)
        return {"queries": queries, "run": path, "output": tmp_path / "out" / "file", **more}

    return write


def test_leaderboard_form(stage, options):
    # Other queries than those of the split are left out.
    output = stage("submission", **options(RUN | {"3": ["a"]}))
    assert output.read_text() == "1\tb\t1\n2\ta\t1\n2\tc\t2\n2\tb\t3\n"


def test_trec_form(stage, options):
    output = stage("submission", **options(RUN, run_id="CoRT-standalone"))
    lines = [line.split(" ") for line in output.read_text().splitlines()]
    assert [" ".join(line[:4]) for line in lines] == ["1 Q0 b 1", "2 Q0 a 1", "2 Q0 c 2", "2 Q0 b 3"]
    assert {line[5] for line in lines} == {"CoRT-standalone"}
    assert float(lines[1][4]) > float(lines[2][4]) > float(lines[3][4])
    assert {query_id: doc_ids for query_id, doc_ids, _ in read_run(output)} == RUN


@pytest.mark.parametrize(
    ("run", "more", "words"),
    [
        ({"1": ["b"]}, {}, "run.trec: found no document for query '2' (1 such queries)"),
        (RUN | {"1": [f"d{number}" for number in range(1001)]}, {}, "run.trec: found 1001 documents for query '1'"),
        *((RUN, {"run_id": name}, "--run-id: found ") for name in ("CoRT+BM25", "a" * 26, "two words", "")),
    ],
)
def test_runs_that_would_be_rejected_are_refused(refused, options, run, more, words):
    assert words in refused("submission", **options(run, **more))
