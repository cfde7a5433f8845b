"""Judgements as published, and those of texts, which are found again in another division."""

import json
import re
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cort.formats.judgements import is_quoted, iter_qrels, read_judged
from cort.formats.records import Qrel
from cort.formats.tables import PASSAGES
from cort.retrieval.documents import documents_of
from tests.support.common import ROOT, refusal, write_file

DATA = Path(__file__).parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")

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
        (judgement("b", True), "row 2: found true at relevance, expected a whole number; correct the judgement"),
        (judgement(7, text="x"), "row 2: found 7 at doc_id, expected a text; correct the judgement"),
        ({"query_id": "q"}, "row 2: found no 'text'"),
        (
            {"query_id": "q", "text": "x", "relevance": 1001},
            "found 1001 at relevance, expected a number from 0 to 1000",
        ),
        (judgement("b", text="\ud800"), "row 2: found half a character, expected valid Unicode; correct the judgement"),
        ('{"query_id": "q", "doc', "row 2: found unreadable content (Unterminated string"),
        ("[1]", "row 2: found [1], expected an object"),
    ],
)
def test_bad_lines_are_refused(tmp_path, line, complaint):
    message = refusal(lambda path: read_judged(path, batches(TEXTS), None)[0], written(tmp_path, judgement("b"), line))
    assert complaint in message


def test_the_first_line_tells_judgements_of_texts(tmp_path):
    assert is_quoted(written(tmp_path, judgement("b"), "and whatever"))
    assert is_quoted(write_file(tmp_path / "q", json.dumps({"query_id": "q", "text": "a text", "relevance": 1})))
    assert not is_quoted(written(tmp_path))
    assert not is_quoted(write_file(tmp_path / "qrels.tsv", "q 0 d 1\n"))
    beir = {"query-id": "q", "corpus-id": "d", "score": 1}
    assert not is_quoted(write_file(tmp_path / "qrels.jsonl", json.dumps(beir)))


BEIR = "query-id\tcorpus-id\tscore\n"
PLAIN = [Qrel("q1", "d1", 1), Qrel("q1", "d2", 3), Qrel("q2", "d1", -2)]


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        # The second column of TREC DL 2019 is Q0; some tracks have negative grades.
        ("qrels.tsv", "q1\t0\td1\t1\nq1 Q0  d2 3\nq2 0 d1 -2\n", [1, 2, 3]),
        ("qrels.tsv.gz", "# judged in May\nq1 0 d1 1.0\n\nq1 0 d2 3\nq2 0 d1 -2\n\n \n", [2, 4, 5]),
        ("qrels", "q1 0 d1 1 0.5 x\nq1 0 d2 3 1 y\nq2 0 d1 -2 1 z\n", [1, 2, 3]),
        ("qrels.trec", BEIR + "q1\td1\t1\nq1\td2\t3\nq2\td1\t-2\n", [2, 3, 4]),
        ("qrels.tsv", "Query-ID corpus-id score\nq1 d1 1\nq1 d2 3\nq2 d1 -2\n", [2, 3, 4]),
        ("qrels", "split\tqid\tlabel\tdocid\na\tq1\t1\td1\na\tq1\t3\td2\na\tq2\t-2\td1\n", [2, 3, 4]),
        ("qrels.tsv", "query_id,doc_id,relevance\nq1,d1,1\nq1,d2,3\nq2,d1,-2\n", [2, 3, 4]),
        ("cranqrel", "q1 d1 1 \nq1  d2 3\nq2 d1 -2\n", [1, 2, 3]),
        (
            "qrels.tsv",
            '{"query-id": "q1", "corpus-id": "d1", "score": 1}\n{"query-id": "q1", "corpus-id": "d2", "score": 3.0}\n'
            '{"query-id": "q2", "corpus-id": "d1", "score": -2}\n',
            [1, 2, 3],
        ),
    ],
)
def test_judgements_of_trec_beir_and_others(tmp_path, name, text, rows):
    assert list(iter_qrels(write_file(tmp_path / name, text))) == [*zip(rows, PLAIN, strict=True)]


def test_judgements_without_a_grade_are_relevant(tmp_path):
    nano = write_file(tmp_path / "nano.tsv", "query-id\tcorpus-id\nq1\td1\n")
    # qrels.text of CACM, CISI.REL
    cacm, cisi = "01 1410  0 0\n01 1572  0 0\n", "     1     28\t0\t0.000000\n     1     35\t0\t0.000000\n"
    columns = {"query-id": ["q1"], "corpus-id": ["d1"]}
    pq.write_table(pa.table(columns), tmp_path / "nano.parquet")
    for path in (nano, tmp_path / "nano.parquet"):
        assert [qrel for _, qrel in iter_qrels(path)] == [("q1", "d1", 1)]
    found = [list(iter_qrels(write_file(tmp_path / "qrels.text", text))) for text in (cacm, cisi)]
    assert found == [[(1, ("1", a, 1)), (2, ("1", b, 1))] for a, b in (("1410", "1572"), ("28", "35"))]
    # A document may be called 0.
    assert list(iter_qrels(write_file(tmp_path / "q", "1 0 0 0\n"))) == [(1, ("1", "0", 0))]


def test_ids_are_those_of_passages(tmp_path):
    rows = 'q\t0\t"Weird Al"\t1\nq\t0\tb\t1\n', BEIR + 'q\t"Weird Al"\t1\nq\tb\t1\n'
    for text in rows:
        qrels = [qrel for _, qrel in iter_qrels(write_file(tmp_path / "qrels", text))]
        assert qrels == [("q", '"Weird%20Al"', 1), ("q", "b", 1)]


@pytest.mark.parametrize("text", ["", BEIR + "# nothing\n"])
def test_files_without_judgements_are_empty(tmp_path, text):
    assert list(iter_qrels(write_file(tmp_path / "qrels.tsv", text))) == []


FIRST = "expected 4 fields (query_id 0 doc_id grade); write four columns, or a header: query-id, corpus-id, score"
GRADE = "expected a whole number from -1000 to 1000; correct the row"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("q1\td1\n", rf"row 1: found 2 fields in 'q1\td1', {FIRST}"),
        (
            "query_id\tcorpus-id\tx\n",
            r"row 1: found 3 fields in 'query_id\tcorpus-id\tx', expected a column of grades; call it score",
        ),
        ("q1 0 d1 1\nq1 0 d 2 1\n", "row 2: found 5 fields in 'q1 0 d 2 1', expected 4, as in the first row; correct"),
        *(
            (f"q1 0 d0 1000\nq1 0 d1 {grade}\n", f"row 2: found the grade '{grade}', {GRADE}")
            for grade in ("score", "1.5", "٣", "1001", "-1001")
        ),
        (
            BEIR + "q1\t\t1\n",
            "row 2: found an empty doc_id, expected a doc_id without",
        ),
        ('{"query_id": "q", "doc_id": "d", "x": 1}\n', "row 1: found no score or relevance or rel or label or grade"),
    ],
)
def test_qrels_are_refused(tmp_path, text, complaint):
    assert refusal(iter_qrels, write_file(tmp_path / "q.tsv", text)).startswith(complaint)


@needs_data
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("msmarco-meta/qrels.dev.small.tsv", 7_437),
        ("msmarco-meta/qrels.dl19-passage.txt", 9_260),
        ("vaswani/qrels", 2_083),
        ("trec_eval/qrels.test", 3_681),
    ],
)
def test_real_files_have_their_published_counts(name, count):
    assert [row for row, _ in iter_qrels(DATA / name)] == list(range(1, count + 1))


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
