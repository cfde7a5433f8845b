"""Raw files with a mistake: each is refused in one short line that names the row and what was found there."""

import gzip
import json
import re
from functools import partial

import pytest

from cort.formats.expansions import iter_predictions
from cort.formats.judgements import iter_qrels, read_judged
from cort.formats.lines import iter_lines
from cort.formats.passages import iter_passages
from cort.formats.runs import read_run
from cort.formats.tables import PASSAGES
from cort.formats.topics import iter_queries
from tests.support.archives import PACKERS, tar_of, zip_of
from tests.support.common import refusal, table_of

PASSAGE = table_of(PASSAGES, [("b", "Short.")]).to_batches()
READERS = {"lines": iter_lines, "passages": iter_passages, "queries": iter_queries, "qrels": iter_qrels}
READERS |= {"run": read_run, "narratives": partial(iter_queries, field="narrative"), "predictions": iter_predictions}
READERS |= {"judged": lambda path: read_judged(path, PASSAGE, None)[0]}
READERS |= {f"{number} samples": partial(iter_predictions, samples=number) for number in (1, 2, 3, 4)}


def passages(line):
    return f'{{"_id": "a", "text": "x"}}\n{line}\n'


def judged(*line, **changes):
    good = {"query_id": "q", "doc_id": "b", "text": "Short.", "relevance": 1}
    return json.dumps(good) + "\n" + (line[0] if line else json.dumps(good | changes)) + "\n"


def run(lines):
    return b"2 Q0 b 2 0.5 x\n1 Q0 c 9 -1e-3 x\n2 Q0 a 3 0.5 x\n2 Q0 c 1 7 x\n" + lines


def ranked(*queries):
    """A run of queries, each a text of its scores in the order of the ranks."""
    rows = (
        (query, rank, score) for query, scores in enumerate(queries) for rank, score in enumerate(scores.split(), 1)
    )
    return "".join(f"{query} Q0 d{rank} {rank} {score} x\n" for query, rank, score in rows)


def samples(**changed):
    """Three samples of two parts of two lines; `changed` replaces the text of a file, None drops it."""
    parts = [(sample, part) for sample in range(3) for part in range(2)]
    files = {f"x_sample00{s}.txt00{p}-1004000": changed.get(f"s{s}p{p}", "1\n2\n") for s, p in parts}
    return zip_of(*((name, text) for name, text in files.items() if text is not None))


def damaged(kind):
    data = PACKERS[kind]
    return data(b"".join(b"%d\ttext\n" % row for row in range(20_000)))[:-1000]


BEIR = "query-id\tcorpus-id\tscore\n"
WEB = '<topics>\n<topic number="1">\n<query>x</query>\n<description>y</description>\n</topic></topics>\n'
GZIP, TAR, ZIP = gzip.compress(b"1\ta\n", mtime=0), tar_of(("p", "1\n")), zip_of(("x_sample0.txt0", "1\n"))
DISTANCES = "found scores that rise with the rank, as distances do, in "
GRADES, SCORES = ("score", "1.5", "٣", "1001", "-1001", "nan"), ("high", "nan", "1e999", "1_0", "٣")
# fmt: off
REFUSED = [
    ("lines", b"1\ta\n2\ta\x00b\n", "row 2: found a NUL byte at byte 4"),
    ("lines", b"1\ta\n2\tcaf\xe9 au lait s'il\n", r"row 2: found invalid UTF-8 at byte 6 ('2\tcaf\\xe9 au lait s')"),
    ("lines", "1\ta\n".encode("utf-16-le"), "found UTF-16 or UTF-32 text without a byte order mark"),
    ("lines", "1\ta\n".encode("utf-32-be"), "found UTF-16 or UTF-32 text without a byte order mark"),
    ("lines", b"PK\x03\x04\x14\x00\n", "found a zip archive"),
    *(("lines", damaged(kind), "found unreadable bytes after row ") for kind in ("gzip", "bzip2", "xz", "zstd")),
    ("lines", GZIP[:-8] + bytes([GZIP[-8] ^ 1]) + GZIP[-7:], "found unreadable bytes after row 1 (CRC check"),
    ("passages", "a\ttext\nb\nc\ttext\n", "row 2: found 1 TAB-separated fields, expected 2 fields"),
    ("passages", "a\ttext\nb\tx\ty\nc\ttext\n", "row 2: found 3 TAB-separated fields, expected 2 fields"),
    ("passages", "a\ttext\n \ttext\n", "row 2: found an empty doc_id"),
    ("passages", "a\ttext\nb\tx\x00\n", "row 2: found a NUL byte at byte 4"),
    ("passages", "id\ttext\n1\tx\ty\n", "row 2: found 3 fields, expected 2"),
    ("passages.csv", 'id,text\n1,x\n2,"y"z,w\n3,z\n', "row 3: found quotes in the wrong place"),
    ("passages", passages('{"_id": 1'), """row 2: found '{"_id": 1' (Expecting ',' delimiter: line 1 column 10"""),
    ("passages", passages("[1]"), "row 2: found '[1]', expected one JSON object"),
    ("passages", passages('{"_id": "b"}'), "row 2: found no text or "),
    ("passages", passages('{"name": 1, "text": "x"}'), "row 2: found no _id or id or "),
    ("passages", passages('{"_id": true, "text": "x"}'), "row 2: found the doc_id True"),
    ("passages", passages('{"_id": NaN, "text": "x"}'), "row 2: found the doc_id nan, expected a string or an integer"),
    ("passages", passages('{"_id": "b", "title": true, "text": "x"}'), "row 2: found True as title"),
    ("passages", passages(r'{"_id": "b", "text": "x\u0000y"}'), "row 2: found a NUL character"),
    ("passages", passages('{"_id": "", "text": "x"}'), "row 2: found an empty doc_id"),
    ("passages", passages(r'{"_id": "b", "text": "x\ud800"}'), r"row 2: found half a character (\ud800) in 'text'"),
    ("passages", passages("[" * 100_000), "row 2: found "),
    ("passages", passages("1" * 5_000), "row 2: found "),
    ("narratives", WEB, "row 2: found a topic with query, description alone"),
    ("queries", "<top>\n<title>x</title>\n</top>", "row 1: found an empty query_id"),
    ("queries", "\na\nb\nc\td\n", "row 4: found a TAB, expected no TAB, as in row 2"),
    ("queries", "q1\ta\n\nb\n", "row 3: found no TAB, expected a TAB, as in row 1"),
    ("queries.qrels", "enwiki:Aftertaste 0 d1 1\n42 0 d2 1\n", "row 2: found the topic '42'"),
    ("qrels", '{"query_id": "q", "doc_id": "d", "score": NaN}\n', "row 1: found the grade 'nan'"),
    ("qrels", "q1\td1\n", r"row 1: found 2 fields in 'q1\td1', expected 4 fields (query_id 0 doc_id grade)"),
    ("qrels", "query_id\tcorpus-id\tx\n", r"row 1: found 3 fields in 'query_id\tcorpus-id\tx'"),
    ("qrels", "q1 0 d1 1\nq1 0 d 2 1\n", "row 2: found 5 fields in 'q1 0 d 2 1', expected 4"),
    *(("qrels", f"q1 0 d0 1000\nq1 0 d1 {grade}\n", f"row 2: found the grade '{grade}'") for grade in GRADES),
    ("qrels", BEIR + "q1\t\t1\n", "row 2: found an empty doc_id"),
    ("qrels", '{"query_id": "q", "doc_id": "d", "x": 1}\n', "row 1: found no score or relevance or "),
    ("judged", judged(relevance=4), "row 2: found 4 at relevance, expected a number from 0 to 3"),
    ("judged", judged(relevance=True), "row 2: found true at relevance"),
    ("judged", judged(doc_id=7), "row 2: found 7 at doc_id"),
    ("judged", judged('{"query_id": "q"}'), "row 2: found no 'text'"),
    ("judged", judged('{"query_id": "q", "text": "x", "relevance": 1001}'), "row 2: found 1001 at relevance"),
    ("judged", judged(text="\ud800"), "row 2: found unreadable content"),
    ("judged", judged('{"query_id": "q", "doc'), "row 2: found unreadable content (EOF while parsing"),
    ("judged", judged("[1]"), "row 2: found [1]"),
    ("run", run(b"1 Q0 c\n"), "row 5: found 3 fields, expected the 6 fields"),
    *(("run", run(f"1 Q0 d 1 {score} x\n".encode()), f"row 5: found the score '{score}'") for score in SCORES),
    ("run", run("1 Q0 d\u00a0 1 1 x\n".encode()), r"row 5: found doc_id 'd\xa0' with whitespace"),
    ("run", run("1\u2060 Q0 d 1 1 x\n".encode()), r"row 5: found query_id '1\u2060' with the invisible"),
    ("run", run(b"1 Q0 d\x00 1 1 x\n"), "row 5: found a NUL byte at byte 7"),
    ("run", run(b"1\tQ0\td\t1\t1\tmy tag\n"), "row 5: found 7 fields"),
    ("run", run(b"1 Q0 d 1 2.5 t\n1 Q0 c 2 1.5 \n"), "row 6: found 5 fields"),
    ("run", run(b"1  d 1 2.5 t\n"), "row 5: found 5 fields"),
    ("run", run(b"2 Q0 a 9 0 x\n"), "row 5: found document 'a' again in the ranking of query '2'"),
    ("run", run(b"\n1 Q0 d 1 nan x\n"), "row 5: found 0 fields"),
    ("run", run(b"1 Q0 d\xff 1 1 x\n"), "row 5: found invalid UTF-8"),
    ("run", ranked("1 2", "2 1", "1 2"), f"{DISTANCES}2 of 3 queries"),
    ("run", ranked("-3 -2 -1", "7", "5 5"), f"{DISTANCES}1 of 1 queries"),
    ("run", ranked("1 2 3 4 6 5", "1 2 2 3"), f"{DISTANCES}2 of 2 queries"),
    ("predictions.tar.gz", tar_of(("a", "1\n"), ("b", "2\n")), "found a second file, 'b'"),
    ("predictions.tar.gz", TAR[: len(TAR) // 2], "found unreadable bytes"),
    ("predictions.tar.gz", TAR[:-8] + bytes([TAR[-8] ^ 1]) + TAR[-7:], "found unreadable bytes (CRC check failed"),
    ("predictions.tar.gz", TAR[:-8], "found unreadable bytes (Compressed file ended"),
    ("predictions.tar.gz", tar_of(("p", "1".encode("utf-16"))), "p: found UTF-16 or UTF-32 text"),
    ("1 samples.zip", ZIP[:60], "found unreadable bytes"),
    ("4 samples.zip", samples(), "found 3 samples, expected at least 4 of each part"),
    ("3 samples.zip", samples(s1p1=None), "found 2 samples, expected at least 3 of each part"),
    ("2 samples.zip", samples(s1p1="one\n"), "found unreadable bytes (zip() argument 2 is shorter"),
    ("2 samples.zip", samples(s1p1="1\n2\n3\n"), "found unreadable bytes (zip() argument 2 is longer"),
    ("2 samples.zip", samples(s0p1=b"1\n\xff\n"), "x_sample000.txt001-1004000: row 2: found invalid UTF-8 at byte"),
]
# fmt: on


def write_bytes(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(("kind", "content", "complaint"), REFUSED, ids=range(len(REFUSED)))
def test_mistakes_are_found_in_their_place(tmp_path, kind, content, complaint):
    # A plain name is also that of a file without a suffix.
    message = refusal(READERS[kind.partition(".")[0]], write_bytes(tmp_path / kind, content))
    assert re.match(re.escape(complaint) + (r"\d+ \(" if complaint.endswith("after row ") else ""), message), message
    assert len(message) < 400
