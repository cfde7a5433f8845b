import re

import pytest

from cort import submission
from cort.formats import tables
from cort.formats.runs import read_run
from tests.support.common import write_ranked, write_rows

RUN = {"2": ["a", "c", "b"], "1": ["b"]}


@pytest.fixture
def call(tmp_path):
    queries = write_rows(tmp_path / "queries.parquet", tables.QUERIES, [("1", ""), ("2", "")])

    def call(run, *options):
        path, output = write_ranked(tmp_path / "run.trec", run), tmp_path / "out" / "file"
        return submission.main(["--queries", queries, "--run", path, *options, "--output", str(output)]), output

    return call


def test_leaderboard_form(call):
    # Other queries than those of the split are left out.
    status, output = call(RUN | {"3": ["a"]})
    assert status == 0
    assert output.read_text() == "1\tb\t1\n2\ta\t1\n2\tc\t2\n2\tb\t3\n"


def test_trec_form(call):
    status, output = call(RUN, "--run-id", "CoRT-standalone")
    assert status == 0
    lines = [line.split(" ") for line in output.read_text().splitlines()]
    assert [" ".join(line[:4]) for line in lines] == ["1 Q0 b 1", "2 Q0 a 1", "2 Q0 c 2", "2 Q0 b 3"]
    assert {line[5] for line in lines} == {"CoRT-standalone"}
    assert float(lines[1][4]) > float(lines[2][4]) > float(lines[3][4])
    again = {query_id: doc_ids for query_id, doc_ids, _ in read_run(output)}
    assert again == RUN


MANY = [f"d{number}" for number in range(1001)]
BAD_RUNS = [
    ({"1": ["b"]}, "found no document for query '2' (1 such queries), expected results for every query"),
    (RUN | {"1": MANY}, "found 1001 documents for query '1', expected at most 1000; retrieve or keep fewer"),
]


@pytest.mark.parametrize(
    ("run", "options", "complaint"),
    [
        *((run, [], f"run.trec: {complaint}") for run, complaint in BAD_RUNS),
        (RUN, ["--run-id", "CoRT+BM25"], "--run-id: found 'CoRT+BM25', expected 1 to 25 letters"),
        (RUN, ["--run-id", "a" * 26], "expected 1 to 25 letters, digits, - and _; choose another"),
        (RUN, ["--run-id", "two words"], "--run-id: found 'two words'"),
        (RUN, ["--run-id", ""], "--run-id: found ''"),
    ],
)
def test_runs_that_would_be_rejected_are_refused(call, capsys, run, options, complaint):
    status, output = call(run, *options)
    error = capsys.readouterr().err
    assert status == 1
    assert complaint in error
    assert len(re.findall("ERROR", error)) == 1
    assert not output.parent.exists()
