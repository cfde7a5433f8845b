import subprocess
import sys
from pathlib import Path

import pytest

from cort import import_run
from cort.formats import tables
from tests.support.common import ROOT, write_file, write_rows

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "msmarco-meta"


@pytest.fixture
def folder(tmp_path):
    write_rows(tmp_path / "queries.parquet", tables.QUERIES, ["11", "22"])
    write_rows(tmp_path / "passages.parquet", tables.PASSAGES, ["aa", "bb", "cc", "dd", "ee"])
    return tmp_path


def options(folder, text, name="published.run", depth=1000):
    named = {"run": write_file(folder / name, text), "depth": depth, "tag": "t", "output": folder / "out" / "run.trec"}
    return {"name": "import_run", **named, **{part: folder / f"{part}.parquet" for part in ("queries", "passages")}}


@pytest.fixture
def imported(stage, folder):
    """A function that imports a run; query, document and rank of each line, and the scores."""

    def run(text, *named, **changes):
        lines = [line.split() for line in stage(**options(folder, text, *named, **changes)).read_text().splitlines()]
        return [(line[0], line[2], line[3]) for line in lines], [float(line[4]) for line in lines]

    return run


TREC = "2 Q0 a 1 0.5 x\n2 Q0 b 2 0.5 x\n1 Q0 c 7 0.1 x\n2 Q0 c 3 9 x\n1 Q0 d 1 0.2 x\n"
# Ties by doc id descending, the rank column ignored, queries in the file's order.
EXPECTED = [("2", "c", "1"), ("2", "b", "2"), ("2", "a", "3"), ("1", "d", "1"), ("1", "c", "2")]


@pytest.mark.parametrize("name", ["run.txt", "run.trec.gz"])
@pytest.mark.parametrize("separator", [" ", "\t", "  \t"])
def test_six_fields_in_trec_evals_order(imported, name, separator):
    ranking, scores = imported(TREC.replace(" ", separator), name)
    assert ranking == EXPECTED
    assert scores[0] == 9
    assert scores[0] > scores[1] > scores[2]
    assert scores[1:3] == pytest.approx([0.5, 0.5])


def test_scores_equal_in_single_precision_are_ties(imported):
    ranking, _ = imported("1 Q0 a 1 1.00000000002 x\n1 Q0 b 2 1.00000000001 x\n")
    assert ranking == [("1", "b", "1"), ("1", "a", "2")]


RANKED = "2\tb\t2\n1\tc\t2\n2\ta\t1\n2\te\t3\n1\td\t1\n"
# By score, equal ones by rank: the order that ColBERT evaluates.
SCORED = "2\tb\t2\t27.5\n2\te\t4\t-1e-1\n1\tc\t2\t9\n2\ta\t1\t31.25\n2\tc\t3\t27.5\n1\td\t1\t9.5\n"
CANDIDATES = '2\tb\twhat is b\tB is "a letter\n1\tc\twhat is c\tC.\n2\ta\twhat is b\tA.\n1\td\twhat is c\tD.\n'
#: text, rankings and scores: by rank, by score, and in the order of the file
FORMS = {
    "three": (RANKED, {"2": "abe", "1": "dc"}, [1, 1 / 2, 1 / 3, 1, 1 / 2]),
    "four": (SCORED, {"2": "abce", "1": "dc"}, [31.25, 27.5, 27.5, -0.1, 9.5, 9]),
    "four, by blanks": (SCORED.replace("\t", " "), {"2": "abce", "1": "dc"}, [31.25, 27.5, 27.5, -0.1, 9.5, 9]),
    "texts": (CANDIDATES, {"2": "ba", "1": "cd"}, [1, 1 / 2, 1, 1 / 2]),
}


@pytest.mark.parametrize("name", ["run.tsv", "run.tsv.gz"])
@pytest.mark.parametrize("form", FORMS)
def test_fields_by_tabs(imported, name, form):
    text, rankings, expected = FORMS[form]
    found, scores = imported(text, name)
    assert found == [(query, doc, str(rank)) for query, docs in rankings.items() for rank, doc in enumerate(docs, 1)]
    assert scores == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("".join(f"{query}\t{doc}\t{rank}\n" for query in "12" for rank, doc in enumerate("edcba", 1)), ("", "")),
        # A carriage return in a passage is text.
        (CANDIDATES, ("A.", "A\rB.")),
    ],
)
def test_blocks_change_no_byte(imported, monkeypatch, text, changed):
    complete = imported(text)
    monkeypatch.setattr("cort.formats.lines.ROWS_PER_BATCH", 3)
    assert imported(text.replace(*changed)) == complete


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


def test_depth_keeps_the_best(imported):
    assert imported(TREC, depth=2)[0] == [("2", "c", "1"), ("2", "b", "2"), ("1", "d", "1"), ("1", "c", "2")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found an empty run"),
        ("1\ta\t100\n1\tb\t90\n1\tc\t80\n", "row 3: found rank 80 of query '1'"),
        ("1\ta\t1_0\n", "row 1: found the rank '1_0'"),
        (f"1\ta\t{'9' * 5000}\n", "row 1: found the rank '999"),
        ("9\ta\t1\n8\ta\t1\n", "found query '9' (2 such queries)"),
        (TREC + "1 Q0 z 1 1 x\n", "found document 'z' (1 such results)"),
        ("1\tz\t2\n1\ty\t1\n", "found document 'y' (2 such results"),
        ("1\ta\t1\n2\ta\t1\n1\ta\t2\n", "row 3: found document 'a' again in the ranking of query '1'"),
        ("1\ta\t1\n2\ta\t1\n1\tb\t1\n", "row 3: found rank 1 of query '1'"),
        ("1\ta\t0\n", "row 1: found the rank '0'"),
        ("1\ta\t1\n1\tb\n", "row 2: found 2 fields, expected the 3 fields"),
        ("1\ta\t1\n\n", "row 2: found 0 fields"),
        ("1 Q0 a 1 1e39 x\n", "found the score 1e+39"),
        ("1 Q0 a b\n", "row 1: found 4 fields, expected the 6 fields"),
        (CANDIDATES + "2 b 1\n", "row 5: found 1 fields, expected the 4 fields"),
        (CANDIDATES + "2\te\tq\tp\tp\n", "row 5: found 5 fields, expected the 4 fields"),
        (CANDIDATES + "2\te e\tq\tp\n", "row 5: found doc_id 'e e' with whitespace"),
        (CANDIDATES + "\te\tq\tp\n", "row 5: found an empty query_id"),
        (CANDIDATES + "1\tc\tq\tp\n", "row 5: found document 'c' again in the ranking of query '1'"),
        ("1\t0\ta\t1\n2\t0\ta\t0\n", r"row 1: found a judgement ('1\t0\ta\t1')"),
        # Numbers as ids.
        ("1 0 7 1\n2 0 7 0\n", "row 1: found a judgement ('1 0 7 1')"),
        (SCORED + "1\te\tq\tp q\n", "row 7: found 5 fields, expected the 4 fields"),
        (SCORED + "1\te\t3\tnan\n", "row 7: found the score 'nan'"),
        ("1\ta\t1\t0.2\n1\tb\t2\t0.5\n", "found scores that rise with the rank, as distances do, in 1 of 1 queries"),
        ("1\ta\t1\n1\tb\u00a0\t2\n", r"row 2: found doc_id 'b\xa0' with whitespace"),
    ],
)
def test_bad_runs_are_refused(folder, refused, text, words):
    line = refused(**options(folder, text))
    assert line.startswith(f"{folder}/published.run: ")
    assert words in line
    assert not (folder / "out").exists()


@pytest.mark.parametrize("text", [TREC, "2\ta\t1\n1\tc\t1\n2\tb\t2\n", SCORED, CANDIDATES])
def test_queries_that_the_split_lacks_are_dropped_and_counted(imported, capsys, text):
    expected, first = imported(text), text.splitlines()[0]
    assert imported("".join(f"{other}{first[1:]}\n" for other in "98") + text) == expected
    said = "published.run: dropped queries that the split lacks, as '9' (2 such queries)"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(DATA.glob("run.*")), ids=lambda path: path.name)
def test_official_runs_are_imported_without_warnings(path, caplog):
    assert len(import_run.read_published(path)) in (43, 54)
    assert caplog.messages == []


PASSAGES = ["a%20b.md#0", "a%20b.md#1", "c.md#0", "e\u0301.md#0"]


@pytest.mark.usefixtures("record_messages")
@pytest.mark.parametrize("largest", [2**31, 1])
def test_documents_of_a_run_are_their_first_passages_and_other_spellings_are_known(
    imported, folder, caplog, monkeypatch, largest
):
    # Ids of more than two gigabytes have longer offsets.
    monkeypatch.setattr("cort.formats.ids.LARGEST_OFFSET", largest)
    write_rows(folder / "passages.parquet", tables.PASSAGES, [(one, "x") for one in PASSAGES])
    ranking, _ = imported("1\tQ0\ta%20b.md\t1\t3\tx\n1\tQ0\tc.md#0\t2\t2\tx\n1\tQ0\t\u00e9.md\t3\t1\tx\n")
    assert [doc_id for _, doc_id, _ in ranking] == ["a%20b.md#0", "c.md#0", "e\u0301.md#0"]
    assert "2 results are documents; their first passages stand for them" in caplog.text
    assert "ids in another spelling than the collection's: 1" in caplog.text
