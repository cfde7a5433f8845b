"""Queries in the layouts that they are published in."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cort.formats.records import Text
from cort.formats.topics import iter_queries
from tests.support.common import refusal, write_file

DATA = Path(__file__).parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")


def read(tmp_path, data, field="title", name="queries"):
    return [tuple(query) for _, query in iter_queries(write_file(tmp_path / name, data), field)]


# As TREC-8, TREC-1, Vaswani and Robust wrote them.
SGML = """<top>

<num> Number: 301
<title> International Organized Crime

<desc> Description:
Identify organizations that participate in international criminal
activity.

<narr> Narrative:
A relevant document must as a minimum identify the
organization.

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
TITLES = [("301", "International Organized Crime"), ("51", "AT&T's Subsidies"), ("93", "HIGH FREQUENCY OSCILLATORS")]
CRIME = "Identify organizations that participate in international criminal activity."
TEXTS = [CRIME, "Document mentions assistance.", "D"]
DOCUMENT = "document must as a minimum identify the organization."
COVID = """<?xml version="1.0" encoding="UTF-8"?>
<topics task="COVIDSearch" batch="1">
  <!-- <topic number="0"> -->
  <topic number="1">
    <query>coronavirus origin</query>
    <question>what is the origin of COVID-19</question>
    <narrative>seeking range of &lt;information&gt; about the <![CDATA[SARS-CoV-2 & virus]]></narrative>
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
TRIALS = (
    '<topics task="2021 TREC Clinical Trials">\n<topic number="1">\nPatient is a 45-year-old\nman.\n</topic></topics>'
)
MEDICINE = '<topics>\n<topic number="4">\n<disease>Lung cancer</disease>\n<gene>ALK</gene>\n</topic></topics>'
# The numbers of cran.qry have gaps; its judgements count the queries.
CRANFIELD = ".I 001\n.W\nwhat laws must be\nobeyed .\n.I 002\n.W\nwhat are\n.I 004\n.W\nwhat problems\n"
CACM = ".I 1\n.W\n What articles exist which deal with TSS\n.A\nSalton, G.\n.N\n 1. Richard Alexander\n \n"
CISI = ".I 58\n.T\nOn the\n.A\nX.Y.\n.W\nHow much\n.B\n(JASIS)\n"


@pytest.mark.parametrize(
    ("data", "field", "expected"),
    [
        (SGML, "title", TITLES),
        (SGML, "narrative", [("301", f"A relevant {DOCUMENT}"), ("51", "Which."), ("93", "N")]),
        (SGML, "title+description", [(one[0], f"{one[1]} {text}") for one, text in zip(TITLES, TEXTS, strict=True)]),
        (COVID, "title", [("1", "coronavirus origin")]),
        (COVID, "description", [("1", "what is the origin of COVID-19")]),
        (COVID, "narrative", [("1", "seeking range of <information> about the SARS-CoV-2 & virus")]),
        (COVID.replace("\n", ""), "title", [("1", "coronavirus origin")]),
        (WEB, "title", [("wt09-1", "obama family tree")]),
        (TRIALS, "title", [("1", "Patient is a 45-year-old man.")]),
        (MEDICINE, "title", [("4", "Lung cancer ALK")]),
        (CRANFIELD, "title", [("1", "what laws must be obeyed ."), ("2", "what are"), ("3", "what problems")]),
        (CACM, "title", [("1", "What articles exist which deal with TSS")]),
        (CISI, "title", [("1", "On the How much")]),
    ],
)  # fmt: skip
def test_topics(tmp_path, data, field, expected):
    for name in ("topics.txt", "topics.xml.gz"):
        assert read(tmp_path, data, field, name) == expected


def test_a_topic_without_the_part_is_refused(tmp_path):
    message = refusal(lambda path: iter_queries(path, "narrative"), write_file(tmp_path / "topics.xml", WEB))
    assert message.startswith("row 2: found a topic with query, description, subtopic alone, expected a narrative in")
    message = refusal(iter_queries, write_file(tmp_path / "topics.xml", "<top>\n<title>x</title>\n</top>"))
    assert message.startswith("row 1: found an empty query_id, expected")


def test_queries_of_ms_marco_and_in_rows(tmp_path):
    # Row 2 of the real dev.small queries starts with a blank.
    ms_marco = "1048585\twhat is paula deen's brother\n2\t Androgen receptor define\n\n"
    assert read(tmp_path, ms_marco) == [("1048585", "what is paula deen's brother"), ("2", "Androgen receptor define")]
    # A query has no title.
    beir = '{"_id": "q1", "text": " a b ", "title": "not used"}\n{"_id": 2, "text": "x", "metadata": {}}\n'
    assert read(tmp_path, beir) == [("q1", "a b"), ("2", "x")]
    assert read(tmp_path, '{"query_id": "7", "query": "as Tevatron writes"}\n') == [("7", "as Tevatron writes")]
    assert read(tmp_path, "qid,query\n1,one\n") == [("1", "one")]
    assert read(tmp_path, "query_id\ttext\n1\tone\n") == [("1", "one")]
    pq.write_table(pa.table({"_id": ["q"], "text": ["t"]}), tmp_path / "test-00000-of-00001.parquet")
    assert list(iter_queries(tmp_path / "test-00000-of-00001.parquet")) == [(1, Text("q", "t"))]


def test_a_text_without_tabs_has_a_query_per_row(tmp_path, caplog):
    caplog.set_level("INFO")
    path = write_file(tmp_path / "questions.txt", "\n what is BM25?\r\n  \n<topless> in HTML\n\nwhat is BM25?")
    expected = {2: "what is BM25?", 4: "<topless> in HTML", 6: "what is BM25?"}
    assert list(iter_queries(path)) == [(row, Text(str(row), text)) for row, text in expected.items()]
    assert caplog.messages[-1] == f"{path}: empty rows skipped: 3"
    # With ids, rows may be empty, too.
    path = write_file(tmp_path / "queries.txt.gz", "\nq1\ta\n\nq2\tb\n")
    assert list(iter_queries(path)) == [(2, Text("q1", "a")), (4, Text("q2", "b"))]
    assert list(iter_queries(write_file(tmp_path / "empty.txt", "\n \n"))) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\na\nb\nc\td\n", "row 4: found a TAB, expected no TAB, as in row 2"),
        ("q1\ta\n\nb\n", "row 3: found no TAB, expected a TAB, as in row 1"),
    ],
)
def test_queries_with_and_without_ids_are_not_mixed(tmp_path, text, found):
    line = refusal(iter_queries, write_file(tmp_path / "questions.txt", text))
    assert line == f"{found}; write 'query_id TAB text' in every row, or one query per row without a TAB"


@needs_data
@pytest.mark.parametrize(
    ("name", "count", "last"),
    [
        ("msmarco-meta/queries.dev.small.tsv", 6_980, "1048565"),
        ("vaswani/query-text.trec", 93, "93"),
        ("msmarco-meta/topics.dl20.txt", 200, "132622"),
    ],
)
def test_real_files_have_their_published_counts(name, count, last):
    queries = [query for _, query in iter_queries(DATA / name)]
    assert (len(queries), queries[-1].id) == (count, last)
