"""Queries in files that the field uses, each with what it needs to be read, or a hint that works."""

import json
from collections import Counter

import pytest

from cort.formats.passages import iter_titled
from cort.formats.topics import MARKED, TEXTLESS, iter_queries
from tests.support.common import refusal, write_file

TOT = {"id": "763", "url": "u", "domain": "movie", "title": "Space film", "text": " A man\nand a cat "}
TITLED = "queries read with their titles"
WITHOUT_IDS = "queries without an id, known by their rows"
TABS = "queries with a TAB in their text"
# fmt: off
# Content -> queries, and what is counted.
FILES = {
    "TREC ToT": (json.dumps(TOT) + "\n", [("763", "Space film A man\nand a cat")], {TITLED: 1}),
    "title alone": ('{"id": 1, "title": "T", "text": ""}\n{"id":2, "title": "U"}\n{"id":3,"title": "V", "text": "V"}',
                    [("1", "T"), ("2", "U"), ("3", "V")], {}),
    "a title beside a question": ('{"id": 1, "title": "Page", "question": "Q?"}\n', [("1", "Q?")], {}),
    "QID,Question": ("QID,Question\n1,one\n2,two\n", [("1", "one"), ("2", "two")], {}),
    "Excel's own first line": ("sep=;\nid;text\n1;one, two\n", [("1", "one, two")], {}),
    "semicolons": ("QID;Question\n1;one, two\n", [("1", "one, two")], {}),
    "names in capitals, JSON": ('{"ID": "a", "Query": "b"}\n', [("a", "b")], {}),
    "an array": ('[{"id": 1, "text": "one"}, {"id": 2,\n"text": "two"}]', [("1", "one"), ("2", "two")], {}),
    "indented objects": ('{\n "id": 1,\n "text": "one"\n}\n{\n "id": 2,\n "text": "two"\n}\n',
                         [("1", "one"), ("2", "two")], {}),
    "<DOC id>": ('<DOC id="A1"><TITLE>one</TITLE></DOC>\n<DOC id=\'A 2\'>\ntwo</DOC>',
                 [("A1", "one"), ("A", "two")], {}),
    "a TAB in a text": ("1\tone\n2\ttwo\tthree\t\n3\tfour\n",
                        [("1", "one"), ("2", "two three"), ("3", "four")], {TABS: 1}),
    "a TAB in a text below a header": ("id\ttext\n1\tone\ttwo\n2\tthree\n", [("1", "one two"), ("2", "three")], {}),
    "an empty query": ("1\tone\n2\t \n3\tthree\n", [("1", "one"), ("3", "three")], {TEXTLESS: 1}),
    "an empty query, JSON": ('{"id": 1, "text": null}\n{"id": 2, "text": "two"}\n', [("2", "two")], {TEXTLESS: 1}),
    "an empty topic": ('<topics><topic number="1"><query></query></topic><topic number="2"><query>two</query></topic>',
                       [("2", "two")], {TEXTLESS: 1}),
    "questions and answers, TSV": ("question\tanswer\nWhy?\tSo.\nHow?\tThus.\n", [("1", "Why?"), ("2", "How?")],
                                   {WITHOUT_IDS: 2}),
    "questions and answers, JSON": ('{"question": "Why?", "answer": "So."}\n', [("1", "Why?")], {WITHOUT_IDS: 1}),
    "TREC-CAR": ("enwiki:Candy%20making/Hard%20candy/1%2F2%20%25\nenwiki:Caf%C3%A9\n",
                 [("enwiki:Candy%20making/Hard%20candy/1%2F2%20%25", "Candy making Hard candy 1 2 %"),
                  ("enwiki:Caf%C3%A9", "Café")], {}),
    "Windows-1252": ("1\tcaf\xe9\n2\tpl\xe2in\n3\tx\n", [("1", "café"), ("2", "plâin"), ("3", "x")],
                     {"rows read as Windows-1252": 2}),
    "labels inside": ("<topic number='1'><query>phone serial number: where is it</query></topic>\n",
                      [("1", "phone serial number: where is it")], {}),
    "labels at the beginning": ("<top><num> Number: 007 <title> Topic: of title: all\n</top>",
                                [("7", "of title: all")], {}),
    "labels of other parts": ("<top><num> 7 <title> Description: how\n</top>", [("7", "Description: how")], {}),
}
# fmt: on


@pytest.mark.parametrize("name", FILES)
def test_queries_are_read_and_what_is_odd_is_counted(tmp_path, name):
    content, queries, counts = FILES[name]
    path = write_file(tmp_path / ("q.csv" if name == "QID,Question" else "q"), content.encode("latin-1"))
    if name == "TREC-CAR":
        path = write_file(tmp_path / "q", content)
    doubts = Counter()
    assert [tuple(query) for _, query in iter_queries(path, doubts=doubts)] == queries
    assert doubts == counts


def test_questions_and_answers_without_ids_get_a_hint_that_works(tmp_path):
    path = write_file(tmp_path / "q.tsv", "What is it?\tThis.\nWhy not?\tSo.\n")
    assert "write the header 'question TAB answer' above" in refusal(iter_queries, path)
    write_file(path, "question\tanswer\n" + path.read_text())
    assert [tuple(query) for _, query in iter_queries(path)] == [("1", "What is it?"), ("2", "Why not?")]


@pytest.mark.parametrize("mark", ["{} ", "{}. ", "{}) ", "q{}: ", "- "])
def test_lines_behind_numbers_or_marks_stay_and_are_counted(tmp_path, mark):
    lines = [f"{mark.format(number)}what is it" for number in (1, 2, 30)]
    doubts = Counter()
    path = write_file(tmp_path / "q.txt", "\n".join(lines))
    assert [query.text for _, query in iter_queries(path, doubts=doubts)] == lines
    assert doubts == {MARKED: 3}


@pytest.mark.parametrize(
    "lines", [["2023 budget", "401k rules"], ["12 best laptops"], ["3 men", "2 women"], ["1 a", "b"]]
)
def test_lines_that_begin_with_other_numbers_are_queries(tmp_path, lines):
    doubts = Counter()
    assert [*iter_queries(write_file(tmp_path / "q.txt", "\n".join(lines)), doubts=doubts)]
    assert doubts == {}


@pytest.mark.parametrize(
    "text", ["- id: 1\n  text: one\n", "---\nq1: one\n", "queries:\n  - one\n  - two\n", "- text:\n    one: two\n"]
)
def test_queries_in_yaml_are_refused_with_a_hint_that_works(tmp_path, text):
    path = write_file(tmp_path / "q.yaml", text)
    assert "found YAML" in refusal(iter_queries, path)


@pytest.mark.parametrize(
    "found", [{"q1": "one"}, {"q1": {"text": "one"}}, {"data": [{"paragraphs": [{"qas": [{"question": "one"}]}]}]}]
)
@pytest.mark.parametrize("indent", [None, 2])
def test_other_json_gets_a_hint_that_works(tmp_path, found, indent):
    message = refusal(iter_queries, write_file(tmp_path / "q.json", json.dumps(found, indent=indent)))
    path = write_file(tmp_path / "q.json", message[message.index('{"id"') : message.rindex("}") + 1])
    assert [tuple(query) for _, query in iter_queries(path)] == [("1", "words")]


def test_several_columns_get_a_hint_that_works(tmp_path):
    path = write_file(tmp_path / "q.tsv", "1\tone\tu\n2\ttwo\tv\n")
    assert "write a header, such as query_id TAB text TAB url" in refusal(iter_queries, path)
    write_file(path, "query_id\ttext\turl\n" + path.read_text())
    assert [tuple(query) for _, query in iter_queries(path)] == [("1", "one"), ("2", "two")]


def test_queries_without_ids_are_refused_where_judgements_need_them(tmp_path):
    path = write_file(tmp_path / "q.jsonl", '{"question": "Why?"}\n')
    assert "found no _id or " in refusal(lambda file: iter_queries(file, numbered=False), path)


def test_documents_whose_ids_are_texts_get_a_hint_that_works(tmp_path):
    path = write_file(tmp_path / "d.tsv", "What is it?\tThis.\nHow to stop\tSo.\n")
    assert "write ids before them and the header 'id TAB title TAB text'" in refusal(iter_titled, path)
    write_file(path, "id\ttitle\ttext\n1\tWhat is it?\tThis.\n2\tHow to stop\tSo.\n")
    assert [row for _, row in iter_titled(path)] == [("1", "What is it?", "This."), ("2", "How to stop", "So.")]


@pytest.mark.parametrize("form", ["1\tcaf\xe9\n2\tx\n", "id,text\n1,caf\xe9\n2,x\n", '{"id": 1, "text": "caf\xe9"}\n'])
def test_documents_that_are_not_utf_8_are_read_and_counted(tmp_path, form):
    doubts = Counter()
    found = [row[::2] for _, row in iter_titled(write_file(tmp_path / "d", form.encode("latin-1")), doubts=doubts)]
    assert found[0] == ("1", "café")
    assert doubts == {"rows read as Windows-1252": 1}
