import json
import random
import re
from pathlib import Path

import pyarrow as pa
import pytest

from cort.formats import raw
from cort.formats.lines import iter_record_batches
from cort.formats.records import Qrel, Text
from cort.formats.tables import PASSAGES, QRELS, regroup
from cort.system.errors import InputError, shorten
from tests.support.common import ROOT, refusal, write_file

DATA = Path(__file__).parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")

BEIR_HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.mark.parametrize("name", ["collection.tsv", "collection.tsv.gz", "my.v2.tsv", "c.txt"])
def test_passages_of_ms_marco(tmp_path, name):
    path = write_file(tmp_path / name, "0\tThe presence of\nD1\t  two  blanks “inside” \n")
    assert list(raw.iter_passages(path)) == [(1, Text("0", "The presence of")), (2, Text("D1", "two  blanks “inside”"))]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_passages_of_beir(tmp_path, name):
    records = [
        {"_id": "MED-1", "title": "Statin use", "text": "Recent studies", "metadata": {"url": "x"}},
        {"_id": "2", "title": "", "text": " plain\ttext\n"},
        {"_id": "3", "text": "no title"},
        {"_id": "4", "title": "only a title", "text": ""},
    ]
    path = write_file(tmp_path / name, "".join(json.dumps(record) + "\n" for record in records))
    texts = ["Statin use Recent studies", "plain\ttext", "no title", "only a title"]
    assert list(raw.iter_passages(path)) == [
        (row, Text(record["_id"], text)) for row, (record, text) in enumerate(zip(records, texts, strict=True), 1)
    ]


def test_queries_of_both_formats(tmp_path):
    # Row 2 of the real dev.small queries starts with a blank.
    tsv = write_file(tmp_path / "queries.tsv", "1048585\twhat is paula deen's brother\n2\t Androgen receptor define\n")
    expected = [Text("1048585", "what is paula deen's brother"), Text("2", "Androgen receptor define")]
    assert list(raw.iter_queries(tsv)) == list(enumerate(expected, 1))
    # A query has no title.
    jsonl = write_file(tmp_path / "queries.jsonl.gz", '{"_id": "q1", "text": " a b ", "title": "not used"}\n')
    assert list(raw.iter_queries(jsonl)) == [(1, Text("q1", "a b"))]
    line = refusal(raw.iter_queries, write_file(tmp_path / "queries.tsv", "q 1\ttext\n"))
    assert line.startswith("row 1: found query_id 'q 1' with whitespace, expected a query_id without whitespace")


def test_a_text_without_tabs_has_a_query_per_row(tmp_path, caplog):
    caplog.set_level("INFO")
    path = write_file(tmp_path / "questions.txt", "\n what is BM25?\r\n  \n1 2\n\nwhat is BM25?")
    expected = {2: "what is BM25?", 4: "1 2", 6: "what is BM25?"}
    assert list(raw.iter_queries(path)) == [(row, Text(str(row), text)) for row, text in expected.items()]
    assert caplog.messages[-1] == f"{path}: empty rows skipped: 3"
    # With ids, rows may be empty, too.
    path = write_file(tmp_path / "queries.txt.gz", "\nq1\ta\n\nq2\tb\n")
    assert list(raw.iter_queries(path)) == [(2, Text("q1", "a")), (4, Text("q2", "b"))]
    assert list(raw.iter_queries(write_file(tmp_path / "empty.txt", "\n \n"))) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\na\nb\nc\td\n", "row 4: found a TAB, expected no TAB, as in row 2"),
        ("q1\ta\n\nb\n", "row 3: found no TAB, expected a TAB, as in row 1"),
    ],
)
def test_queries_with_and_without_ids_are_not_mixed(tmp_path, text, found):
    line = refusal(raw.iter_queries, write_file(tmp_path / "questions.txt", text))
    assert line == f"{found}; write 'query_id TAB text' in every row, or one query per row without a TAB"


@pytest.mark.parametrize(
    "text",
    [
        "<top>\n<num>1</num><title>\nMEASUREMENT OF DIELECTRIC CONSTANT\n</title>\n</top>\n",
        "<topics task='covid'>\n",
        '<topic number="1">\n',
        "<DOC>\n<DOCNO>1</DOCNO>\n",
        '<?xml version="1.0"?>\n',
        "<!-- topics -->\n",
        ".I 001\n.W\nwhat similarity laws must be obeyed\n",
        '{"_id": "1", "text": "what is BM25"}\n',
    ],
)
def test_topics_and_records_are_not_read_as_a_query_per_row(tmp_path, text):
    line = refusal(raw.iter_queries, write_file(tmp_path / "questions.txt", f"\n{text}"))
    assert line.startswith(f"row 2: found {shorten(text.splitlines()[0])}, which begins topics or records, expected a")
    assert line.endswith("; write 'query_id TAB text' in every row, or a JSON object with _id and text in a .jsonl")
    # A question may be about tags.
    asked = ["<topless> in HTML", ".Input of a shell", "x", text.splitlines()[0]]
    path = write_file(tmp_path / "asked.txt", "\n".join(asked))
    assert [query.text for _, query in raw.iter_queries(path)] == asked


TWO = "expected 2 fields (doc_id TAB text); separate id and text by one TAB and leave no other TAB in the row"
VISIBLE = "expected a doc_id of visible characters; give the row another id"
ID_FIX = "expected a doc_id without whitespace, as run files need it; give the row another id"
HEADER = "expected only rows of doc_id TAB text; remove the header row"
EMPTY = "found an empty text, expected at least one character; remove the row"


@pytest.mark.parametrize(
    ("second_row", "complaint"),
    [
        ("b", f"found 1 TAB-separated fields, {TWO}"),
        ("b\tx\ty", f"found 3 TAB-separated fields, {TWO}"),
        ("", f"found an empty line, {TWO}"),
        ("\ttext", f"found an empty doc_id, {ID_FIX}"),
        (" \ttext", f"found an empty doc_id, {ID_FIX}"),
        ("b c\ttext", f"found doc_id 'b c' with whitespace, {ID_FIX}"),
        (" b\ttext", f"found doc_id ' b' with whitespace, {ID_FIX}"),
        ("b\u00a0\ttext", rf"found doc_id 'b\xa0' with whitespace, {ID_FIX}"),
        ("id\ttext", rf"found the header 'id\ttext', {HEADER}"),
        ("Query_ID\t passage ", rf"found the header 'Query_ID\t passage ', {HEADER}"),
        ("b\u200b\tx", rf"found doc_id 'b\u200b' with the invisible character U+200B, {VISIBLE}"),
        ("b\x1b\tx", rf"found doc_id 'b\x1b' with the invisible character U+001B, {VISIBLE}"),
        ("b\ufeff\tx", rf"found doc_id 'b\ufeff' with the invisible character U+FEFF, {VISIBLE}"),
        ("b\tx\x00", "found a NUL byte at byte 4, expected text; remove it, or name a file of text"),
        ("b\t", EMPTY),
        ("b\t \u00a0", EMPTY),
        ('b"c\tx', f"found doc_id 'b\"c' with a quotation mark, {ID_FIX.replace('whitespace', 'one')}"),
    ],
)
def test_tsv_passages_are_refused(tmp_path, second_row, complaint):
    path = write_file(tmp_path / "collection.tsv", f"a\ttext\n{second_row}\nc\ttext\n")
    assert refusal(raw.iter_passages, path) == f"row 2: {complaint}"


ONE_OBJECT = "expected one JSON object; correct the row; each record takes one line"
KEYS, QUOTES = "expected the keys '_id' and 'text'", "expected a string; put the value of"
OBJECTS = "expected one JSON object; write records as {...}, one per line"


@pytest.mark.parametrize(
    ("second_row", "complaint"),
    [
        ('{"_id": 1', f"""found '{{"_id": 1' (Expecting ',' delimiter: line 1 column 10 (char 9)), {ONE_OBJECT}"""),
        ("", f"found '' (Expecting value: line 1 column 1 (char 0)), {ONE_OBJECT}"),
        ("[1]", f"found JSON of type array, {OBJECTS}"),
        ("null", f"found JSON of type null, {OBJECTS}"),
        ('{"_id": "b"}', f"found no key 'text' (keys: '_id'), {KEYS}; add 'text'"),
        ('{"id": 1, "text": "x"}', f"found no key '_id' (keys: 'id, text'), {KEYS}; add '_id'"),
        ("{}", f"found no key 'text' (keys: none), {KEYS}; add 'text'"),
        ('{"_id": 7, "text": "x"}', f"found '_id' of type number, {QUOTES} '_id' in quotes"),
        ('{"_id": "b", "text": null}', f"found 'text' of type null, {QUOTES} 'text' in quotes"),
        ('{"_id": "b", "title": true, "text": "x"}', f"found 'title' of type boolean, {QUOTES} 'title' in quotes"),
        ('{"_id": "b", "_id": "c"}', f"""found '{{"_id": "b", "_id": "c"}}' (the key '_id' twice), {ONE_OBJECT}"""),
        (r'{"_id": "b", "text": "x\u0000y"}', "found a NUL character, expected text; remove it"),
        (r'{"_id": "b\u0000", "text": "x"}', rf"found doc_id 'b\x00' with the invisible character U+0000, {VISIBLE}"),
        ('{"_id": "", "text": "x"}', f"found an empty doc_id, {ID_FIX}"),
        (r'{"_id": "b\tc", "text": "x"}', rf"found doc_id 'b\tc' with whitespace, {ID_FIX}"),
        ('{"_id": "b", "title": " ", "text": ""}', EMPTY),
        (
            r'{"_id": "b", "text": "x\ud800"}',
            r"found half a character (\ud800) in 'text', expected valid Unicode; remove it or write both surrogates",
        ),
    ],
)  # fmt: skip
def test_jsonl_passages_are_refused(tmp_path, second_row, complaint):
    path = write_file(tmp_path / "corpus.jsonl", f'{{"_id": "a", "text": "x"}}\n{second_row}\n')
    assert refusal(raw.iter_passages, path) == f"row 2: {complaint}"


@pytest.mark.parametrize("line", ["[" * 100_000, "1" * 5_000])
def test_json_that_exhausts_the_parser_is_refused(tmp_path, line):
    complaint = refusal(raw.iter_passages, write_file(tmp_path / "corpus.jsonl", line + "\n"))
    assert complaint.startswith("row 1: found ")
    assert len(complaint) < 400


@pytest.mark.parametrize(
    ("reader", "name", "complaint"),
    [
        (raw.iter_passages, "corpus.json", "a file name ending in '.json', expected .tsv, .txt or .jsonl"),
        (raw.iter_passages, "corpus.csv.gz", "a file name ending in '.csv', expected .tsv, .txt or .jsonl"),
        (raw.iter_queries, "queries", "a file name without a suffix, expected .tsv, .txt, .jsonl or .qrels"),
        (raw.iter_queries, "queries.gz", "a file name without a suffix, expected .tsv, .txt, .jsonl or .qrels"),
        (raw.iter_qrels, "qrels.jsonl", "a file name ending in '.jsonl', expected .tsv, .txt or .qrels"),
    ],
)
def test_an_unknown_suffix_is_refused_before_the_file_is_opened(tmp_path, reader, name, complaint):
    assert refusal(reader, tmp_path / name) == f"found {complaint}, each also with .gz; rename or convert the file"


@pytest.mark.parametrize("name", ["qrels.tsv", "qrels.txt", "my.qrels", "qrels.tsv.gz"])
def test_qrels_of_trec(tmp_path, name):
    # The second column of TREC DL 2019 is Q0; some tracks have negative grades.
    path = write_file(tmp_path / name, "q1\t0\td1\t1\nq1 Q0  d2 3\nq2 0 d1 -2\n")
    assert list(raw.iter_qrels(path)) == [(1, Qrel("q1", "d1", 1)), (2, Qrel("q1", "d2", 3)), (3, Qrel("q2", "d1", -2))]


@pytest.mark.parametrize("name", ["test.tsv", "test.tsv.gz", "test.txt"])
def test_qrels_of_beir(tmp_path, name):
    path = write_file(tmp_path / name, BEIR_HEADER + "PLAIN-2\tMED-1\t2\nPLAIN-2\tMED-2\t0\n")
    assert list(raw.iter_qrels(path)) == [(2, Qrel("PLAIN-2", "MED-1", 2)), (3, Qrel("PLAIN-2", "MED-2", 0))]


@pytest.mark.parametrize("text", ["", BEIR_HEADER])
def test_qrels_without_judgements_are_empty(tmp_path, text):
    assert list(raw.iter_qrels(write_file(tmp_path / "qrels.tsv", text))) == []


HEADER_FIX = "write four columns without a header, or BEIR's three below 'query-id TAB corpus-id TAB score'"
FOUR = "expected 4 fields (query_id 0 doc_id grade)"
THREE = "expected 3 TAB-separated fields (query-id, corpus-id, score) below that header"
GRADE = "expected an integer from -1000 to 1000; write grades as integers, without a header"
OF_QUERY = VISIBLE.replace("doc_id", "query_id")
BLANKS = "correct the row; ids contain no spaces"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("q1\td1\t1\n", rf"row 1: found 3 fields in 'q1\td1\t1', {FOUR}; {HEADER_FIX}"),
        ("query_id\tcorpus-id\tx\n", rf"row 1: found 3 fields in 'query_id\tcorpus-id\tx', {FOUR}; {HEADER_FIX}"),
        ("q1 0 d1 1\nq1 0 d 2 1\n", f"row 2: found 5 fields in 'q1 0 d 2 1', {FOUR}; {BLANKS}"),
        ("q1 0 d1 1\n\n", f"row 2: found an empty line, {FOUR}; {BLANKS}"),
        ("\t0\td1\t1\n", rf"row 1: found 3 fields in '\t0\td1\t1', {FOUR}; {HEADER_FIX}"),
        *(
            (f"q1 0 d0 1000\nq1 0 d1 {grade}\n", f"row 2: found the grade '{grade}', {GRADE}")
            for grade in ("score", "1.0", "1_0", "٣", "²", "9999999999", "1001", "-1001")
        ),
        ("q1 0 d\u00a01 1\n", rf"row 1: found doc_id 'd\xa01' with whitespace, {ID_FIX}"),
        ("q\u200d 0 d1 1\n", rf"row 1: found query_id 'q\u200d' with the invisible character U+200D, {OF_QUERY}"),
        (BEIR_HEADER + "q1\t0\td1\t1\n", rf"row 2: found 4 fields in 'q1\t0\td1\t1', {THREE}; {BLANKS}"),
        (BEIR_HEADER + "q1 d1 1\n", f"row 2: found 1 fields in 'q1 d1 1', {THREE}; {BLANKS}"),
        (BEIR_HEADER + "q1\td1\t\n", f"row 2: found the grade '', {GRADE}"),
        (BEIR_HEADER + "q1\t\t1\n", f"row 2: found an empty corpus-id, {ID_FIX.replace('doc_id', 'corpus-id')}"),
    ],
)
def test_qrels_are_refused(tmp_path, text, complaint):
    assert refusal(raw.iter_qrels, write_file(tmp_path / "q.tsv", text)) == complaint


QUOTED = {
    "d1": "Quick Answer. One cubic inch of aluminum weighs 1.56 ounces. The metal sinks.",
    "d2": "One cubic inch of aluminum weighs 1.56 ounces.",
    "d3": "quick answer:  one cubic INCH of “aluminum” weighs 1.56 ounces",
    "d4": "Quick Answer. One cubic inch of iron",
}


def batches(texts):
    table = pa.table({"doc_id": list(texts), "text": list(texts.values())}, schema=PASSAGES)
    return table.to_batches(max_chunksize=2)


def quotations(tmp_path, *records):
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
    assert list(raw.iter_quoted(quotations(tmp_path, *records), batches(QUOTED))) == expected
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
    message = refusal(lambda path: raw.iter_quoted(path, batches(QUOTED)), quotations(tmp_path, line))
    assert message.startswith("row 1: ")
    assert complaint in message


def test_the_name_of_a_file_tells_quotations():
    assert [raw.is_quoted(name) for name in ("a.jsonl", "a.jsonl.gz", "a.tsv", "a.qrels")] == [True, True, False, False]


def test_the_examples_of_cort_are_quoted():
    """The beginnings of the paper's table as text, with signs and blanks that a copy may have changed."""
    texts = {
        "boat": "Question and answer. how much does a western 14 ft. aluminum boat weigh? what is",
        "ounces": "Quick Answer.  One cubic inch of aluminum weighs 1.56 ounces. The metal",
        "legally": "Although there are many articles stating one can be declared legally insane if... How long",
        "record": "The longest recorded time a human has ever gone without sleep is 18 days, 21 hours, and 40 minutes",
    }
    for path in sorted((ROOT / "config" / "ablations" / "table-6").glob("*.jsonl")):
        ((_, qrel),) = raw.iter_quoted(path, batches(texts))
        assert (qrel.doc_id, qrel.relevance) == (path.stem, 1)


PLAIN = [b"%d\ttext of passage %d" % (number, number) for number in range(40)]
ODD = [
    *(b"a\t  blanks around\x1f ", b"b\t\xc2\xa0no-break space\xe2\x80\x83", b'd\t"quoted", and a comma', b"h\tNA"),
    *(b"e\tback\\slash and escape \x1b inside", b"ids\ttext", b"id\ttexts", b"k\tcrlf\r", b"j\ta lone \r inside"),
    *("c\tdéjà vu, naïve".encode(), "f\tline\u2028separator\x85".encode(), "g\u00e9\tan id beyond ASCII".encode()),
    b"i\tnull",
]
BAD = [
    *(b"", b"only an id", b"a\tb\tc", b"\tno id", b"two words\ttext", b'quo"ted\ttext', b"j\t   ", b"j\t"),
    *(b"j\tNUL \x00 inside", b"DOC_ID\tText", b"zero\xe2\x80\x8bwidth\ttext", b"\xef\xbb\xbfmarked\ttext"),
    *(b"escape\x1b\ttext", b"j\tbad \xff byte", b"no\xc2\xa0break\ttext"),
]


def outcome(read):
    """Return all records, or the error message."""
    try:
        return [tuple(record.values()) if isinstance(record, dict) else tuple(record) for record in read()]
    except InputError as error:
        return str(error)


def in_both_ways(path, block_bytes):
    """Check that both readers return the same, and return that."""
    slow = outcome(lambda: [passage for _, passage in raw.iter_passages(path)])
    fast = outcome(lambda: pa.Table.from_batches(raw.iter_passage_batches(path, block_bytes), PASSAGES).to_pylist())
    assert fast == slow
    return fast


@pytest.mark.parametrize("seed", range(60))
def test_batches_hold_what_single_lines_hold(tmp_path, seed):
    generator = random.Random(seed)  # noqa: S311 - a test, not a secret
    lines = [generator.choice(PLAIN if generator.random() < 0.8 else ODD) for _ in range(generator.randrange(60))]
    if seed % 3 == 0:
        lines.insert(generator.randrange(len(lines) + 1), generator.choice(BAD))
    data = b"\n".join(lines) + (b"\n" if lines and generator.random() < 0.5 else b"")
    path = write_file(tmp_path / ("c.tsv.gz" if seed % 5 == 0 else "c.tsv"), data)
    in_both_ways(path, generator.choice([1, 50, 300, 1 << 20]))


@pytest.mark.parametrize("block_bytes", [1, 200, 1 << 20])
def test_rows_are_counted_across_blocks_and_line_ends_change_no_record(tmp_path, block_bytes):
    path = tmp_path / "c.tsv"
    for line in BAD:
        path.write_bytes(b"\n".join([*PLAIN, line, *PLAIN]) + b"\n")
        assert "row 41: " in in_both_ways(path, block_bytes)
    expected = [tuple(line.decode().split("\t")) for line in PLAIN]
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + b"\r\n".join(PLAIN) + b"\r\n")
        assert in_both_ways(path, block_bytes) == expected


def test_records_are_gathered_into_batches(monkeypatch):
    monkeypatch.setattr("cort.formats.lines.ROWS_PER_BATCH", 3)
    qrels = [(row, Qrel(f"q{row}", f"d{row}", row)) for row in range(2, 9)]
    gathered = list(iter_record_batches(iter(qrels), QRELS))
    assert [batch.num_rows for batch in gathered] == [3, 3, 1]
    assert pa.Table.from_batches(gathered).to_pylist() == [qrel._asdict() for _, qrel in qrels]
    assert list(iter_record_batches(iter([]), QRELS)) == []


def test_regrouped_tables_have_the_requested_rows():
    rows = [pa.record_batch({"a": list(range(start, start + n))}) for start, n in [(0, 3), (3, 8), (11, 1), (12, 4)]]
    tables = list(regroup(rows, 5))
    assert [table.num_rows for table in tables] == [5, 5, 5, 1]
    assert [row for table in tables for row in table["a"].to_pylist()] == list(range(16))
    assert list(regroup([], 5)) == []


def keys_of(seed):
    return [str(value * value * (seed + 7) % (5 + seed % 40)) for value in range(1 + seed % 12)]


@pytest.mark.parametrize(
    "keys",
    [["1", "2", "10", "11"], ["2", "1"], ["01", "1"], ["1", "2", "2"], ["1", "a", "1"], [], *map(keys_of, range(50))],
)
def test_the_first_duplicate_is_found_as_by_brute_force(keys):
    chunks = pa.chunked_array([keys[: len(keys) // 2], [], keys[len(keys) // 2 :]], pa.string())
    repeats = [(position, keys.index(key)) for position, key in enumerate(keys) if keys.index(key) < position]
    parts = [("f.tsv", range(2, len(keys) + 2))]
    if not repeats:
        raw.refuse_duplicates(parts, chunks, "doc_id")
        return
    again, first = repeats[0]
    with pytest.raises(InputError) as error:
        raw.refuse_duplicates(parts, chunks, "doc_id")
    assert str(error.value) == (
        f"f.tsv: row {again + 2}: found doc_id {keys[again]!r} again (it is already in row {first + 2}), "
        "expected each doc_id once; remove one of the two rows"
    )


@needs_data
@pytest.mark.parametrize(
    ("reader", "name", "count"),
    [
        (raw.iter_queries, "msmarco-meta/queries.dev.small.tsv", 6_980),
        (raw.iter_qrels, "msmarco-meta/qrels.dev.small.tsv", 7_437),
        (raw.iter_qrels, "msmarco-meta/qrels.dl19-passage.txt", 9_260),
        (raw.iter_qrels, "msmarco-meta/qrels.dl20-passage.txt", 11_386),
    ],
)
def test_real_files_have_their_published_counts(reader, name, count):
    assert [row for row, _ in reader(DATA / name)] == list(range(1, count + 1))


@needs_data
@pytest.mark.parametrize(("name", "count"), [("squad", 20_958), ("nfcorpus", 3_633), ("msmarco-sample", None)])
def test_real_collections_are_read_alike(name, count):
    passages = in_both_ways(DATA / name / "collection.tsv", 1 << 18)
    assert len(passages) == count or (count is None and len(passages) > 3_000)
