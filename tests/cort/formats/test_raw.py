"""Readers of the files users bring: both forms, plain and gzipped, and every refusal."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from cort.formats.lines import iter_record_batches
from cort.formats.raw import iter_passages, iter_qrels, iter_queries, refuse_duplicates
from cort.formats.records import Qrel, Text
from cort.formats.tables import QRELS
from cort.system.errors import InputError

DATA = Path(__file__).parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")

BEIR_HEADER = "query-id\tcorpus-id\tscore\n"


def write(tmp_path, name, text):
    path = tmp_path / name
    data = text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def refusal(reader, path):
    with pytest.raises(InputError) as error:
        list(reader(path))
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


# Passages


@pytest.mark.parametrize("name", ["collection.tsv", "collection.tsv.gz", "my.v2.tsv", "c.txt"])
def test_passages_of_ms_marco(tmp_path, name):
    path = write(tmp_path, name, "0\tThe presence of\nD1\t  two  blanks “inside” \n")
    assert list(iter_passages(path)) == [
        (1, Text("0", "The presence of")),
        (2, Text("D1", "two  blanks “inside”")),
    ]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_passages_of_beir(tmp_path, name):
    records = [
        {"_id": "MED-1", "title": "Statin use", "text": "Recent studies", "metadata": {"url": "x"}},
        {"_id": "2", "title": "", "text": " plain\ttext\n"},
        {"_id": "3", "text": "no title"},
        {"_id": "4", "title": "title alone", "text": ""},
    ]
    path = write(tmp_path, name, "".join(json.dumps(record) + "\n" for record in records))
    assert list(iter_passages(path)) == [
        (1, Text("MED-1", "Statin use Recent studies")),
        (2, Text("2", "plain\ttext")),
        (3, Text("3", "no title")),
        (4, Text("4", "title alone")),
    ]


TSV_FIX = "separate id and text by one TAB and leave no other TAB in the row"
VISIBLE = "expected a doc_id of visible characters; give the row another id"
ID_FIX = "expected a doc_id without whitespace, as run files need it; give the row another id"


@pytest.mark.parametrize(
    ("second_row", "complaint"),
    [
        ("b", f"found 1 TAB-separated fields, expected 2 fields (doc_id TAB text); {TSV_FIX}"),
        ("b\tx\ty", f"found 3 TAB-separated fields, expected 2 fields (doc_id TAB text); {TSV_FIX}"),
        ("", f"found an empty line, expected 2 fields (doc_id TAB text); {TSV_FIX}"),
        ("\ttext", f"found an empty doc_id, {ID_FIX}"),
        (" \ttext", f"found an empty doc_id, {ID_FIX}"),
        ("b c\ttext", f"found doc_id 'b c' with whitespace, {ID_FIX}"),
        (" b\ttext", f"found doc_id ' b' with whitespace, {ID_FIX}"),
        ("b\u00a0\ttext", rf"found doc_id 'b\xa0' with whitespace, {ID_FIX}"),
        ("id\ttext", r"found the header 'id\ttext', expected rows of doc_id TAB text alone; remove the header row"),
        (
            "Query_ID\t passage ",
            r"found the header 'Query_ID\t passage ', expected rows of doc_id TAB text alone; remove the header row",
        ),
        ("b\u200b\tx", rf"found doc_id 'b\u200b' with the invisible character U+200B, {VISIBLE}"),
        ("b\x1b\tx", rf"found doc_id 'b\x1b' with the invisible character U+001B, {VISIBLE}"),
        ("b\ufeff\tx", rf"found doc_id 'b\ufeff' with the invisible character U+FEFF, {VISIBLE}"),
        ("b\tx\x00", "found a NUL byte at byte 4, expected text; remove it, or name a file of text"),
        ("b\t", "found an empty text, expected at least one character; remove the row"),
        ("b\t \u00a0", "found an empty text, expected at least one character; remove the row"),
    ],
)
def test_tsv_passages_are_refused(tmp_path, second_row, complaint):
    path = write(tmp_path, "collection.tsv", f"a\ttext\n{second_row}\nc\ttext\n")
    assert refusal(iter_passages, path) == f"row 2: {complaint}"


@pytest.mark.parametrize(
    ("second_row", "complaint"),
    [
        (
            '{"_id": "b", "text": "x"',
            'found \'{"_id": "b", "text": "x"\' (Expecting \',\' delimiter: line 1 column 25 (char 24)), '
            "expected one JSON object; correct the row; each record takes one line",
        ),
        (
            "",
            "found '' (Expecting value: line 1 column 1 (char 0)), expected one JSON object; "
            "correct the row; each record takes one line",
        ),
        ("[1]", "found JSON of type array, expected one JSON object; write records as {...}, one to a line"),
        ("null", "found JSON of type null, expected one JSON object; write records as {...}, one to a line"),
        ('{"_id": "b"}', "found no key 'text' (keys: '_id'), expected the keys '_id' and 'text'; add 'text'"),
        (
            '{"id": "b", "text": "x"}',
            "found no key '_id' (keys: 'id, text'), expected the keys '_id' and 'text'; add '_id'",
        ),
        ("{}", "found no key 'text' (keys: none), expected the keys '_id' and 'text'; add 'text'"),
        ('{"_id": 7, "text": "x"}', "found '_id' of type number, expected a string; put the value of '_id' in quotes"),
        (
            '{"_id": "b", "text": null}',
            "found 'text' of type null, expected a string; put the value of 'text' in quotes",
        ),
        (
            '{"_id": "b", "title": true, "text": "x"}',
            "found 'title' of type boolean, expected a string; put the value of 'title' in quotes",
        ),
        (
            '{"_id": "b", "text": "x", "_id": "c"}',
            'found \'{"_id": "b", "text": "x", "_id": "c"}\' (the key \'_id\' twice), expected one JSON object; '
            "correct the row; each record takes one line",
        ),
        (r'{"_id": "b", "text": "x\u0000y"}', "found a NUL character, expected text; remove it"),
        (
            r'{"_id": "b\u0000", "text": "x"}',
            rf"found doc_id 'b\x00' with the invisible character U+0000, {VISIBLE}",
        ),
        ('{"_id": "", "text": "x"}', f"found an empty doc_id, {ID_FIX}"),
        (r'{"_id": "b\tc", "text": "x"}', rf"found doc_id 'b\tc' with whitespace, {ID_FIX}"),
        (
            '{"_id": "b", "title": " ", "text": ""}',
            "found an empty text, expected at least one character; remove the row",
        ),
        (
            r'{"_id": "b", "text": "x\ud800"}',
            r"found half a character (\ud800) in 'text', expected valid Unicode; remove it or write both surrogates",
        ),
    ],
)
def test_jsonl_passages_are_refused(tmp_path, second_row, complaint):
    path = write(tmp_path, "corpus.jsonl", f'{{"_id": "a", "text": "x"}}\n{second_row}\n')
    assert refusal(iter_passages, path) == f"row 2: {complaint}"


@pytest.mark.parametrize("line", ["[" * 100_000, "1" * 5_000])
def test_json_that_exhausts_the_parser_is_refused(tmp_path, line):
    complaint = refusal(iter_passages, write(tmp_path, "corpus.jsonl", line + "\n"))
    assert complaint.startswith("row 1: found ")
    assert len(complaint) < 400


@pytest.mark.parametrize(
    ("reader", "name", "complaint"),
    [
        (iter_passages, "corpus.json", "a file name ending in '.json', expected .tsv, .txt, .jsonl or .cbor"),
        (iter_passages, "corpus.csv.gz", "a file name ending in '.csv', expected .tsv, .txt, .jsonl or .cbor"),
        (iter_queries, "queries", "a file name without a suffix, expected .tsv, .txt, .jsonl or .qrels"),
        (iter_queries, "queries.gz", "a file name without a suffix, expected .tsv, .txt, .jsonl or .qrels"),
        (iter_qrels, "qrels.jsonl", "a file name ending in '.jsonl', expected .tsv, .txt or .qrels"),
    ],
)
def test_unknown_suffix_is_refused_before_the_file_is_opened(tmp_path, reader, name, complaint):
    assert refusal(reader, tmp_path / name) == f"found {complaint}, each also with .gz; rename or convert the file"


# Queries


def test_queries_of_both_forms(tmp_path):
    # Row 2 of the real dev.small queries starts with a blank.
    tsv = write(tmp_path, "queries.tsv", "1048585\twhat is paula deen's brother\n2\t Androgen receptor define\n")
    assert list(iter_queries(tsv)) == [
        (1, Text("1048585", "what is paula deen's brother")),
        (2, Text("2", "Androgen receptor define")),
    ]
    # A query has no title.
    jsonl = write(tmp_path, "queries.jsonl.gz", '{"_id": "q1", "text": " a b ", "title": "not used"}\n')
    assert list(iter_queries(jsonl)) == [(1, Text("q1", "a b"))]


def test_queries_name_their_id_in_complaints(tmp_path):
    assert refusal(iter_queries, write(tmp_path, "queries.tsv", "q 1\ttext\n")) == (
        "row 1: found query_id 'q 1' with whitespace, "
        "expected a query_id without whitespace, as run files need it; give the row another id"
    )


# Judgements


@pytest.mark.parametrize("name", ["qrels.tsv", "qrels.txt", "my.qrels", "qrels.tsv.gz", "qrels.txt.gz"])
def test_qrels_of_trec(tmp_path, name):
    # The second column of TREC DL 2019 is Q0; some tracks have negative grades.
    path = write(tmp_path, name, "q1\t0\td1\t1\nq1 Q0  d2 3\nq2 0 d1 -2\n")
    assert list(iter_qrels(path)) == [(1, Qrel("q1", "d1", 1)), (2, Qrel("q1", "d2", 3)), (3, Qrel("q2", "d1", -2))]


@pytest.mark.parametrize("name", ["test.tsv", "test.tsv.gz", "test.txt"])
def test_qrels_of_beir(tmp_path, name):
    path = write(tmp_path, name, BEIR_HEADER + "PLAIN-2\tMED-1\t2\nPLAIN-2\tMED-2\t0\n")
    assert list(iter_qrels(path)) == [(2, Qrel("PLAIN-2", "MED-1", 2)), (3, Qrel("PLAIN-2", "MED-2", 0))]


@pytest.mark.parametrize("text", ["", BEIR_HEADER])
def test_qrels_without_judgements_are_empty(tmp_path, text):
    assert list(iter_qrels(write(tmp_path, "qrels.tsv", text))) == []


HEADER_FIX = "write four columns without a header, or BEIR's three below 'query-id TAB corpus-id TAB score'"
FOUR = "expected 4 fields (query_id 0 doc_id grade)"
THREE = "expected 3 TAB-separated fields (query-id, corpus-id, score) below that header"
GRADE = "expected an integer from -1000 to 1000; write grades as integers, without a header"
BLANKS = "correct the row; ids contain no blanks"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("q.tsv", "q1\td1\t1\n", rf"row 1: found 3 fields in 'q1\td1\t1', {FOUR}; {HEADER_FIX}"),
        (
            "q.tsv",
            "query_id\tcorpus-id\tscore\n",
            rf"row 1: found 3 fields in 'query_id\tcorpus-id\tscore', {FOUR}; {HEADER_FIX}",
        ),
        ("q.tsv", "q1 0 d1 1\nq1 0 d 2 1\n", f"row 2: found 5 fields in 'q1 0 d 2 1', {FOUR}; {BLANKS}"),
        ("q.tsv", "q1 0 d1 1\n\n", f"row 2: found an empty line, {FOUR}; {BLANKS}"),
        ("q.tsv", "\t0\td1\t1\n", rf"row 1: found 3 fields in '\t0\td1\t1', {FOUR}; {HEADER_FIX}"),
        ("q.tsv", "query-id 0 corpus-id score\n", f"row 1: found the grade 'score', {GRADE}"),
        ("q.tsv", "q1 0 d1 1.0\n", f"row 1: found the grade '1.0', {GRADE}"),
        ("q.tsv", "q1 0 d1 1_0\n", f"row 1: found the grade '1_0', {GRADE}"),
        ("q.tsv", "q1 0 d1 ٣\n", f"row 1: found the grade '٣', {GRADE}"),
        ("q.tsv", "q1 0 d\u00a01 1\n", rf"row 1: found doc_id 'd\xa01' with whitespace, {ID_FIX}"),
        (
            "q.tsv",
            "q\u200d 0 d1 1\n",
            r"row 1: found query_id 'q\u200d' with the invisible character U+200D, "
            "expected a query_id of visible characters; give the row another id",
        ),
        ("q.tsv", "q1 0 d1 ²\n", f"row 1: found the grade '²', {GRADE}"),
        ("q.tsv", "q1 0 d1 9999999999\n", f"row 1: found the grade '9999999999', {GRADE}"),
        ("q.tsv", "q1 0 d1 1000\nq1 0 d2 1001\n", f"row 2: found the grade '1001', {GRADE}"),
        ("q.tsv", "q1 0 d1 -1001\n", f"row 1: found the grade '-1001', {GRADE}"),
        ("q.tsv", BEIR_HEADER + "q1\t0\td1\t1\n", rf"row 2: found 4 fields in 'q1\t0\td1\t1', {THREE}; {BLANKS}"),
        ("q.tsv", BEIR_HEADER + "q1 d1 1\n", f"row 2: found 1 fields in 'q1 d1 1', {THREE}; {BLANKS}"),
        ("q.tsv", BEIR_HEADER + "q1\td1\t\n", f"row 2: found the grade '', {GRADE}"),
        (
            "q.tsv",
            BEIR_HEADER + "q1\t\t1\n",
            "row 2: found an empty corpus-id, expected a corpus-id without whitespace, as run files need it; "
            "give the row another id",
        ),
    ],
)
def test_qrels_are_refused(tmp_path, name, text, complaint):
    assert refusal(iter_qrels, write(tmp_path, name, text)) == complaint


# Batches and duplicates


def test_record_batches_carry_the_row_of_their_first_record(monkeypatch):
    monkeypatch.setattr("cort.formats.lines.ROWS_PER_BATCH", 3)
    qrels = [(row, Qrel(f"q{row}", f"d{row}", row)) for row in range(2, 9)]
    batches = list(iter_record_batches(iter(qrels), QRELS))
    assert [(row, batch.num_rows) for row, batch in batches] == [(2, 3), (5, 3), (8, 1)]
    assert pa.Table.from_batches([batch for _, batch in batches]).to_pylist() == [q._asdict() for _, q in qrels]
    assert list(iter_record_batches(iter([]), QRELS)) == []


def test_first_duplicate_is_found_like_by_brute_force():
    for seed in range(200):
        keys = [str(value * value * (seed + 7) % (5 + seed % 40)) for value in range(1 + seed % 12)]
        chunks = pa.chunked_array([keys[: len(keys) // 2], keys[len(keys) // 2 :]], pa.string())
        repeats = [(position, keys.index(key)) for position, key in enumerate(keys) if keys.index(key) < position]
        if not repeats:
            refuse_duplicates([("f.tsv", range(1, len(keys) + 1))], chunks, "doc_id")
            continue
        again, first = repeats[0]
        with pytest.raises(InputError) as error:
            refuse_duplicates([("f.tsv", range(2, len(keys) + 2))], chunks, "doc_id")
        assert str(error.value) == (
            f"f.tsv: row {again + 2}: found doc_id {keys[again]!r} again (it is already in row {first + 2}), "
            "expected each doc_id once; remove one of the two rows"
        )


def test_no_keys_hold_no_duplicate():
    refuse_duplicates([], pa.chunked_array([], pa.string()), "doc_id")


# Real data


@needs_data
@pytest.mark.parametrize(
    ("reader", "name", "count"),
    [
        (iter_passages, "nfcorpus/collection.tsv", 3_633),
        (iter_passages, "squad/collection.tsv", 20_958),
        (iter_queries, "msmarco-meta/queries.dev.small.tsv", 6_980),
        (iter_qrels, "msmarco-meta/qrels.dev.small.tsv", 7_437),
        (iter_qrels, "msmarco-meta/qrels.dl19-passage.txt", 9_260),
        (iter_qrels, "msmarco-meta/qrels.dl20-passage.txt", 11_386),
    ],
)
def test_real_files_have_their_published_counts(reader, name, count):
    rows = [row for row, _ in reader(DATA / name)]
    assert rows == list(range(1, count + 1))


def test_ids_with_a_quotation_mark_are_refused(tmp_path):
    assert refusal(iter_passages, write(tmp_path, "p.tsv", 'a"b\ttext\n')) == (
        "row 1: found doc_id 'a\"b' with a quotation mark, "
        "expected a doc_id without any, as run files need it; give the row another id"
    )
