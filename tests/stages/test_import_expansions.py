import json

import numpy as np
import pyarrow as pa
import pytest

from cort import expand, weigh
from cort.formats import tables
from cort.formats.expansions import iter_expanded
from tests.support.archives import zip_of
from tests.support.common import table_of, write_rows

TEXTS = {"d0": "oil war oil", "d1": "gas map king", "d2": "rock oil ship"}
QUERIES = [["gold tax", "oil"], [], ["king"]]


@pytest.fixture
def data(tmp_path):
    write_rows(tmp_path / "passages.parquet", tables.PASSAGES, TEXTS.items())
    return tmp_path


def test_several_files_of_expansions_are_one(data):
    rows = list(zip(TEXTS, QUERIES, strict=True))
    files = [write_rows(data / f"{n}.parquet", tables.EXPANSIONS, part) for n, part in enumerate((rows[:1], rows[1:]))]
    whole = write_rows(data / "whole.parquet", tables.EXPANSIONS, rows)
    passages = str(data / "passages.parquet")
    texts = [pa.Table.from_batches(iter_expanded(passages, named, 2)) for named in (files, [whole])]
    assert texts[0] == texts[1]
    assert texts[0]["text"].to_pylist() == ["oil war oil gold tax oil", "gas map king", "rock oil ship king"]


def import_predictions(folder, lines):
    texts = [(f"d{n}", f"passage number{n} of words") for n in range(30)]
    passages = write_rows(folder / "passages.parquet", tables.PASSAGES, texts)
    (folder / "p.txt").write_text("".join(f"{line}\n" for line in lines))
    named = {"predictions": folder / "p.txt", "passages": passages, "output": folder / "e.parquet"}
    return {"name": "expand import", **named}


def test_predictions_get_the_ids_of_the_passages(stage, tmp_path):
    lines = [f"what is number{n}" for n in range(30)]
    table = tables.read_table(stage(**import_predictions(tmp_path, lines)), tables.EXPANSIONS)
    assert table["doc_id"].to_pylist() == [f"d{n}" for n in range(30)]
    assert table["queries"].to_pylist() == [[line] for line in lines]


@pytest.mark.parametrize(
    ("lines", "words"), [(29, "found 29 lines for more passages"), (31, "found more lines than the 30 passages")]
)
def test_predictions_for_another_collection_are_refused(refused, tmp_path, lines, words):
    assert words in refused(**import_predictions(tmp_path, [f"number{n}" for n in range(lines)]))


@pytest.mark.parametrize("lines", [[f"number{n}" for n in range(1, 31)], ["other"] * 30])
def test_predictions_that_fit_other_passages_are_taken_with_a_warning(stage, tmp_path, lines, capsys):
    stage(**import_predictions(tmp_path, lines))
    assert "WARNING" in (said := capsys.readouterr().err)
    assert "p.txt: the queries of passages 1 to 30 share no more words with them than with others" in said


SENTENCES = ["机器学习是人工智能", "今天天气很好我们去", "地球是太阳系的行星", "足球比赛昨天晚上"]
FITTING = {
    "nothing": (["a word"] * 30, [[]] * 30),
    "few": (["some word"] * 3, [["other"]] * 3),
    "identical": (["the same words"] * 30, [["same"]] * 30),
    "digits": ([f"{n} {n * 7 % 90}" for n in range(30)], [[f"number {n * 7 % 90}"] for n in range(30)]),
    "Chinese": ([f"{one}很有意思。" for one in SENTENCES * 8], [[f"什么是{one[:4]}"] for one in SENTENCES * 8]),
    "Thai": ([["ภาษาไทยง่าย", "แมวกินปลา"][n % 2] for n in range(30)], [[["ไทย", "ปลา"][n % 2]] for n in range(30)]),
}


@pytest.mark.parametrize(("texts", "queries"), FITTING.values(), ids=FITTING)
def test_predictions_that_fit_or_cannot_be_judged_raise_no_warning(texts, queries):
    assert expand.fit(texts, queries)


DOCUMENTS = {"d2": "ship rock rock rock", "d0": "oil " * 40 + "war"}


def write_documents(folder, content, name="weighted.jsonl"):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    named = {"documents": folder / name, "passages": folder / "passages.parquet", "output": folder / "w.parquet"}
    return {"name": "weigh import", **named}


@pytest.mark.parametrize("name", ["weighted.jsonl", "sample_100_jsonl.zip"])
def test_documents_become_weights_in_the_order_of_the_passages(stage, data, name):
    lines = [json.dumps({"id": doc_id, "contents": text}) + "\n" for doc_id, text in DOCUMENTS.items()]
    members = ((f"docs/docs{number:02d}.json", line) for number, line in enumerate(lines))
    output = stage(**write_documents(data, zip_of(*members) if name.endswith("zip") else "".join(lines), name))
    rows = [tuple(row.values()) for row in tables.read_table(output, tables.TERM_WEIGHTS).to_pylist()]
    assert rows == [("d0", ["oil", "war"], [40, 1]), ("d1", [], []), ("d2", ["ship", "rock"], [1, 3])]


def test_rows_are_taken_as_arrow_takes_them():
    generator = np.random.default_rng(1)
    rows = [(f"d{row}", [f"w{word}" for word in range(row % 4)], [*range(row % 4)]) for row in range(90)]
    table = table_of(tables.TERM_WEIGHTS, rows)
    batches = [table.slice(start, size).to_batches()[0] for start, size in ((0, 50), (50, 1), (51, 39))]
    for wanted in (generator.integers(90, size=200), np.arange(90)[::-1].copy(), np.array([50])):
        assert weigh.take(batches, wanted).equals(table.take(pa.array(wanted)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"id": "d0"}', "row 1: found no contents among the fields 'id'"),
        ('{"id": "d0", "contents": [5]}', "row 1: found [5] as contents, expected text"),
        ("oil oil war", "row 1: found 'oil oil war'"),
        ('{"id": "d0", "contents": ""}\n{"id": "d9", "contents": "oil"}', "row 2: found document 'd9' (1 are not"),
        (r'{"id": "d0", "contents": "oil \ud800"}', r"row 1: found half a character (\ud800) in 'contents'"),
        ("[" * 100_000, "(nested too deeply)"),
        ('{"id": "d0", "contents": "oil"}\n{"id": "d0", "contents": "oil"}', "row 2: found id 'd0' again"),
        ("", "found no document"),
    ],
)
def test_invalid_weighted_documents_are_refused(refused, data, text, words):
    assert words in refused(**write_documents(data, text))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([("b.json", "d1"), ("a.json", "d2 d1")], "w.zip: b.json: row 1: found id 'd1' again (it is already in row 2"),
        ([("b.json", "d2 d9"), ("a.json", "d1")], "w.zip: b.json: row 2: found document 'd9'"),
    ],
)
def test_errors_in_a_zip_name_the_member_and_its_row(refused, data, files, words):
    members = [("__MACOSX/._a.json", b"\0")]
    for name, ids in files:
        lines = (json.dumps({"id": one, "contents": "oil"}) for one in ids.split())
        members.append((name, "\ufeff" + "\r\n".join(lines)))
    assert words in refused(**write_documents(data, zip_of(*members), "w.zip"))
