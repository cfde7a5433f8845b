import subprocess
import sys
from pathlib import Path

import pytest

from cort import import_run
from cort.formats import tables
from tests.support.common import ROOT, command_line, write_file, write_rows

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "msmarco-meta"


@pytest.fixture
def folder(tmp_path):
    write_rows(tmp_path / "queries.parquet", tables.QUERIES, ["11", "22"])
    write_rows(tmp_path / "passages.parquet", tables.PASSAGES, ["aa", "bb", "cc", "dd", "ee"])
    return tmp_path


def run(folder, text, name="published.run", depth=1000):
    write_file(folder / name, text)
    output = folder / "out" / "run.trec"
    named = {"run": folder / name, "queries": folder / "queries.parquet", "passages": folder / "passages.parquet"}
    status = import_run.main(command_line(named, {"depth": depth, "tag": "t", "output": output}))
    return status, output


def scores_of(output):
    return [float(line.split()[4]) for line in output.read_text().splitlines()]


def ranking(output):
    return [tuple(line.split()[index] for index in (0, 2, 3)) for line in output.read_text().splitlines()]


TREC = "2 Q0 a 1 0.5 x\n2 Q0 b 2 0.5 x\n1 Q0 c 7 0.1 x\n2 Q0 c 3 9 x\n1 Q0 d 1 0.2 x\n"
# Ties by doc id descending, the rank column ignored, queries in the file's order.
EXPECTED = [("2", "c", "1"), ("2", "b", "2"), ("2", "a", "3"), ("1", "d", "1"), ("1", "c", "2")]


@pytest.mark.parametrize("name", ["run.txt", "run.trec.gz"])
@pytest.mark.parametrize("separator", [" ", "\t", "  \t"])
def test_six_fields_in_trec_evals_order(folder, name, separator):
    status, output = run(folder, TREC.replace(" ", separator), name)
    assert status == 0
    assert ranking(output) == EXPECTED
    scores = scores_of(output)
    assert scores[0] == 9
    assert scores[0] > scores[1] > scores[2]
    assert scores[1:3] == pytest.approx([0.5, 0.5])


def test_scores_equal_in_single_precision_are_ties(folder):
    _, output = run(folder, "1 Q0 a 1 1.00000000002 x\n1 Q0 b 2 1.00000000001 x\n")
    assert ranking(output) == [("1", "b", "1"), ("1", "a", "2")]


@pytest.mark.parametrize("name", ["run.tsv", "run.tsv.gz"])
def test_three_fields_by_rank(folder, name):
    status, output = run(folder, "2\tb\t2\n1\tc\t2\n2\ta\t1\n2\te\t3\n1\td\t1\n", name)
    assert status == 0
    assert ranking(output) == [("2", "a", "1"), ("2", "b", "2"), ("2", "e", "3"), ("1", "d", "1"), ("1", "c", "2")]
    assert scores_of(output) == pytest.approx([1, 1 / 2, 1 / 3, 1, 1 / 2])


# By score, equal ones by rank: the order that ColBERT evaluates.
SCORED = "2\tb\t2\t27.5\n2\te\t4\t-1e-1\n1\tc\t2\t9\n2\ta\t1\t31.25\n2\tc\t3\t27.5\n1\td\t1\t9.5\n"


@pytest.mark.parametrize("name", ["ranking.tsv", "ranking.tsv.gz"])
@pytest.mark.parametrize("separator", ["\t", " "])
def test_four_fields_by_score(folder, name, separator):
    status, output = run(folder, SCORED.replace("\t", separator), name)
    assert status == 0
    expected = [("2", "a"), ("2", "b"), ("2", "c"), ("2", "e"), ("1", "d"), ("1", "c")]
    assert [result[:2] for result in ranking(output)] == expected
    assert scores_of(output) == pytest.approx([31.25, 27.5, 27.5, -0.1, 9.5, 9])


CANDIDATES = '2\tb\twhat is b\tB is "a letter\n1\tc\twhat is c\tC.\n2\ta\twhat is b\tA.\n1\td\twhat is c\tD.\n'


@pytest.mark.parametrize("name", ["top.tsv", "top.tsv.gz"])
def test_candidates_with_texts_in_the_order_of_the_file(folder, name):
    status, output = run(folder, CANDIDATES, name)
    assert status == 0
    assert ranking(output) == [("2", "b", "1"), ("2", "a", "2"), ("1", "c", "1"), ("1", "d", "2")]
    assert scores_of(output) == pytest.approx([1, 1 / 2, 1, 1 / 2])


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("".join(f"{query}\t{doc}\t{rank}\n" for query in "12" for rank, doc in enumerate("edcba", 1)), ("", "")),
        # A carriage return in a passage is text.
        (CANDIDATES, ("A.", "A\rB.")),
    ],
)
def test_blocks_change_no_byte(folder, monkeypatch, text, changed):
    _, output = run(folder, text)
    complete = output.read_bytes()
    monkeypatch.setattr("cort.formats.lines.ROWS_PER_BATCH", 3)
    status, output = run(folder, text.replace(*changed))
    assert (status, output.read_bytes()) == (0, complete)


def test_texts_of_candidates_are_not_kept_in_memory(tmp_path):
    rows, text = 20_000, "word " * 400
    with open(tmp_path / "top.tsv", "w", encoding="utf-8") as file:
        file.writelines(f"{row // 100}\t{row}\tquery\t{text}\n" for row in range(rows))
    code = (
        "import resource, sys; from cort.formats.runs import read_candidates\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"before = peak(); table = read_candidates({str(tmp_path / 'top.tsv')!r})\n"
        "sys.stdout.write(f'{len(table)} {peak() - before}')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    length, kilobytes = map(int, done.stdout.split())
    assert length == rows
    # The file has 40 MB; blocks of it are 16 MB.
    assert (tmp_path / "top.tsv").stat().st_size > 40e6
    assert kilobytes < 120_000


def test_depth_keeps_the_best(folder):
    _, output = run(folder, TREC, depth=2)
    assert ranking(output) == [("2", "c", "1"), ("2", "b", "2"), ("1", "d", "1"), ("1", "c", "2")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "found an empty run, expected at least one result; build the run again or name another"),
        ("1\ta\t100\n1\tb\t90\n1\tc\t80\n", "row 3: found rank 80 of query '1', expected each rank from 1 to 3 once"),
        ("1\ta\t1_0\n", "row 1: found the rank '1_0'"),
        (f"1\ta\t{'9' * 5000}\n", "row 1: found the rank '999"),
        ("9\ta\t1\n8\ta\t1\n", "found query '9' (2 such queries), expected queries of this split; name a run"),
        (TREC + "1 Q0 z 1 1 x\n", "found document 'z' (1 such results), expected only documents of this"),
        ("1\tz\t2\n1\ty\t1\n", "found document 'y' (2 such results"),
        ("1\ta\t1\n2\ta\t1\n1\ta\t2\n", "row 3: found document 'a' again in the ranking of query '1'"),
        ("1\ta\t1\n2\ta\t1\n1\tb\t1\n", "row 3: found rank 1 of query '1', expected each rank from 1 to 2 once"),
        ("1\ta\t0\n", "row 1: found the rank '0', expected a positive integer; the third column must be a rank: num"),
        ("1\ta\t1\n1\tb\n", "row 2: found 2 fields, expected the 3 fields"),
        ("1\ta\t1\n\n", "row 2: found 0 fields"),
        ("1 Q0 a 1 1e39 x\n", "found the score 1e+39, expected scores within single precision"),
        ("1 Q0 a b\n", "row 1: found 4 fields, expected the 6 fields"),
        (CANDIDATES + "2 b 1\n", "row 5: found 1 fields, expected the 4 fields `query_id TAB doc_id TAB query TAB pa"),
        (CANDIDATES + "2\te\tq\tp\tp\n", "row 5: found 5 fields, expected the 4 fields"),
        (CANDIDATES + "2\te e\tq\tp\n", "row 5: found doc_id 'e e' with whitespace, expected"),
        (CANDIDATES + "\te\tq\tp\n", "row 5: found an empty query_id, expected"),
        (CANDIDATES + "1\tc\tq\tp\n", "row 5: found document 'c' again in the ranking of query '1'"),
        ("1\t0\ta\t1\n2\t0\ta\t0\n", r"row 1: found a judgement ('1\t0\ta\t1'), expected a run or a list"),
        # Numbers as ids.
        ("1 0 7 1\n2 0 7 0\n", "row 1: found a judgement ('1 0 7 1'), expected a run or a list"),
        (SCORED + "1\te\tq\tp q\n", "row 7: found 5 fields, expected the 4 fields"),
        (SCORED + "1\te\t3\tnan\n", "row 7: found the score 'nan', expected a finite number"),
        ("1\ta\t1\t0.2\n1\tb\t2\t0.5\n", "found scores that rise with the rank, as distances do, in 1 of 1 queries"),
        ("1\ta\t1\n1\tb\u00a0\t2\n", r"row 2: found doc_id 'b\xa0' with whitespace"),
    ],
)
def test_bad_runs_are_refused(folder, capsys, text, complaint):
    status, output = run(folder, text)
    error = capsys.readouterr().err
    assert status == 1
    assert f"{folder}/published.run: " in error
    assert complaint in error
    assert not output.parent.exists()


@pytest.mark.parametrize("text", [TREC, "2\ta\t1\n1\tc\t1\n2\tb\t2\n", SCORED, CANDIDATES])
def test_queries_that_the_split_lacks_are_dropped_and_counted(folder, capsys, text):
    _, output = run(folder, text)
    expected = output.read_bytes()
    first = text.splitlines()[0]
    others = "".join(f"{other}{first[1:]}\n" for other in "98")
    status, output = run(folder, others + text)
    assert (status, output.read_bytes()) == (0, expected)
    said = "published.run: dropped queries that the split lacks, as '9' (2 such queries)"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(DATA.glob("run.*")), ids=lambda path: path.name)
def test_official_runs_are_imported_without_warnings(path, caplog):
    assert len(import_run.read_published(path)) in (43, 54)
    assert caplog.messages == []
