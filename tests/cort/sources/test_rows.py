"""Documents in the rows of CSV and JSON lines."""

import csv
import io
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cort.formats.visible import visible
from cort.sources.documents import Document, Section, one_line, paragraphs_of
from cort.sources.rows import iter_rows
from tests.support.common import write_file

FIELDS = {"id": "id", "title": "name", "text": ("body", "more")}


def read(path, text, fields):
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        file = write_file(Path(folder, Path(path).name), text)
        return list(iter_rows(file, f"{path}/", fields, bad.append)), [one.args for one in bad]


def test_fields_by_name():
    row = {"more": "Third.", "body": "First.\n\nSecond,\nline.", "name": "A\ntitle", "id": 7, "other": [1]}
    document = Document("a.jsonl/7", "A title", (Section((), ("First.", "Second, line.", "Third.")),))
    assert read("a.jsonl", f"\n{json.dumps(row)}\n\n", FIELDS) == ([document], [])
    table = 'id,name,other,more,body\n7,"A\ntitle",x,Third.,"First.\n\nSecond,\nline."\n\n'
    assert read("b/a.csv", table, FIELDS) == ([document._replace(doc_id="b/a.csv/7")], [])


def test_rows_are_numbered_without_an_id():
    documents, bad = read("a.jsonl", '{"text": "one"}\n\nno\n{"text": "four"}', {"text": "text"})
    assert [document.doc_id for document in documents] == ["a.jsonl/1", "a.jsonl/4"]
    assert bad == [("rows that cannot be read", "row 3: 'no' (Expecting value: line 1 column 1 (char 0))")]
    documents, _ = read("a.csv", "text\none\n\nthree", {"text": "text"})
    assert [document.doc_id for document in documents] == ["a.csv/1", "a.csv/3"]


def test_bad_rows_are_reported_once_by_reason_with_the_first():
    lines = ['{"body": "x"}', "no", '{"text": [1]}', "nor", '{"text": ""}', "[1]", "{}"]
    documents, bad = read("a.jsonl", "\n".join(lines), {"text": "text"})
    assert documents == []
    assert {reason: detail.partition(":")[0] for reason, detail in bad} == {
        "rows that cannot be read": "row 1 and 5 more",
        "rows without text": "row 5",
    }


def test_what_pandas_writes_for_missing_values_is_no_id_and_no_text():
    rows = ['{"id": NaN, "body": "x", "more": "y"}', '{"id": 0, "name": NaN, "body": "Zero.", "more": NaN}']
    documents, bad = read("a.jsonl", "\n".join(rows), FIELDS)
    assert documents == [Document("a.jsonl/0", "", (Section((), ("Zero.",)),))]
    assert [reason for reason, _ in bad] == ["rows without an id"]


@pytest.mark.parametrize(
    "text",
    [
        "id,text\n1,Füße und mehr\n2,über\n".encode("utf-16"),
        "id\ttext\r\n1\tFüße und mehr\r\n2\tüber\r\n".encode("utf-16"),
        "id,text\r1,Füße und mehr\r2,über\r".encode(),
        "id|text\n1|Füße und mehr\n2|über\n".encode(),
        "id\ttext\n1\tFüße\tund mehr\n2\tüber\n".encode(),
        json.dumps([{"id": 1, "text": "Füße und mehr"}, {"id": 2, "text": "über"}]).encode("utf-16"),
    ],
    ids=["UTF-16", "Excel's Unicode text", "old Mac", "bars", "TABs in a text", "JSON in UTF-16"],
)
def test_what_other_programs_write_is_read(text):
    name = "a.json" if "[".encode("utf-16") in text else "a.csv" if b"\t" not in text else "a.tsv"
    documents, bad = read(name, text, {})
    texts = {1: "Füße und mehr", 2: "über"}
    assert documents == [Document(f"{name}/{number}", "", (Section((), (one,)),)) for number, one in texts.items()]
    assert bad == []


def test_texts_are_no_ids():
    documents, bad = read("a.tsv", "How to start\tPress it.\nStop it\tPull.\nReset\tWait.\n", {})
    found = [(one.doc_id, one.title, one.sections[0].paragraphs) for one in documents]
    rows = [("How to start", "Press it."), ("Stop it", "Pull."), ("Reset", "Wait.")]
    assert found == [(f"a.tsv/{row}", title, (text,)) for row, (title, text) in enumerate(rows, 1)]
    assert bad == []


def test_json_without_texts_is_another_file():
    for text in ('{\n "name": "x"\n}', "[1, 2]", '{"a": {"text": "x"}}', "{"):
        assert read("a.json", text, {}) == ([], [("other files (.json)", None)])


TITLE = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"))


@settings(deadline=None)
@given(st.lists(st.tuples(TITLE, st.text("a,\"\n '", min_size=1))))
def test_what_csv_writes_is_read(rows):
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["title", "text"])
    writer.writerows([title, f"x {text}"] for title, text in rows)
    documents, bad = read("a.csv", file.getvalue().replace("\r\n", "\n"), {"title": "title", "text": "text"})
    assert bad == ([] if rows else [("no rows", "nothing but a header or empty lines")])
    expected = [(one_line(visible(title)), paragraphs_of(f"x {text}")) for title, text in rows]
    assert [(document.title, document.sections[0].paragraphs) for document in documents] == expected


@pytest.mark.parametrize("path", ["a.csv", "a.jsonl"])
@settings(deadline=None)
@given(text=st.text('text,"\n{}:[]\\u0dæ', max_size=80))
def test_anything_else_is_read_or_reported(path, text):
    documents, bad = read(path, text, {"text": "text"})
    assert documents or bad
    assert all(document.text for document in documents)
