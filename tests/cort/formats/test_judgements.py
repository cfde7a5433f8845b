"""Judgements of texts, which are found again in another division."""

import json
import random
import re
from functools import partial

import pyarrow as pa
import pytest

from cort.formats.judgements import is_quoted, read_judged
from cort.formats.records import Qrel
from cort.formats.tables import PASSAGES
from cort.retrieval.documents import documents_of
from tests.support.common import ROOT, write_file

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
    return {"judgements_matched_by_id": by_id, "matched_by_text": by_text, "unmatched": gone, "withdrawn": withdrawn}


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


def test_what_was_found_by_its_text_can_be_judged_again_and_withdrawn(tmp_path):
    rows = [judgement("gone", 2, text=TEXTS["a#1"]), judgement("a#1", 0), judgement("a#1", None)]
    found = [read_judged(written(tmp_path, *rows[:number]), batches(TEXTS), None) for number in (1, 2, 3)]
    judged = [(1, Qrel("q", "a#1", 2))], [(2, Qrel("q", "a#1", 0))], []
    counted = counts(by_text=1), counts(by_id=1, by_text=1), counts(by_text=1, withdrawn=1)
    assert found == list(zip(judged, counted, strict=True))
    # By its text, too, which was judged before.
    again = written(tmp_path, *rows[:2], rows[0] | {"relevance": 3})
    assert read_judged(again, batches(TEXTS), None)[0] == [(3, Qrel("q", "a#1", 3))]


def test_documents_are_known_by_their_ids_and_found_by_a_passage(tmp_path):
    rows = [judgement("a", 1, text="changed since"), judgement("old", 2, text=TEXTS["c"])]
    rows += [judgement("gone", 3, text=WINE[::-1])]
    found = read_judged(written(tmp_path, *rows), batches(TEXTS), DOCUMENTS)
    assert found == ([(1, Qrel("q", "a", 1)), (2, Qrel("q", "c", 2))], counts(by_id=1, by_text=1, gone=1))


def test_the_first_line_tells_judgements_of_texts(tmp_path):
    assert is_quoted(written(tmp_path, judgement("b"), "and whatever"))
    assert is_quoted(write_file(tmp_path / "q", json.dumps({"query_id": "q", "text": "a text", "relevance": 1})))
    assert not is_quoted(written(tmp_path))
    assert not is_quoted(write_file(tmp_path / "qrels.tsv", "q 0 d 1\n"))
    beir = {"query-id": "q", "corpus-id": "d", "score": 1}
    assert not is_quoted(write_file(tmp_path / "qrels.jsonl", json.dumps(beir)))


QUOTED = {
    "d1": "Quick Answer. One cubic inch of aluminum weighs 1.56 ounces. The metal sinks.",
    "d2": "One cubic inch of aluminum weighs 1.56 ounces.",
    "d3": "quick answer:  one cubic INCH of “aluminum” weighs 1.56 ounces",
    "d4": "Quick Answer. One cubic inch of iron",
}


def test_without_an_id_all_passages_that_begin_with_the_letters_are_judged(tmp_path):
    def letters(text):
        return re.sub("[^a-z0-9]", "", text.lower())

    texts = ["quick answer ONE cubic inch", "One cubic inch of aluminum weighs", "Quick Answer. One cubic inch of al"]
    records = [{"query_id": f"q{row}", "text": text, "relevance": row} for row, text in enumerate(texts, 1)]
    # The letters of CJK and of Indic scripts have marks, which count; signs do not.
    others = {"hi": "हिन्दी में एक वाक्य है", "zh": "「京都」は日本の古い都であり、千年の歴史を持つ。"}
    records += [{"query_id": name, "text": text[:22], "relevance": 1} for name, text in others.items()]
    gone = {"gold": "Quick Answer. One cubic inch of gold", "short": "Quick Answer", "signs": 20 * "?"}
    records += [{"query_id": name, "text": text, "relevance": 1, "more": 1} for name, text in gone.items()]
    found = read_judged(written(tmp_path, *records), batches(QUOTED | others), None)
    expected = [
        (row, Qrel(f"q{row}", doc_id, row))
        for row, text in enumerate(texts, 1)
        for doc_id, passage in QUOTED.items()
        if letters(passage).startswith(letters(text))
    ]
    expected += [(row, Qrel(name, name, 1)) for row, name in enumerate(others, 4)]
    assert found == (expected, counts(by_text=5, gone=3))
    assert [len([row for row, _ in expected if row == number]) for number in (1, 2, 3)] == [3, 1, 2]


@pytest.mark.parametrize("documents", [None, DOCUMENTS])
def test_passages_are_those_that_a_comparison_with_each_finds(tmp_path, documents):
    generator = random.Random(1)  # noqa: S311

    def text(length):
        return "".join(generator.choice("aB. ") for _ in range(length))

    common = text(40)
    texts = {f"d{number % 40}#{number}": common[: generator.randrange(40)] + text(90) for number in range(200)}
    # Letters far from the beginning.
    texts |= {f"far#{number}": "." * generator.randrange(60, 70) + text(40) for number in range(20)}
    names = sorted({name.partition("#")[0] if documents else name for name in texts})
    records = []
    for number in range(300):
        quoted = generator.choice([*texts.values()])[: generator.choice([3, 20, 40, 80])]
        doc_id = generator.choice(["", generator.choice(names)])
        records.append({"query_id": f"q{number}", "doc_id": doc_id, "text": quoted, "relevance": 1})
    expected = []
    for row, one in enumerate(records, 1):
        quoted = re.sub("[. ]", "", one["text"]).lower()
        same = {name for name, text in texts.items() if re.sub("[. ]", "", text).lower().startswith(quoted)}
        same = {name.partition("#")[0] for name in same} if documents else same
        known = one["doc_id"] in (names if documents else same)
        found = {one["doc_id"]} if known else same if len(quoted) >= 16 else set()
        expected += [(row, Qrel(one["query_id"], doc_id, 1)) for doc_id in sorted(found)]
    found, _ = read_judged(written(tmp_path, *records), batches(texts), documents)
    assert found == expected
    assert len(expected) > 200


def test_the_examples_of_cort_are_quoted():
    """The beginnings of the paper's table as text, with signs and blanks that a copy may have changed."""
    texts = {
        "boat": "Question and answer. how much does a western 14 ft. aluminum boat weigh? what is",
        "ounces": "Quick Answer.  One cubic inch of aluminum weighs 1.56 ounces. The metal",
        "legally": "Although there are many articles stating one can be declared legally insane if... How long",
        "record": "The longest recorded time a human has ever gone without sleep is 18 days, 21 hours, and 40 minutes",
    }
    for path in sorted((ROOT / "config" / "ablations" / "table-6").glob("*.jsonl")):
        ((_, qrel),), _ = read_judged(path, batches(texts), None)
        assert (qrel.doc_id, qrel.relevance) == (path.stem, 1)
