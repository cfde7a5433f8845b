"""Judgements that quote passages: which passages are meant, and every refusal."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from cort.formats.quotations import iter_quoted, quotes
from cort.formats.records import Qrel
from cort.formats.tables import PASSAGES
from cort.system.errors import InputError

ROOT = Path(__file__).parents[3]
TEXTS = {
    "d1": "Quick Answer. One cubic inch of aluminum weighs 1.56 ounces. The metal sinks.",
    "d2": "One cubic inch of aluminum weighs 1.56 ounces.",
    "d3": "quick answer:  one cubic INCH of “aluminum” weighs 1.56 ounces",
    "d4": "Quick Answer. One cubic inch of iron",
}


def batches(texts=TEXTS, rows=2):
    table = pa.table({"doc_id": list(texts), "text": list(texts.values())}, schema=PASSAGES)
    return table.to_batches(max_chunksize=rows)


def judged(tmp_path, *records, texts=TEXTS):
    path = tmp_path / "quoted.jsonl"
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in records), "utf-8")
    return list(iter_quoted(path, batches(texts)))


def record(**changes):
    return {"query_id": "q", "text": "Quick Answer. One cubic inch of aluminum", "relevance": 1, **changes}


def test_passages_that_begin_with_the_letters_are_meant(tmp_path):
    other = record(query_id="p", text="One cubic inch of aluminum weighs", relevance=2)
    assert judged(tmp_path, record(), other) == [
        (1, Qrel("q", "d1", 1)),
        (1, Qrel("q", "d3", 1)),
        (2, Qrel("p", "d2", 2)),
    ]


def test_against_a_search_passage_by_passage(tmp_path):
    def letters(text):
        return re.sub("[^a-z0-9]", "", text.lower())

    for text in ("quick answer ONE cubic inch", "One cubic inch of aluminum", "Quick Answer. One cubic inch of"):
        expected = [name for name, passage in TEXTS.items() if letters(passage).startswith(letters(text))]
        assert [one.doc_id for _, one in judged(tmp_path, record(text=text))] == expected


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (record(text="Quick Answer. One cubic inch of gold"), "row 1: found the text 'Quick Answer. One cubic inch of "
         "gold', expected the beginning of a passage of the collection; copy it from there"),
        (record(text="Quick Answer"), "row 1: found the text 'Quick Answer', expected 20 letters or digits at least; "),
        (record(relevance="1"), "expected an object with query_id, text and relevance; correct the row"),
        (record(relevance=True), "expected an object with query_id, text and relevance; correct the row"),
        (record(relevance=1001), "row 1: found the relevance 1001, expected at most 1000; correct the row"),
        (record(more=1), "expected an object with query_id, text and relevance; correct the row"),
        (record(query_id="a b"), "row 1: found query_id 'a b'"),
        (record(text="Quick Answer. One cubic inch \ud800"), "row 1: found half a character (\\ud800) in 'text', "
         "expected valid Unicode"),
        ("[1]", "row 1: found '[1]', expected an object with query_id, text and relevance"),
        ("{", "each record takes one line"),
    ],
)  # fmt: skip
def test_refusals(tmp_path, line, complaint):
    with pytest.raises(InputError) as error:
        judged(tmp_path, line)
    assert complaint in str(error.value).replace('"', "'")
    assert "\n" not in str(error.value)


def test_kind_of_a_file():
    assert [quotes(name) for name in ("a.jsonl", "a.jsonl.gz", "a.tsv", "a.qrels")] == [True, True, False, False]


def test_the_examples_of_cort_are_quoted(tmp_path):
    """The paper's table as text (the beginnings), with signs and blanks that a copy may have changed."""
    texts = {
        "boat": "Question and answer. how much does a western 14 ft. aluminum boat weigh? what is",
        "ounces": "Quick Answer.  One cubic inch of aluminum weighs 1.56 ounces. The metal",
        "legally": "Although there are many articles stating one can be declared legally insane if... How long",
        "record": "The longest recorded time a human has ever gone without sleep is 18 days, 21 hours, and 40 minutes",
    }
    for path in sorted((ROOT / "config" / "ablations" / "table-6").glob("*.jsonl")):
        ((_, found),) = iter_quoted(path, batches(texts))
        assert (found.doc_id, found.relevance) == (path.stem, 1)
