"""Judgements of a person, and how they are found again after the collection was divided otherwise."""

import json
from functools import partial

import pyarrow as pa
import pytest

from cort.formats.judgements import is_judged, read_judged
from cort.formats.records import Qrel
from cort.formats.tables import PASSAGES
from cort.retrieval.documents import documents_of
from tests.support.common import refusal, write_file

WINE = "Wine\n\nWhite wine has 119 calories in a glass."
TEXTS = {
    "a#0": WINE,
    "a#1": "Red wine has 125 calories in a glass.",
    "b": "Short.",
    "c": "القاهرة هي عاصمة مصر العربية",
}
DOCUMENTS = partial(documents_of, how="max")


def batches(texts):
    table = pa.table({"doc_id": list(texts), "text": list(texts.values())}, schema=PASSAGES)
    return table.to_batches(max_chunksize=2)


def judgement(doc_id, relevance=1, query_id="q", text=None):
    text = TEXTS[doc_id] if text is None else text
    return {"query_id": query_id, "doc_id": doc_id, "text": text, "relevance": relevance}


def written(tmp_path, *records):
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    return write_file(tmp_path / "judged.jsonl", "".join(line + "\n" for line in lines))


def counts(by_id=0, by_text=0, gone=0, withdrawn=0):
    return {"judgements_found_by_id": by_id, "found_by_text": by_text, "gone": gone, "withdrawn": withdrawn}


def test_the_last_line_of_a_pair_counts_and_may_withdraw_it(tmp_path):
    rows = [judgement("a#0", 0), judgement("b", 2), judgement("a#0", 3), judgement("a#1"), judgement("a#1", None)]
    rows += [judgement("a#1", 1, "other")]
    found = read_judged(written(tmp_path, *rows), batches(TEXTS), None)
    expected = [(2, Qrel("q", "b", 2)), (3, Qrel("q", "a#0", 3)), (6, Qrel("other", "a#1", 1))]
    assert found == (expected, counts(by_id=3, withdrawn=1))
    assert read_judged(written(tmp_path), batches(TEXTS), None) == ([], counts())


def test_passages_of_a_collection_that_was_divided_otherwise_are_found_by_their_texts(tmp_path):
    # The first one moved and is longer, the second has another text, the third is too short, the last one moved.
    divided = {
        "a#0": "Introduction",
        "a#1": WINE.replace("\n", " ") + " And more.",
        "d": "Short. More.",
        "e": TEXTS["c"],
    }
    rows = [judgement("a#0", 3), judgement("a#1", 2), judgement("b", 1), judgement("c", 1, text=TEXTS["c"][:22])]
    found = read_judged(written(tmp_path, *rows), batches(divided), None)
    assert found == ([(1, Qrel("q", "a#1", 3)), (4, Qrel("q", "e", 1))], counts(by_text=2, gone=2))


def test_judgements_of_the_same_passage_do_not_collide(tmp_path):
    rows = [judgement("gone", 2, text=TEXTS["a#1"][:25]), judgement("a#1", 3)]
    found = read_judged(written(tmp_path, *rows), batches(TEXTS), None)
    assert found == ([(2, Qrel("q", "a#1", 3))], counts(by_id=1, by_text=1))


def test_what_was_found_by_its_text_can_be_judged_again_and_withdrawn(tmp_path):
    old = judgement("gone", 2, text=TEXTS["a#1"])
    assert read_judged(written(tmp_path, old), batches(TEXTS), None)[0] == [(1, Qrel("q", "a#1", 2))]
    again = [old, judgement("a#1", 0)]
    assert read_judged(written(tmp_path, *again), batches(TEXTS), None)[0] == [(2, Qrel("q", "a#1", 0))]
    withdrawn = [*again, judgement("a#1", None)]
    assert read_judged(written(tmp_path, *withdrawn), batches(TEXTS), None) == ([], counts(by_text=1, withdrawn=1))


def test_documents_are_known_by_their_ids_and_found_by_a_passage(tmp_path):
    rows = [judgement("a", 1, text="changed since"), judgement("old", 2, text=TEXTS["c"])]
    rows += [judgement("gone", 3, text=WINE[::-1])]
    found = read_judged(written(tmp_path, *rows), batches(TEXTS), DOCUMENTS)
    assert found == ([(1, Qrel("q", "a", 1)), (2, Qrel("q", "c", 2))], counts(by_id=1, by_text=1, gone=1))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (judgement("b", 4), "row 2: found 4 at relevance, expected a number from 0 to 3; correct the judgement"),
        (judgement("b", -1), "row 2: found -1 at relevance, expected 0 or more; correct the judgement"),
        (judgement("b", True), "row 2: found true at relevance, expected a whole number; correct the judgement"),
        (judgement(7, text="x"), "row 2: found 7 at doc_id, expected a text; correct the judgement"),
        ({"query_id": "q"}, "row 2: found no 'doc_id'"),
        ('{"query_id": "q", "doc', "row 2: found unreadable content (Unterminated string"),
        ("[1]", "row 2: found [1], expected an object"),
    ],
)
def test_bad_lines_are_refused(tmp_path, line, complaint):
    message = refusal(lambda path: read_judged(path, batches(TEXTS), None)[0], written(tmp_path, judgement("b"), line))
    assert complaint in message


def test_the_name_and_the_first_line_tell_judgements(tmp_path):
    quoted = {"query_id": "q", "text": 'a text with "doc_id": in it', "relevance": 1}
    assert is_judged(written(tmp_path, judgement("b"), "and whatever"))
    assert not is_judged(written(tmp_path, quoted))
    assert not is_judged(written(tmp_path))
    assert not is_judged("qrels.tsv")
