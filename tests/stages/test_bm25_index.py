"""Indexes over other texts than the passages: predicted queries appended, weights in the place of term frequencies."""

import json
import zipfile

import numpy as np
import pyarrow as pa
import pytest

from cort import bm25, bm25_index, import_expansions, import_term_weights
from cort.formats import tables
from cort.formats.expansions import iter_expanded
from cort.formats.runs import read_run
from cort.system.errors import InputError
from tests.support.bm25 import bm25_scores

# Words that neither the stemmer nor the stop word list changes.
TEXTS = {"d0": "oil war oil", "d1": "gas map king", "d2": "rock oil ship"}
QUERIES = [["gold tax", "oil"], [], ["king"]]


def write(path, schema, rows):
    tables.write_table(path, pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema))
    return str(path)


@pytest.fixture
def data(tmp_path):
    write(tmp_path / "passages.parquet", tables.PASSAGES, TEXTS.items())
    write(tmp_path / "queries.parquet", tables.QUERIES, [("q", "gold king oil")])
    return tmp_path


def search(folder, name, *options, k1=0.9, b=0.4):
    """Index the passages with more options, search; the ranking of the one query."""
    files = ["--passages", folder / "passages.parquet", "--output", folder / name, *options]
    assert bm25_index.main([*map(str, files), "--memory-mb", "256"]) == 0
    files = ["--index", folder / name, "--queries", folder / "queries.parquet", "--output", folder / f"{name}.trec"]
    numbers = ["--k1", k1, "--b", b, "--tag", "x", "--memory-mb", 256]
    assert bm25.main([*map(str, files), *map(str, numbers)]) == 0
    return next(iter(read_run(folder / f"{name}.trec")))


def scores_of(ranking):
    return dict(zip(ranking.doc_ids, ranking.scores.tolist(), strict=True))


# Expansions.


def test_an_expanded_index_ranks_as_one_of_the_longer_texts(data):
    expansions = write(data / "expansions.parquet", tables.EXPANSIONS, zip(TEXTS, QUERIES, strict=True))
    found = search(data, "expanded", "--expansions", expansions)
    longer = {"d0": "oil war oil gold tax oil", "d1": "gas map king", "d2": "rock oil ship king"}
    bags = {doc_id: {word: text.split().count(word) for word in text.split()} for doc_id, text in longer.items()}
    assert scores_of(found) == pytest.approx(bm25_scores(bags, "gold king oil", 0.9, 0.4), abs=2e-4)


def test_several_files_of_expansions_are_one(data):
    rows = list(zip(TEXTS, QUERIES, strict=True))
    files = [write(data / f"{n}.parquet", tables.EXPANSIONS, part) for n, part in enumerate((rows[:1], rows[1:]))]
    whole = write(data / "whole.parquet", tables.EXPANSIONS, rows)
    passages = str(data / "passages.parquet")
    texts = [pa.Table.from_batches(iter_expanded(passages, named, 2)) for named in (files, [whole])]
    assert texts[0] == texts[1]
    assert texts[0]["text"].to_pylist() == ["oil war oil gold tax oil", "gas map king", "rock oil ship king"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("d0", []), ("d1", [])], "found 2 rows for more passages"),
        ([("d0", []), ("d1", []), ("d2", []), ("d3", [])], "found more rows than the 3 passages"),
        ([("d0", []), ("d2", []), ("d1", [])], "row 2: found passage 'd2' where the collection has 'd1'"),
    ],
)
def test_expansions_of_another_collection_are_refused(data, rows, words):
    expansions = write(data / "expansions.parquet", tables.EXPANSIONS, rows)
    with pytest.raises(InputError, match=words):
        list(iter_expanded(str(data / "passages.parquet"), [expansions], 2))


def import_predictions(folder, lines, texts=None, name="p.txt", **options):
    texts = texts or {f"d{n}": f"passage number{n} of words" for n in range(30)}
    write(folder / "passages.parquet", tables.PASSAGES, texts.items())
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return ["--predictions", folder / name, "--passages", folder / "passages.parquet", "--output", folder / "e.parquet"]


def test_predictions_get_the_ids_of_the_passages(tmp_path):
    lines = [f"what is number{n}" for n in range(30)]
    assert import_expansions.main(list(map(str, import_predictions(tmp_path, lines)))) == 0
    table = tables.read_table(tmp_path / "e.parquet", tables.EXPANSIONS)
    assert table["doc_id"].to_pylist() == [f"d{n}" for n in range(30)]
    assert table["queries"].to_pylist() == [[line] for line in lines]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([f"number{n}" for n in range(29)], "found 29 lines for more passages, expected a line for each passage"),
        ([f"number{n}" for n in range(31)], "found more lines than the 30 passages, expected a line for each passage"),
        ([f"number{n}" for n in range(1, 31)], "share no more words with passages 1 to 30 than with others, expected"),
        (["words"] * 30, "share no more words with passages 1 to 30 than with others, expected those"),
    ],
)
def test_predictions_for_another_collection_are_refused(tmp_path, complaint, lines, words):
    options = import_predictions(tmp_path, lines)
    assert words in complaint(import_expansions.main, options, tmp_path / "e.parquet")


def test_predictions_that_say_nothing_and_few_are_taken():
    assert import_expansions.fit(["a word"] * 30, [[]] * 30)
    assert import_expansions.fit(["some word"] * 3, [["other"]] * 3)


# Weighted documents.

DOCUMENTS = {"d2": "ship rock rock rock", "d0": "oil " * 40 + "war"}


def write_documents(folder, documents, name="weighted.jsonl"):
    lines = [json.dumps({"id": doc_id, "contents": text}) for doc_id, text in documents.items()]
    if name.endswith(".zip"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            for number, line in enumerate(lines):
                archive.writestr(f"docs/docs{number:02d}.json", f"{line}\n")
    else:
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return ["--documents", folder / name, "--passages", folder / "passages.parquet", "--output", folder / "w.parquet"]


@pytest.mark.parametrize("name", ["weighted.jsonl", "sample_100_jsonl.zip"])
def test_documents_become_weights_in_the_order_of_the_passages(data, name):
    assert import_term_weights.main(list(map(str, write_documents(data, DOCUMENTS, name)))) == 0
    rows = [tuple(row.values()) for row in tables.read_table(data / "w.parquet", tables.TERM_WEIGHTS).to_pylist()]
    assert rows == [("d0", ["oil", "war"], [40, 1]), ("d1", [], []), ("d2", ["ship", "rock"], [1, 3])]


def test_rows_are_taken_as_arrow_takes_them():
    generator = np.random.default_rng(1)
    rows = [(f"d{row}", [f"w{word}" for word in range(row % 4)], [*range(row % 4)]) for row in range(90)]
    table = pa.Table.from_pylist([dict(zip(tables.TERM_WEIGHTS.names, row, strict=True)) for row in rows])
    table = table.cast(tables.TERM_WEIGHTS)
    batches = [table.slice(start, size).to_batches()[0] for start, size in ((0, 50), (50, 1), (51, 39))]
    for wanted in (generator.integers(90, size=200), np.arange(90)[::-1].copy(), np.array([50])):
        assert import_term_weights.take(batches, wanted).equals(table.take(pa.array(wanted)))


def test_weighted_terms_rank_as_repeated_words_do(data):
    weights = {"d0": {"oil": 40, "war": 1}, "d1": {"king": 7, "gas": 2, "gold": 1}, "d2": {"oil": 3}}
    rows = [(doc_id, list(bag), list(bag.values())) for doc_id, bag in weights.items()]
    path = write(data / "w.parquet", tables.TERM_WEIGHTS, rows)
    found = search(data, "weighted", "--term-weights", path, k1=10, b=0.9)
    repeated = {doc_id: " ".join(word for word, n in bag.items() for _ in range(n)) for doc_id, bag in weights.items()}
    write(data / "passages.parquet", tables.PASSAGES, repeated.items())
    # To the last bit, and the formula's as far as Lucene keeps lengths.
    assert scores_of(search(data, "repeated", k1=10, b=0.9)) == scores_of(found)
    assert scores_of(found) == pytest.approx(bm25_scores(weights, "gold king oil", 10, 0.9), rel=0.05)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"id": "d0"}', "row 1: found"),
        ('{"id": "d0", "contents": 5}', "expected an object with the texts id and contents"),
        ("oil oil war", "row 1: found 'oil oil war'"),
        ('{"id": "d9", "contents": "oil"}', "found document 'd9' (1 are no passages), expected documents of this"),
        ('{"id": "d0", "contents": "oil"}\n{"id": "d0", "contents": "oil"}', "row 2: found id 'd0' again"),
        ("", "found no document, expected JSON lines of id and contents"),
    ],
)
def test_what_is_no_weighted_document_of_the_collection_is_refused(data, complaint, text, words):
    options = write_documents(data, {})
    (data / "weighted.jsonl").write_text(text)
    assert words in complaint(import_term_weights.main, options, data / "w.parquet")


def test_a_damaged_zip_is_refused(data, complaint):
    options = write_documents(data, DOCUMENTS, "weighted.zip")
    (data / "weighted.zip").write_bytes((data / "weighted.zip").read_bytes()[:100])
    assert "found a damaged archive" in complaint(import_term_weights.main, options, data / "w.parquet")


def test_expansions_and_weights_exclude_each_other(data, complaint):
    options = ["--passages", data / "passages.parquet", "--expansions", "e", "--term-weights", "w"]
    assert "found both, expected one of them" in complaint(
        bm25_index.main, [*options, "--output", data / "i"], data / "i"
    )
