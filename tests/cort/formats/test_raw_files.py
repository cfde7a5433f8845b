"""Passages, queries, judgements and predictions in the layouts that they are published in, and what is read of them."""

import json
import math
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cort.formats.expansions import iter_predictions
from cort.formats.judgements import iter_qrels
from cort.formats.passages import iter_passages, iter_titled
from cort.formats.topics import iter_queries
from tests.support.archives import tar_of
from tests.support.common import write_file

DATA = Path(__file__).parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
READERS = {"passages": iter_passages, "documents": iter_titled, "queries": iter_queries, "qrels": iter_qrels}
READERS |= {part: partial(iter_queries, field=part) for part in ("description", "narrative", "title+description")}
READERS |= {"predictions": lambda path: enumerate(iter_predictions(path), 1)}

TREC = """<DOC>
<DOCNO> FT911-3 </DOCNO>
<PROFILE>_AN-BEOA7AAIFT</PROFILE>
<DATE>910514
</DATE>
<HEADLINE>
FT  14 MAY 91 / CORRECT: <caf\xe9> Jubilee &amp; more
</HEADLINE>
<TEXT>
<P>First
paragraph.</P>
<P>Second.
</TEXT>
</DOC>
<DOC><DOCNO>2</DOCNO>
bare text
</DOC>
<doc><docno>3</docno></doc>
"""
FT = ("FT911-3", "FT 14 MAY 91 / CORRECT: Jubilee & more", "First paragraph. Second.")
FR = "<DOC>\n<DOCNO> FR94-1 </DOCNO>\n<TEXT>\n<!-- PJG STAG 4700 -->\nOne <!-- PJG /STAG --> two.\n</TEXT>\n</DOC>\n"
SMART = """.I 1
.T
a wing .
.A
brenckman,m.
.B
j. ae. scs. 25, 1958, 324.
.W
about
.5 of a wing
.I 2
.T
Algebra
.B
CACM December, 1958
.X
100	5	1
.I 471
.T
.W
"""
# As TREC-8, TREC-1, Vaswani and Robust wrote them.
SGML = """<top>

<num> Number: 301
<title> International Organized Crime

<desc> Description:
Identify organizations that participate in international criminal
activity.

<narr> Narrative:
A relevant document must
identify the organization.

</top>

<top>
<head> Tipster Topic Description
<num> Number:  051
<dom> Domain:  International Economics
<title> Topic:  AT&amp;T's Subsidies
<desc> Description:
Document mentions assistance.
<narr> Narrative:
Which.
<top>
<num>93</num><title>
HIGH FREQUENCY
OSCILLATORS
</title>
<desc>D</desc><narr>N</narr>
</top>
"""
TITLES = ["International Organized Crime", "AT&T's Subsidies", "HIGH FREQUENCY OSCILLATORS"]
CRIME = "Identify organizations that participate in international criminal activity."
DESCRIBED = [f"{TITLES[0]} {CRIME}", f"{TITLES[1]} Document mentions assistance.", f"{TITLES[2]} D"]
COVID = """<?xml version="1.0" encoding="UTF-8"?>
<topics task="COVIDSearch" batch="1">
  <!-- <topic number="0"> -->
  <topic number="1">
    <query>coronavirus origin</query>
    <question>what is the origin of COVID-19</question>
    <narrative>range of &lt;information&gt; about the <![CDATA[SARS-CoV-2 & virus]]></narrative>
  </topic>
</topics>
"""
WEB = """<webtrack2009>
<topic number="wt09-1" type="faceted">
  <query>obama family tree</query>
  <description>Find information.</description>
  <subtopic number="1" type="nav">Find the TIME magazine photo essay.</subtopic>
</topic>
</webtrack2009>
"""
TRIALS = '<topics task="2021">\n<topic number="1">\nPatient is a 45-year-old\nman.\n</topic></topics>'
MEDICINE = '<topics>\n<topic number="4">\n<disease>Lung cancer</disease>\n<gene>ALK</gene>\n</topic></topics>'
# The numbers of cran.qry have gaps; its judgements count the queries.
CRANFIELD = ".I 001\n.W\nwhat laws\nmust .\n.I 002\n.W\nwhat are\n.I 004\n.W\na problem\n"
CACM = ".I 1\n.W\n What articles deal with TSS\n.A\nSalton, G.\n.N\n 1. Richard Alexander\n \n"
CISI = ".I 58\n.T\nOn the\n.A\nX.Y.\n.W\nHow much\n.B\n(JASIS)\n"
V2 = {"url": "u", "title": "T", "headings": "H"}
NAN = math.nan
# An id and texts, and the passage; FiQA has empty ones, NanoBEIR no titles.
BEIR_CORPUS = [
    {"_id": "MED-1", "title": "Statin", "text": "Recent", "metadata": {"url": "x"}},
    *({"_id": "2", "title": "", "text": " plain\ttext\n"}, {"_id": "3", "text": "no title"}),
    *({"_id": "4", "title": "only a title", "text": ""}, {"_id": "5", "title": "", "text": ""}),
    *({"_id": 7, "title": None, "text": "x"}, {"_id": "8", "title": None, "text": None}),
    # As pandas writes what is missing.
    *({"_id": "9", "title": NAN, "text": "Body"}, {"_id": "10", "title": "T", "text": NAN}, {"_id": "11", "text": NAN}),
    *({"_id": "12", "title": -math.inf, "text": "x"}, {"_id": "13", "title": 1.5, "text": "nan"}),
    *({"_id": '"Weird_Al"_Yankovic', "title": "Weird", "text": "Al"}, {"_id": "Weird Al", "text": "x"}),
]
BEIR_TEXTS = [("MED-1", "Statin Recent"), ("2", "plain\ttext"), ("3", "no title"), ("4", "only a title"), ("5", ".")]
BEIR_TEXTS += [("7", "x"), ("8", "."), ("9", "Body"), ("10", "T"), ("11", "."), ("12", "x"), ("13", "1.5 nan")]
BEIR_TEXTS += [('"Weird_Al"_Yankovic', "Weird Al"), ("Weird%20Al", "x")]
DPR = {2: ("1", 'Aaron Aaron ("Ahärôn")'), 3: ("2", 'Al "Al" is a singer')}
NESTED = [{"_id": 1, "title": "Aaron", "text": "x", "metadata": {"a": 1}}]
NESTED += [{"_id": 2, "title": None, "text": "y", "metadata": {"a": 2}}]
JUDGED = [("q1", "d1", 1), ("q1", "d2", 3), ("q2", "d1", -2)]
# Judgements of TREC with 1 in the second column.
ONES = "q1 1 0 0\nq1 1 7 1\nq2 1 8 2\n"
OF_ONES = [("q1", "0", 0), ("q1", "7", 1), ("q2", "8", 2)]
BEIR = "query-id\tcorpus-id\tscore\n"
BEIR_JSON = [{"query-id": query, "corpus-id": doc, "score": grade} for query, doc, grade in JUDGED]
PREDICTED = "who is a\n\nwhere is c  when is c\n"
PREDICTIONS = {1: ["who is a"], 2: [], 3: ["where is c  when is c"]}


def at(*rows):
    """What stands in these rows, in the case of judgements the usual ones."""
    return dict(zip(rows, JUDGED, strict=True))


def titled(texts):
    return dict(zip((1, 16, 25), zip(("301", "51", "93"), texts, strict=True), strict=True))


# fmt: off
# Name -> reader, content (rows are JSON lines, or Parquet where it says so), row -> what is read.
FILES = {
    "MS MARCO": ("passages", "0\tThe one\n\nD1\t  two  blanks “inside” \nD2\t \n\n",
                 {1: ("0", "The one"), 3: ("D1", "two  blanks “inside”"), 4: ("D2", ".")}),
    "BEIR": ("passages", BEIR_CORPUS, dict(enumerate(BEIR_TEXTS, 1))),
    "pyserini": ("passages", [{"id": "7#0", "contents": "Title\nText."}], {1: ("7#0", "Title\nText.")}),
    "MIRACL": ("passages", [{"docid": "7#1", "title": "T", "text": "x"}], {1: ("7#1", "T x")}),
    "v2": ("passages", [{"pid": "p_0", "passage": "0-60", "spans": "(0,1)", "docid": "d_0"}], {1: ("p_0", "0-60")}),
    "v2 documents": ("passages", [V2 | {"docid": "d", "body": "B"}], {1: ("d", "T B")}),
    "v2.1": ("passages", [V2 | {"docid": "d#0", "segment": "S"}], {1: ("d#0", "T S")}),
    # Wikipedia as DPR published it, quoted like CSV.
    "DPR": ("passages", 'id\ttext\ttitle\n1\t"Aaron (""Ahärôn"")"\tAaron\n2\t"Al" is a singer\tAl\n', DPR),
    "CSV": ("passages", 'id,text,title\n1,"Aaron (""Ahärôn"")",Aaron\n2,"""Al"" is a singer",Al\n', DPR),
    "passages, Parquet": ("passages", NESTED, {1: ("1", "Aaron x"), 2: ("2", "y")}),
    "passages without titles, Parquet": ("passages", [{"_id": "1", "title": NAN, "text": "x"}], {1: ("1", "x")}),
    "TREC": ("documents", TREC.encode("cp1252"), {1: FT, 15: ("2", "", "bare text"), 18: ("3", "", "")}),
    "comments of the Federal Register": ("documents", FR, {1: ("FR94-1", "", "One two.")}),
    "ids as attributes": ("documents", '<DOC id="A"><TITLE>T</TITLE><TEXT>x</TEXT></DOC>\n<DOC DOCNO="B">y</DOC>',
                          {1: ("A", "T", "x"), 2: ("B", "", "y")}),
    "an array": ("documents", '[{"ID": 1, "Title": "T", "Text": "one"},\n {"ID": 2, "Text": "two"}]',
                 {1: ("1", "T", "one"), 2: ("2", "", "two")}),
    "SMART": ("passages", SMART, {1: ("1", "a wing . about .5 of a wing"), 11: ("2", "Algebra"), 18: ("471", ".")}),
    # Row 2 of the real dev.small queries starts with a blank.
    "queries of MS MARCO": ("queries", "104\twhat is paula deen's\n2\t Androgen define\n\n",
                            {1: ("104", "what is paula deen's"), 2: ("2", "Androgen define")}),
    "queries of BEIR": ("queries", [{"_id": "q1", "text": " a b "}, {"_id": 2, "text": "x", "title": "", "m": {}}],
                        {1: ("q1", "a b"), 2: ("2", "x")}),
    "Tevatron": ("queries", [{"query_id": "7", "query": "x", "positive_passages": [{"docid": "1"}]}], {1: ("7", "x")}),
    "pyserini's queries": ("queries", [{"id": 1, "query": "x"}], {1: ("1", "x")}),
    "queries, CSV": ("queries", "qid,query\n1,one\n", {2: ("1", "one")}),
    "queries with a header": ("queries", "query_id\ttext\n1\tone\n", {2: ("1", "one")}),
    "queries, Parquet": ("queries", [{"_id": "q", "text": "t"}], {1: ("q", "t")}),
    "questions": ("queries", "\n what?\r\n  \n<topless> in HTML\n\nwhat?",
                  {2: ("2", "what?"), 4: ("4", "<topless> in HTML"), 6: ("6", "what?")}),
    # With ids, rows may be empty, too.
    "queries and empty rows": ("queries", "\nq1\ta\n\nq2\tb\n", {2: ("q1", "a"), 4: ("q2", "b")}),
    "no queries": ("queries", "\n \n", {}),
    "titles": ("queries", SGML, titled(TITLES)),
    "narratives": ("narrative", SGML, titled(["A relevant document must identify the organization.", "Which.", "N"])),
    "titles and descriptions": ("title+description", SGML, titled(DESCRIBED)),
    "TREC-COVID": ("queries", COVID, {4: ("1", "coronavirus origin")}),
    "TREC-COVID, described": ("description", COVID, {4: ("1", "what is the origin of COVID-19")}),
    "TREC-COVID, told": ("narrative", COVID, {4: ("1", "range of <information> about the SARS-CoV-2 & virus")}),
    "TREC-COVID in a row": ("queries", COVID.replace("\n", ""), {1: ("1", "coronavirus origin")}),
    "web tracks": ("queries", WEB, {2: ("wt09-1", "obama family tree")}),
    "clinical trials": ("queries", TRIALS, {2: ("1", "Patient is a 45-year-old man.")}),
    "precision medicine": ("queries", MEDICINE, {2: ("4", "Lung cancer ALK")}),
    "Cranfield": ("queries", CRANFIELD, {1: ("1", "what laws must ."), 5: ("2", "what are"), 8: ("3", "a problem")}),
    "CACM": ("queries", CACM, {1: ("1", "What articles deal with TSS")}),
    "CISI": ("queries", CISI, {1: ("1", "On the How much")}),
    # The second column of TREC DL 2019 is Q0; some tracks have negative grades.
    "TREC DL": ("qrels", "q1\t0\td1\t1\nq1 Q0  d2 3\nq2 0 d1 -2\n", at(1, 2, 3)),
    "comments": ("qrels", "# judged in May\nq1 0 d1 1.0\n\nq1 0 d2 3\nq2 0 d1 -2\n\n \n", at(2, 4, 5)),
    "six columns": ("qrels", "q1 0 d1 1 0.5 x\nq1 0 d2 3 1 y\nq2 0 d1 -2 1 z\n", at(1, 2, 3)),
    "qrels of BEIR": ("qrels", f"{BEIR}q1\td1\t1\nq1\td2\t3\nq2\td1\t-2\n", at(2, 3, 4)),
    "BEIR, with blanks": ("qrels", "Query-ID corpus-id score\nq1 d1 1\nq1 d2 3\nq2 d1 -2\n", at(2, 3, 4)),
    "other columns": ("qrels", "split\tqid\tlabel\tdocid\na\tq1\t1\td1\na\tq1\t3\td2\na\tq2\t-2\td1\n", at(2, 3, 4)),
    "qrels, CSV": ("qrels", "query_id,doc_id,relevance\nq1,d1,1\nq1,d2,3\nq2,d1,-2\n", at(2, 3, 4)),
    "cranqrel": ("qrels", "q1 d1 1 \nq1  d2 3\nq2 d1 -2\n", at(1, 2, 3)),
    "qrels, JSON": ("qrels", BEIR_JSON, at(1, 2, 3)),
    # Without a grade, they are relevant.
    "qrels of NanoBEIR": ("qrels", "query-id\tcorpus-id\nq1\td1\n", {2: ("q1", "d1", 1)}),
    "qrels, Parquet": ("qrels", [{"query-id": "q1", "corpus-id": "d1"}], {1: ("q1", "d1", 1)}),
    "qrels.text of CACM": ("qrels", "01 1410  0 0\n01 1572  0 0\n", {1: ("1", "1410", 1), 2: ("1", "1572", 1)}),
    "CISI.REL": ("qrels", "     1     28\t0\t0.000000\n   1   35\t0\t0.0\n", {1: ("1", "28", 1), 2: ("1", "35", 1)}),
    "a document called 0": ("qrels", "1 0 0 0\n", {1: ("1", "0", 0)}),
    "a document called 0, and another": ("qrels", ONES, dict(enumerate(OF_ONES, 1))),
    "a document called 0, TABs": ("qrels", ONES.replace(" ", "\t"), dict(enumerate(OF_ONES, 1))),
    # What begins with # may be the id of a query; a comment has a blank, other columns, or no grade.
    "comments in SMART": ("qrels", "#1 9 0 0 0\n01 1410  0 0\n#q d 0 0\n#q d 1 0\n",
                          {2: ("1", "1410", 1), 3: ("#q", "d", 1)}),
    "#": ("qrels", "#note\n# 0 d 1\n#query_id 0 doc_id grade\nq 0 #d1 1\n#q 0 d2 2.0\n",
          {4: ("q", "#d1", 1), 5: ("#q", "d2", 2)}),
    "# in all lines": ("qrels", "# of May\n#q d1 1\n#q d2 0\n", {2: ("#q", "d1", 1), 3: ("#q", "d2", 0)}),
    "# in BEIR": ("qrels", f"#old\n{BEIR}#q\td1\t1\n#gone\n", {3: ("#q", "d1", 1)}),
    "# without grades": ("qrels", "query-id\tcorpus-id\n# nothing\n#q\td1\n", {3: ("#q", "d1", 1)}),
    "# in CSV": ("qrels", "query_id,doc_id,relevance\n#q,d1,1\n", {2: ("#q", "d1", 1)}),
    "# in JSON": ("qrels", [{"query-id": "#q", "corpus-id": "#d", "score": 1}], {1: ("#q", "#d", 1)}),
    "# in queries": ("queries", "#q\twine\n", {1: ("#q", "wine")}),
    "# in passages": ("passages", "#d\tWine.\n", {1: ("#d", "Wine.")}),
    # Ids are those of passages.
    "spaces in ids": ("qrels", 'q\t0\t"Weird Al"\t1\nq\t0\tb\t1\n', {1: ("q", '"Weird%20Al"', 1), 2: ("q", "b", 1)}),
    "spaces, BEIR": ("qrels", f'{BEIR}q\t"Weird Al"\t1\nq\tb\t1\n', {2: ("q", '"Weird%20Al"', 1), 3: ("q", "b", 1)}),
    "no qrels": ("qrels", "", {}),
    "a header alone": ("qrels", f"{BEIR}# nothing\n", {}),
    "predictions": ("predictions", PREDICTED, PREDICTIONS),
}
# fmt: on


@pytest.mark.parametrize("layout", FILES)
def test_files_are_read_as_they_are_published_whatever_their_names(tmp_path, layout):
    reader, content, expected = FILES[layout]
    names = ["file.csv" if layout.endswith("CSV") else "file.tsv", "file.txt.gz", "file"]
    if layout.endswith("Parquet"):
        names = ["file.parquet"]
        pq.write_table(pa.Table.from_pylist(content), tmp_path / names[0])
    elif isinstance(content, list):
        names = ["file.jsonl", "file.json.gz", "file"]
        content = "".join(json.dumps(row) + "\n" for row in content) + "\n"
    for name in names:
        path = tmp_path / name if layout.endswith("Parquet") else write_file(tmp_path / name, content)
        found = {
            row: list(record) if reader == "predictions" else tuple(record) for row, record in READERS[reader](path)
        }
        assert found == expected


def test_empty_rows_among_questions_are_counted(tmp_path, caplog):
    caplog.set_level("INFO")
    path = write_file(tmp_path / "questions.txt", "\n what?\n  \nHow?\n\nwhat?")
    assert len(list(iter_queries(path))) == 3
    assert caplog.messages[-1] == f"{path}: empty rows skipped: 3"


def test_predictions_are_read_from_the_only_file_of_an_archive_whatever_macos_adds(tmp_path):
    litter = [("__MACOSX/d/._p", b"\0\5"), ("d/._p", b"\0\5"), ("d/.DS_Store", b"\0\0")]
    for end in ("\n", "\r\n"):
        (tmp_path / "p.tar.gz").write_bytes(tar_of(*litter, ("d/p", f"\ufeff{PREDICTED}".replace("\n", end))))
        assert list(iter_predictions(tmp_path / "p.tar.gz")) == [*PREDICTIONS.values()]


def test_fields_that_are_named(tmp_path):
    path = write_file(tmp_path / "a.jsonl", json.dumps({"sku": 5, "name": "N", "a": "x", "b": "y", "text": "no"}))
    fields = {"id": "sku", "title": "name", "text": ("a", "b")}
    assert list(iter_titled(path, fields)) == [(1, ("5", "N", "x\n\ny"))]


REAL = {
    "msmarco-meta/qrels.dev.small.tsv": (iter_qrels, 7_437, "195199"),
    "msmarco-meta/qrels.dl19-passage.txt": (iter_qrels, 9_260, "1133167"),
    "vaswani/qrels": (iter_qrels, 2_083, "93"),
    "trec_eval/qrels.test": (iter_qrels, 3_681, "303"),
    "msmarco-meta/queries.dev.small.tsv": (iter_queries, 6_980, "1048565"),
    "vaswani/query-text.trec": (iter_queries, 93, "93"),
    "msmarco-meta/topics.dl20.txt": (iter_queries, 200, "132622"),
}


@needs_data
@pytest.mark.parametrize("name", REAL)
def test_real_files_have_their_published_counts(name):
    reader, count, last = REAL[name]
    records = list(reader(DATA / name))
    assert (len(records), records[-1][1][0]) == (count, last)
    assert reader is iter_queries or [row for row, _ in records] == list(range(1, count + 1))
