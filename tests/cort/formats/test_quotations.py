"""Judgements that quote passages, and how they are found again after the collection was divided otherwise."""

import json
import re
from functools import partial

import pyarrow as pa
import pytest

from cort.formats import quotations
from cort.formats.quotations import read_quoted
from cort.formats.records import Qrel
from cort.formats.tables import PASSAGES
from cort.retrieval.documents import documents_of
from tests.support.common import ROOT, refusal, write_file

QUOTED = {
    "d1": "Quick Answer. One cubic inch of aluminum weighs 1.56 ounces. The metal sinks.",
    "d2": "One cubic inch of aluminum weighs 1.56 ounces.",
    "d3": "quick answer:  one cubic INCH of “aluminum” weighs 1.56 ounces",
    "d4": "Quick Answer. One cubic inch of iron",
}


def passages_of(texts):
    table = pa.table({"doc_id": list(texts), "text": list(texts.values())}, schema=PASSAGES)
    return lambda: table.to_batches(max_chunksize=2)


def written(tmp_path, *records):
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    return write_file(tmp_path / "quoted.jsonl", "\n".join(lines))


def quotation(**changes):
    return {"query_id": "q", "text": "Quick Answer. One cubic inch of aluminum", "relevance": 1, **changes}


def test_all_passages_that_begin_with_the_quoted_letters_are_judged(tmp_path):
    def letters(text):
        return re.sub("[^a-z0-9]", "", text.lower())

    texts = ["quick answer ONE cubic inch", "One cubic inch of aluminum weighs", "Quick Answer. One cubic inch of al"]
    expected = [
        (row, Qrel(f"q{row}", doc_id, row))
        for row, text in enumerate(texts, 1)
        for doc_id, passage in QUOTED.items()
        if letters(passage).startswith(letters(text))
    ]
    records = [{"query_id": f"q{row}", "text": text, "relevance": row} for row, text in enumerate(texts, 1)]
    assert read_quoted(written(tmp_path, *records), passages_of(QUOTED)).qrels == expected
    assert [len([row for row, _ in expected if row == number]) for number in (1, 2, 3)] == [3, 1, 2]


GOLD = "Quick Answer. One cubic inch of gold"
OBJECT = "expected an object with query_id, text and relevance"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (quotation(text=GOLD), f"found the text {GOLD!r}, expected the beginning of a passage of the collection; copy"),
        (quotation(text="Quick Answer"), "found the text 'Quick Answer', expected at least 20 letters or digits"),
        (quotation(relevance="1"), OBJECT),
        (quotation(relevance=True), OBJECT),
        (quotation(more=1), OBJECT),
        ({"query_id": "q", "relevance": 1}, OBJECT),
        (quotation(relevance=1001), "found the relevance 1001, expected at most 1000; correct the row"),
        (quotation(query_id="a b"), "found query_id 'a b' with whitespace"),
        (quotation(text="Quick Answer. One cubic inch \ud800"), r"found half a character (\ud800) in 'text', expected"),
        ("[1]", f"found '[1]', {OBJECT}"),
        ("{", "each record takes one line"),
    ],
)  # fmt: skip
def test_quotations_are_refused(tmp_path, line, complaint):
    message = refusal(lambda path: read_quoted(path, passages_of(QUOTED)).qrels, written(tmp_path, line))
    assert message.startswith("row 1: ")
    assert complaint in message


def test_the_name_of_a_file_tells_quotations():
    assert [quotations.is_quoted(name) for name in ("a.jsonl", "a.jsonl.gz", "a.tsv", "a.qrels")] == [
        True,
        True,
        False,
        False,
    ]


def test_the_examples_of_cort_are_quoted():
    """The beginnings of the paper's table as text, with signs and blanks that a copy may have changed."""
    texts = {
        "boat": "Question and answer. how much does a western 14 ft. aluminum boat weigh? what is",
        "ounces": "Quick Answer.  One cubic inch of aluminum weighs 1.56 ounces. The metal",
        "legally": "Although there are many articles stating one can be declared legally insane if... How long",
        "record": "The longest recorded time a human has ever gone without sleep is 18 days, 21 hours, and 40 minutes",
    }
    for path in sorted((ROOT / "config" / "ablations" / "table-6").glob("*.jsonl")):
        ((_, qrel),) = read_quoted(path, passages_of(texts)).qrels
        assert (qrel.doc_id, qrel.relevance) == (path.stem, 1)


# Judgements with ids.

WINE = "Wine\n\nWhite wine has 119 calories in a glass."
TEXTS = {
    "a#0": WINE,
    "a#1": "Red wine has 125 calories in a glass.",
    "b": "Short.",
    "c": "القاهرة هي عاصمة مصر العربية",
}


def judgement(doc_id, relevance=1, query_id="q", text=None):
    return {
        "query_id": query_id,
        "doc_id": doc_id,
        "text": TEXTS[doc_id] if text is None else text,
        "relevance": relevance,
    }


def counts(by_id=0, by_text=0, gone=0, withdrawn=0):
    return {"judgements_found_by_id": by_id, "found_by_text": by_text, "gone": gone, "withdrawn": withdrawn}


def test_the_last_line_of_a_pair_counts_and_may_withdraw_it(tmp_path):
    rows = [judgement("a#0", 0), judgement("b", 2), judgement("a#0", 3), judgement("a#1"), judgement("a#1", None)]
    rows += [judgement("a#1", 1, "other")]
    found = read_quoted(written(tmp_path, *rows), passages_of(TEXTS))
    expected = [(2, Qrel("q", "b", 2)), (3, Qrel("q", "a#0", 3)), (6, Qrel("other", "a#1", 1))]
    assert found == (expected, counts(by_id=3, withdrawn=1))


def test_passages_of_a_collection_that_was_divided_otherwise_are_found_by_their_texts(tmp_path):
    # The first moved and is longer, the second has another text, the third has gone, and so has a short one.
    divided = {
        "a#0": "Introduction",
        "a#1": WINE.replace("\n", " ") + " And more.",
        "c#7": TEXTS["c"],
        "d": "Short. More.",
    }
    rows = [judgement("a#0", 3), judgement("a#1", 2), judgement("b", 1), judgement("c", 1)]
    found = read_quoted(written(tmp_path, *rows), passages_of(divided))
    assert found == ([(1, Qrel("q", "a#1", 3)), (4, Qrel("q", "c#7", 1))], counts(by_text=2, gone=2))


def test_a_judgement_of_a_passage_goes_before_one_found_by_its_text(tmp_path):
    rows = [judgement("b", 0, text=TEXTS["a#1"][:25]), judgement("a#1", 3), judgement("gone", 2, text=TEXTS["a#1"])]
    found = read_quoted(written(tmp_path, *rows), passages_of(TEXTS))
    assert found == ([(2, Qrel("q", "a#1", 3))], counts(by_id=1, by_text=2))


def test_documents_are_known_by_their_ids_and_found_by_a_passage(tmp_path):
    grouping = partial(documents_of, how="max")
    rows = [
        judgement("a", 1, text="changed since"),
        judgement("old", 2, text=TEXTS["c"]),
        judgement("gone", 3, text=WINE[::-1]),
    ]
    found = read_quoted(written(tmp_path, *rows), passages_of(TEXTS), grouping)
    assert found == ([(1, Qrel("q", "a", 1)), (2, Qrel("q", "c", 2))], counts(by_id=1, by_text=1, gone=1))
    message = refusal(lambda path: read_quoted(path, passages_of(TEXTS), grouping), written(tmp_path, quotation()))
    assert "row 1: found texts of passages, expected documents, which are measured; name" in message


def test_quotations_and_judgements_may_be_mixed(tmp_path):
    rows = [quotation(text="Red wine has 125 calories", relevance=2), judgement("a#0", 1)]
    found = read_quoted(written(tmp_path, *rows), passages_of(TEXTS))
    assert found == ([(1, Qrel("q", "a#1", 2)), (2, Qrel("q", "a#0", 1))], counts(by_id=1))
