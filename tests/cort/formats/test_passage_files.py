"""Documents in the layouts that collections are published in."""

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cort.formats.passages import iter_passage_batches, iter_passages, iter_titled
from cort.formats.records import Text
from cort.formats.tables import PASSAGES, regroup
from cort.system.errors import InputError
from tests.support.common import refusal, write_file

DATA = Path(__file__).parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")


@pytest.mark.parametrize("name", ["collection.tsv", "collection.tsv.gz", "c"])
def test_passages_of_ms_marco(tmp_path, name):
    path = write_file(tmp_path / name, "0\tThe presence of\n\nD1\t  two  blanks “inside” \nD2\t \n\n")
    expected = [(1, Text("0", "The presence of")), (3, Text("D1", "two  blanks “inside”")), (4, Text("D2", "."))]
    assert list(iter_passages(path)) == expected


# A line of each publisher, and the passage in it.
ROWS = {
    "BEIR": (
        {"_id": "MED-1", "title": "Statin", "text": "Recent", "metadata": {"url": "x"}},
        ("MED-1", "Statin Recent"),
    ),
    "BEIR without a title": ({"_id": "2", "title": "", "text": " plain\ttext\n"}, ("2", "plain\ttext")),
    "BEIR with a title alone": ({"_id": "4", "title": "only a title", "text": ""}, ("4", "only a title")),
    "FiQA's empty ones": ({"_id": "5", "title": "", "text": ""}, ("5", ".")),
    "NanoBEIR": ({"_id": "3", "text": "no title"}, ("3", "no title")),
    "numbers and null": ({"_id": 7, "title": None, "text": "x"}, ("7", "x")),
    "null": ({"_id": "8", "title": None, "text": None}, ("8", ".")),
    "pyserini": ({"id": "7#0", "contents": "Title\nText."}, ("7#0", "Title\nText.")),
    "MIRACL": ({"docid": "7#1", "title": "T", "text": "x"}, ("7#1", "T x")),
    "MS MARCO v2": (
        {"pid": "msmarco_passage_00_0", "passage": "0-60", "spans": "(0,1)", "docid": "msmarco_doc_00_0"},
        ("msmarco_passage_00_0", "0-60"),
    ),
    "MS MARCO v2 documents": ({"url": "u", "title": "T", "headings": "H", "body": "B", "docid": "d"}, ("d", "T B")),
    "MS MARCO v2.1": ({"docid": "d#0", "url": "u", "title": "T", "headings": "H", "segment": "S"}, ("d#0", "T S")),
    "DBPedia": ({"_id": '"Weird_Al"_Yankovic', "title": "Weird", "text": "Al"}, ('"Weird_Al"_Yankovic', "Weird Al")),
    "an id with a space": ({"_id": "Weird Al", "text": "x"}, ("Weird%20Al", "x")),
}


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.json.gz", "corpus"])
def test_json_lines(tmp_path, name):
    for publisher, (record, passage) in ROWS.items():
        path = write_file(tmp_path / name, json.dumps(record) + "\n\n")
        assert list(iter_passages(path)) == [(1, passage)], publisher


def test_a_table_with_a_header_in_any_format(tmp_path):
    # Wikipedia as DPR published it, quoted like CSV.
    tsv = 'id\ttext\ttitle\n1\t"Aaron (""Ahärôn"")"\tAaron\n2\t"Al" is a singer\tAl\n'
    csv = 'id,text,title\n1,"Aaron (""Ahärôn"")",Aaron\n2,"""Al"" is a singer",Al\n'
    rows = [(2, Text("1", 'Aaron Aaron ("Ahärôn")')), (3, Text("2", 'Al "Al" is a singer'))]
    for name, data in (("psgs.tsv", tsv), ("psgs.tsv.gz", tsv), ("psgs.csv", csv), ("psgs.txt", csv)):
        assert list(iter_passages(write_file(tmp_path / name, data))) == rows
    path = tmp_path / "0000.parquet"
    columns = {"_id": [1, 2], "title": ["Aaron", None], "text": ["x", "y"], "metadata": [{"a": 1}, {"a": 2}]}
    pq.write_table(pa.table(columns), path)
    assert list(iter_passages(path)) == [(1, Text("1", "Aaron x")), (2, Text("2", "y"))]


def test_fields_that_are_named(tmp_path):
    path = write_file(tmp_path / "a.jsonl", json.dumps({"sku": 5, "name": "N", "a": "x", "b": "y", "text": "no"}))
    fields = {"id": "sku", "title": "name", "text": ("a", "b")}
    assert list(iter_titled(path, fields)) == [(1, ("5", "N", "x\n\ny"))]


TREC = """<DOC>
<DOCNO> FT911-3 </DOCNO>
<PROFILE>_AN-BEOA7AAIFT</PROFILE>
<DATE>910514
</DATE>
<HEADLINE>
FT  14 MAY 91 / CORRECT: <caf\xe9> Jubilee &amp; more
</HEADLINE>
<TEXT>
<P>First
paragraph.</P>
<P>Second.
</TEXT>
</DOC>
<DOC><DOCNO>2</DOCNO>
bare text
</DOC>
<doc><docno>3</docno></doc>
"""
SMART = """.I 1
.T
experimental investigation of the aerodynamics of a
wing in a slipstream .
.A
brenckman,m.
.B
j. ae. scs. 25, 1958, 324.
.W
experimental investigation
.5 of a wing
.I 2
.T
Preliminary Report-International Algebraic Language
.B
CACM December, 1958
.X
100	5	1
.I 471
.T
.W
"""


def test_documents_of_trec_and_smart(tmp_path):
    path = tmp_path / "ft911_1"
    path.write_bytes(TREC.encode("cp1252"))
    title = "FT 14 MAY 91 / CORRECT: Jubilee & more"
    expected = [(1, ("FT911-3", title, "First paragraph. Second.")), (15, ("2", "", "bare text")), (18, ("3", "", ""))]
    assert list(iter_titled(path)) == expected
    # The Federal Register has comments.
    commented = (
        "<DOC>\n<DOCNO> FR94-1 </DOCNO>\n<TEXT>\n<!-- PJG STAG 4700 -->\nOne <!-- PJG /STAG --> two.\n</TEXT>\n</DOC>\n"
    )
    assert list(iter_titled(write_file(tmp_path / "fr94", commented))) == [(1, ("FR94-1", "", "One two."))]
    path = write_file(tmp_path / "cran.all.1400", SMART)
    assert [passage for _, passage in iter_passages(path)] == [
        (
            "1",
            "experimental investigation of the aerodynamics of a wing in a slipstream . "
            "experimental investigation .5 of a wing",
        ),
        ("2", "Preliminary Report-International Algebraic Language"),
        ("471", "."),
    ]


ID = "give the row an id"
TEXT, IDS = "text or contents or passage or body or segment", "_id or id or pid or docid or doc_id or docno"


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        ("b", "found 1 TAB-separated fields, expected 2 fields (doc_id TAB text); separate id and text by one TAB"),
        ("b\tx\ty", "found 3 TAB-separated fields, expected 2 fields (doc_id TAB text); separate id and text by one"),
        (" \ttext", "found an empty doc_id, expected a doc_id without"),
        ("b\tx\x00", "found a NUL byte at byte 4, expected text; remove it, or name a file of text"),
    ],
)
def test_rows_of_ms_marco_are_refused(tmp_path, second, complaint):
    message = refusal(iter_passages, write_file(tmp_path / "collection.tsv", f"a\ttext\n{second}\nc\ttext\n"))
    assert message.startswith(f"row 2: {complaint}")


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        ('{"_id": 1', """found '{"_id": 1' (Expecting ',' delimiter: line 1 column 10 (char 9)), expected one JSON"""),
        ("[1]", "found '[1]', expected one JSON object; write records as {...}, one per line"),
        ('{"_id": "b"}', f"found no {TEXT} among the fields '_id', expected one of"),
        ('{"name": 1, "text": "x"}', f"found no {IDS} among the fields 'name, text'"),
        ('{"_id": true, "text": "x"}', f"found the doc_id True, expected text or a whole number; {ID}"),
        ('{"_id": "b", "title": true, "text": "x"}', "found True as title, expected text; correct or remove the row"),
        (r'{"_id": "b", "text": "x\u0000y"}', "found a NUL character, expected text; remove it"),
        ('{"_id": "", "text": "x"}', "found an empty doc_id, expected a doc_id without"),
        (r'{"_id": "b", "text": "x\ud800"}', r"found half a character (\ud800) in 'text', expected valid Unicode; rem"),
        ("[" * 100_000, "found "),
        ("1" * 5_000, "found "),
    ],
)  # fmt: skip
def test_json_lines_are_refused(tmp_path, second, complaint):
    message = refusal(iter_passages, write_file(tmp_path / "corpus.jsonl", f'{{"_id": "a", "text": "x"}}\n{second}\n'))
    assert message.startswith(f"row 2: {complaint}")
    assert len(message) < 400


def test_damaged_tables_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"_id": ["a"], "text": ["x"]}), path)
    path.write_bytes(path.read_bytes()[:-20])
    assert refusal(iter_passages, path).endswith("expected a complete parquet file; fetch it again")
    message = refusal(iter_passages, write_file(tmp_path / "a.csv", 'id,text\n1,x\n2,"y\n3,z\n'))
    assert message.startswith("row 3: found broken CSV from here on (unexpected end of data), expected")
    message = refusal(iter_passages, write_file(tmp_path / "a.tsv", "id\ttext\n1\tx\ty\n"))
    assert message == "row 2: found 3 fields, expected 2, as the header has; separate fields as the header does"


PLAIN = [b"%d\ttext of passage %d" % (number, number) for number in range(40)]
ODD = [
    *(b"a\t  blanks around\x1f ", b"b\t\xc2\xa0no-break space\xe2\x80\x83", b'd\t"quoted", and a comma', b"h\tNA"),
    *(b"e\tback\\slash and escape \x1b inside", b"ids\ttext", b"id\ttexts", b"k\tcrlf\r", b"j\ta lone \r inside"),
    *("c\tdéjà vu, naïve".encode(), "f\tline\u2028separator\x85".encode(), "g\u00e9\tan id beyond ASCII".encode()),
    *(b"i\tnull", b"two words\ttext", b'quo"ted\ttext', b"l\t   ", b"m\t", b"", b"  ", b"escape\x1b\ttext"),
    *(b"no\xc2\xa0break\ttext", b"zero\xe2\x80\x8bwidth\ttext", b"\xef\xbb\xbfmarked\ttext"),
]
BAD = [b"only an id", b"a\tb\tc", b"\tno id", b"j\tNUL \x00 inside", b"j\tbad \xff byte"]


def outcome(read):
    """Return all records, or the error message."""
    try:
        return [tuple(record.values()) if isinstance(record, dict) else tuple(record) for record in read()]
    except InputError as error:
        return str(error)


def in_both_ways(path, block_bytes):
    """Check that both readers return the same, and return that."""
    slow = outcome(lambda: [passage for _, passage in iter_passages(path)])
    batches = iter_passage_batches(path, block_bytes=block_bytes)
    fast = outcome(lambda: pa.Table.from_batches(batches, PASSAGES).to_pylist())
    assert fast == slow
    return fast


def test_batches_hold_what_single_lines_hold(tmp_path):
    for seed in range(60):
        generator = random.Random(seed)  # noqa: S311 - a test, not a secret
        lines = [generator.choice(PLAIN if generator.random() < 0.8 else ODD) for _ in range(generator.randrange(60))]
        if seed % 3 == 0:
            lines.insert(generator.randrange(len(lines) + 1), generator.choice(BAD))
        data = b"\n".join(lines) + (b"\n" if lines and generator.random() < 0.5 else b"")
        path = write_file(tmp_path / ("c.tsv.gz" if seed % 5 == 0 else "c.tsv"), data)
        in_both_ways(path, generator.choice([1, 50, 300, 1 << 20]))


@pytest.mark.parametrize("block_bytes", [200, 1 << 20])
def test_rows_are_counted_across_blocks_and_line_ends_change_no_record(tmp_path, block_bytes):
    path = tmp_path / "c.tsv"
    for line in BAD:
        path.write_bytes(b"\n".join([*PLAIN, line, *PLAIN]) + b"\n")
        assert "row 41: " in in_both_ways(path, block_bytes)
    expected = [tuple(line.decode().split("\t")) for line in PLAIN]
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + b"\r\n".join(PLAIN) + b"\r\n")
        assert in_both_ways(path, block_bytes) == expected


def test_regrouped_tables_have_the_requested_rows():
    rows = [pa.record_batch({"a": list(range(start, start + n))}) for start, n in [(0, 3), (3, 8), (11, 1), (12, 4)]]
    tables = list(regroup(rows, 5))
    assert [table.num_rows for table in tables] == [5, 5, 5, 1]
    assert [row for table in tables for row in table["a"].to_pylist()] == list(range(16))
    assert list(regroup([], 5)) == []


@needs_data
@pytest.mark.parametrize(("name", "count"), [("squad", 20_958), ("nfcorpus", 3_633), ("msmarco-sample", 30_005)])
def test_real_collections_are_read_alike(name, count):
    assert len(in_both_ways(DATA / name / "collection.tsv", 1 << 18)) == count


@needs_data
def test_vaswani_is_read_as_published(tmp_path):
    path = DATA / "vaswani" / "doc-text.trec"
    passages = [passage for _, passage in iter_passages(path)]
    assert [int(doc_id) for doc_id, _ in passages] == list(range(1, 11_430))
    assert passages[0].text.startswith("compact memories have flexible capacities a digital data")
    packed = tmp_path / "docs.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [passage for _, passage in iter_passages(packed)] == passages
