"""TREC-CAR: three pages as its publishers write them, from paragraphs to a split, and damaged files."""

import gzip

import cbor2
import pytest

from cort import collection, split
from cort.formats.passages import iter_passages
from cort.formats.tables import QRELS, QUERIES, read_table
from cort.formats.topics import iter_queries
from tests.support.common import command_line, refusal, write_file

HEADER = ["CAR", [2, []], [["enwiki", "en"], []]]
# Page -> heading, or none for the lead -> paragraphs; a link is a pair of a page and its text.
PAGES = {
    "Aftertaste": {
        "": [["Aftertaste is the taste ", ("Taste", "left in the mouth"), "."]],
        "Wine/Length": [["The aftertaste of wine lasts."], ["Tasters count seconds."]],
    },
    "Green%20sea%20turtle": {"Diet": [["Turtles eat ", ("Seagrass", "seagrass"), "."], []]},
    "Hebrew%20%27": {"History": [["It is old."]]},
}


def paragraph_id(number):
    return b"%040x" % number


def body(part):
    if isinstance(part, str):
        return [0, part]
    return [1, [0, part[0], ["Some section"], b"enwiki:" + part[0].encode(), part[1]]]


def write_pages(folder):
    """Write paragraphs and hierarchical judgements of the pages as trec-car-create does."""
    paragraphs, qrels = [], []
    for page, sections in PAGES.items():
        for heading, texts in sections.items():
            topic = f"enwiki:{page}/{heading}".rstrip("/")
            for parts in texts:
                qrels.append(f"{topic} 0 {paragraph_id(len(paragraphs)).decode()} 1\n")
                paragraphs.append([0, paragraph_id(len(paragraphs)), list(map(body, parts))])
    encoded = b"".join(map(cbor2.dumps, paragraphs))
    (folder / "paragraphs.cbor").write_bytes(cbor2.dumps(HEADER) + b"\x9f" + encoded + b"\xff")
    (folder / "test.qrels").write_text("".join(qrels))
    return folder / "paragraphs.cbor", folder / "test.qrels"


TEXTS = ["Aftertaste is the taste left in the mouth.", "The aftertaste of wine lasts.", "Tasters count seconds."]
# The id of "." is judged, so it stays.
TEXTS += ["Turtles eat seagrass.", ".", "It is old."]


def test_paragraphs_are_their_parts_without_anything_in_between(tmp_path):
    path, _ = write_pages(tmp_path)
    expected = [(paragraph_id(number).decode(), text) for number, text in enumerate(TEXTS)]
    assert list(iter_passages(path)) == list(enumerate(expected, 1))
    packed = tmp_path / "packed.cbor.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(iter_passages(packed)) == list(iter_passages(path))


def test_paragraphs_are_those_of_their_publishers_reader(tmp_path):
    trec_car = pytest.importorskip("trec_car.read_data")
    path, _ = write_pages(tmp_path)
    with open(path, "rb") as file:
        expected = [(paragraph.para_id, paragraph.get_text() or ".") for paragraph in trec_car.iter_paragraphs(file)]
    assert [passage for _, passage in iter_passages(path)] == expected


def test_topics_are_those_of_the_judgements_as_the_paper_writes_them(tmp_path):
    _, path = write_pages(tmp_path)
    assert [(row, topic.id, topic.text) for row, topic in iter_queries(path)] == [
        (1, "enwiki:Aftertaste", "Aftertaste"),
        (2, "enwiki:Aftertaste/Wine/Length", "Aftertaste Wine Length"),
        (4, "enwiki:Green%20sea%20turtle/Diet", "Green sea turtle Diet"),
        (6, "enwiki:Hebrew%20%27/History", "Hebrew %27 History"),
    ]


def test_judgements_of_a_file_per_fold_are_those_of_one_file(tmp_path):
    paragraphs, qrels = write_pages(tmp_path)
    passages, queries, judged = (tmp_path / f"{name}.parquet" for name in ("passages", "queries", "qrels"))
    assert collection.main(command_line({"passages": paragraphs, "output": passages}, {})) == 0
    lines = qrels.read_text().splitlines(keepends=True)
    folds = [write_file(tmp_path / f"fold-{n}.qrels", "".join(part)) for n, part in enumerate((lines[:3], lines[3:]))]
    outputs = {"passages": passages, "output_queries": queries, "output_qrels": judged}
    assert split.main(command_line({"queries": folds, "qrels": folds}, outputs)) == 0
    tables = read_table(queries, QUERIES), read_table(judged, QRELS)
    assert split.main(command_line({"queries": qrels, "qrels": qrels}, outputs)) == 0
    assert (read_table(queries, QUERIES), read_table(judged, QRELS)) == tables
    assert [table.num_rows for table in tables] == [4, len(TEXTS)]


WHOLE = "expected a complete file of TREC-CAR v2.0 paragraphs; fetch or unpack it again"
PART = "expected a text, or a link with one; fetch or unpack it again"
PARAGRAPH = "expected a paragraph: 0, id and parts; fetch or unpack it again"
ONE = cbor2.dumps([0, b"ab", [[0, "text"]]])
START = cbor2.dumps(HEADER) + b"\x9f"


def whole(paragraph):
    return START + cbor2.dumps(paragraph) + b"\xff"


PAGE_FILE = cbor2.dumps(["CAR", [0, []], []]) + b"\x9f\xff"
BAD_FILES = {
    "cut in a paragraph": (START + ONE + ONE[:-3], f"row 2: found a truncated file, {WHOLE}"),
    "cut between two": (START + ONE, f"found the end of the file after 1 paragraphs, {WHOLE}"),
    "cut in the header": (START[:9], f"found a truncated file, {WHOLE}"),
    "empty": (b"", f"found a truncated file, {WHOLE}"),
    "another list": (cbor2.dumps([1, 2]), f"found no TREC-CAR header, {WHOLE}"),
    "text": (b"some text of many words", f"found no TREC-CAR header, {WHOLE}"),
    "pages": (PAGE_FILE, "found TREC-CAR pages or outlines (type '0'), expected paragraphs; name dedup.articles-para"),
    "no paragraph": (whole([1, b"ab", []]), f"row 1: found \"[1, b'ab', []]\", {PARAGRAPH}"),
    "a part of another kind": (whole([0, b"ab", [[2, "x"]]]), f"row 1: found \"[2, 'x']\", {PART}"),
    "none": (START + b"\xff", "found no passages, expected one passage or more"),
    "two files in one": (START + ONE + b"\xff" + START, f"found data after the last of 1 paragraphs, {WHOLE}"),
    "an impossible length": (START + b"\x83\x00\x5b" + b"\x7f" * 8 + b"ab", "row 1: found "),
}


@pytest.mark.parametrize(("content", "line"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_paragraphs_are_refused_in_one_line(tmp_path, complaint, content, line):
    path, output = tmp_path / "p.cbor", tmp_path / "out" / "passages.parquet"
    path.write_bytes(content)
    assert complaint(collection.main, ["--passages", path, "--output", output], output).startswith(f"{path}: {line}")


PACKED = gzip.compress(START + ONE + b"\xff", mtime=0)


@pytest.mark.parametrize(
    "data",
    [
        *(PACKED[:-8] + b"\1" + PACKED[-7:], PACKED[:-1] + b"\1", PACKED[:-8], PACKED + PACKED, PACKED + b"junk"),
        PACKED[:16] + bytes([PACKED[16] ^ 0xFF]) + PACKED[17:],
    ],
    ids=["checksum", "length", "cut", "twice", "junk", "stream"],
)
def test_gzip_is_read_to_its_end(tmp_path, complaint, data):
    path, output = tmp_path / "p.cbor.gz", tmp_path / "out" / "passages.parquet"
    path.write_bytes(data)
    assert WHOLE in complaint(collection.main, ["--passages", path, "--output", output], output)


@pytest.mark.parametrize("topic", ["enwiki:", "enwiki:/History", "Aftertaste/Wine", "42"])
def test_topics_without_a_page_are_refused(tmp_path, topic):
    path = write_file(tmp_path / "test.qrels", f"enwiki:Aftertaste 0 d1 1\n{topic} 0 d2 1\n")
    assert refusal(iter_queries, path) == (
        f"row 2: found the topic '{topic}' without a page, expected enwiki:PAGE/HEADING, as in TREC-CAR's hierarchical "
        "judgements; name a file of queries, or correct the topic"
    )
