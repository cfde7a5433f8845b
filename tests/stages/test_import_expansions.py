import pyarrow as pa
import pytest

from cort.formats import tables
from cort.formats.expansions import iter_expanded
from tests.support.common import write_rows

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
