"""TREC-CAR: three pages as its publishers write them, from paragraphs to BM25's measures; and what is no such file."""

import gzip

import cbor2
import pytest

from cort import bm25, collection, evaluate, index, split
from cort.evaluation.measures import Measures
from cort.formats.artifacts import read_artifact
from cort.formats.raw import iter_passages, iter_queries
from cort.formats.records import Text
from cort.formats.tables import PASSAGES, QRELS, QUERIES, read_table

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


TEXTS = [
    "Aftertaste is the taste left in the mouth.",
    "The aftertaste of wine lasts.",
    "Tasters count seconds.",
    "Turtles eat seagrass.",
    # Its id is judged, so it stays.
    ".",
    "It is old.",
]


def test_paragraphs_are_their_parts_without_anything_in_between(tmp_path):
    path, _ = write_pages(tmp_path)
    expected = [Text(paragraph_id(number).decode(), text) for number, text in enumerate(TEXTS)]
    assert list(iter_passages(path)) == list(enumerate(expected, 1))
    packed = tmp_path / "packed.cbor.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(iter_passages(packed)) == list(iter_passages(path))


def test_paragraphs_are_those_of_their_publishers_reader(tmp_path):
    trec_car = pytest.importorskip("trec_car.read_data")
    path, _ = write_pages(tmp_path)
    with open(path, "rb") as file:
        theirs = [(one.para_id, one.get_text()) for one in trec_car.iter_paragraphs(file)]
    ours = [(found.id, found.text) for _, found in iter_passages(path)]
    assert [(doc_id, text or ".") for doc_id, text in theirs] == ours


def test_topics_are_those_of_the_judgements_as_the_paper_writes_them(tmp_path):
    _, path = write_pages(tmp_path)
    assert [(row, topic.id, topic.text) for row, topic in iter_queries(path)] == [
        (1, "enwiki:Aftertaste", "Aftertaste"),
        (2, "enwiki:Aftertaste/Wine/Length", "Aftertaste Wine Length"),
        (4, "enwiki:Green%20sea%20turtle/Diet", "Green sea turtle Diet"),
        (6, "enwiki:Hebrew%20%27/History", "Hebrew %27 History"),
    ]


def run(main, *command, **named):
    words = [
        (f"--{name.replace('_', '-')}", *(value if isinstance(value, list) else [value]))
        for name, value in named.items()
    ]
    return main([*command, *(str(word) for option in words for word in option)])


@pytest.mark.slow
def test_from_paragraphs_to_measures_over_all_topics(tmp_path):
    paragraphs, qrels = write_pages(tmp_path)
    passages, queries, judged = (tmp_path / f"{name}.parquet" for name in ("passages", "queries", "qrels"))
    assert run(collection.main, passages=paragraphs, output=passages) == 0
    # Folds: judgements of one page each, together.
    folds = [tmp_path / f"fold-{number}.qrels" for number in range(2)]
    lines = qrels.read_text().splitlines(keepends=True)
    for path, part in zip(folds, (lines[:3], lines[3:]), strict=True):
        path.write_text("".join(part))
    outputs = {"output_queries": queries, "output_qrels": judged}
    assert run(split.main, queries=folds, qrels=folds, passages=passages, **outputs) == 0
    table = read_table(queries, QUERIES)
    assert run(split.main, queries=qrels, qrels=qrels, passages=passages, **outputs) == 0
    assert read_table(queries, QUERIES).equals(table)
    assert read_table(judged, QRELS).num_rows == read_table(passages, PASSAGES).num_rows == 6
    lucene, ranking, output = tmp_path / "lucene", tmp_path / "run.trec", tmp_path / "measures.json"
    assert run(index.main, "bm25", passages=passages, memory_mb=256, output=lucene) == 0
    assert run(bm25.main, index=lucene, queries=queries, k1=0.9, b=0.4, depth=10, tag="bm25", output=ranking) == 0
    others = {"output_per_query": tmp_path / "values.parquet", "output_recall": tmp_path / "recall.csv"}
    named = {"run": ranking, "queries": queries, "qrels": judged, "system": "bm25", "split": "test", "output": output}
    assert run(evaluate.main, measures=["AP"], **named, **others) == 0
    found = read_artifact(output, Measures)
    # "Aftertaste" finds two paragraphs of its page, the shorter one, of another topic, first; "Aftertaste Wine Length"
    # and "Green sea turtle Diet" the first of their two; "Hebrew %27 History" nothing, and counts 0.
    assert (found.queries, found.without_results) == (4, 1)
    assert found.mean["AP"] == pytest.approx((1 / 2 + 1 / 2 + 1 / 2 + 0) / 4)


WHOLE = "expected a file of paragraphs of TREC-CAR v2.0, whole; fetch or unpack it again"
ONE = cbor2.dumps([0, b"ab", [[0, "text"]]])
START = cbor2.dumps(HEADER) + b"\x9f"
BAD_FILES = {
    "cut in a paragraph": (START + ONE + ONE[:-3], f"row 2: found its end in the middle, {WHOLE}"),
    "cut between two": (START + ONE, f"found its end after 1 paragraphs, {WHOLE}"),
    "cut in the header": (START[:9], f"found its end in the middle, {WHOLE}"),
    "empty": (b"", f"found its end in the middle, {WHOLE}"),
    "another list": (cbor2.dumps([1, 2]), f"found no header of TREC-CAR, {WHOLE}"),
    "text": (b"some text of many words", f"found no header of TREC-CAR, {WHOLE}"),
    "pages": (
        cbor2.dumps(["CAR", [0, []], []]) + b"\x9f\xff",
        "found pages or outlines of TREC-CAR (type '0'), expected its paragraphs; name dedup.articles-paragraphs.cbor",
    ),
    "no paragraph": (
        START + cbor2.dumps([1, b"ab", []]) + b"\xff",
        "row 1: found \"[1, b'ab', []]\", expected a paragraph: 0, id and parts; fetch or unpack it again",
    ),
    "a part of another kind": (
        START + cbor2.dumps([0, b"ab", [[2, "x"]]]) + b"\xff",
        "row 1: found \"[2, 'x']\", expected a text, or a link with one; fetch or unpack it again",
    ),
    "an id with a blank": (
        START + cbor2.dumps([0, b"a b", [[0, "x"]]]) + b"\xff",
        "row 1: found doc_id 'a b' with whitespace, expected a doc_id without whitespace, as run files need it; "
        "give the row another id",
    ),
    "none": (
        START + b"\xff",
        "found no passages, expected one passage to a line; name the file that holds the passages",
    ),
    "twice": (
        START + ONE + ONE + b"\xff",
        "row 2: found doc_id 'ab' again (it is already in row 1), expected each doc_id once; "
        "remove one of the two rows",
    ),
    "two files in one": (START + ONE + b"\xff" + START, f"found data after the end of its 1 paragraphs, {WHOLE}"),
}


@pytest.mark.parametrize(("content", "line"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_paragraphs_are_refused_in_one_line(tmp_path, complaint, content, line):
    path, output = tmp_path / "p.cbor", tmp_path / "out" / "passages.parquet"
    path.write_bytes(content)
    assert complaint(collection.main, ["--passages", path, "--output", output], output) == f"{path}: {line}"


PACKED = gzip.compress(START + ONE + b"\xff", mtime=0)


@pytest.mark.parametrize(
    "data",
    [
        PACKED[:-8] + b"\1" + PACKED[-7:],
        PACKED[:-1] + b"\1",
        PACKED[:-8],
        PACKED + PACKED,
        PACKED + b"junk",
        PACKED[:16] + bytes([PACKED[16] ^ 0xFF]) + PACKED[17:],
    ],
    ids=["checksum", "length", "cut", "twice", "junk", "stream"],
)
def test_gzip_is_read_to_its_end(tmp_path, complaint, data):
    path, output = tmp_path / "p.cbor.gz", tmp_path / "out" / "passages.parquet"
    path.write_bytes(data)
    assert WHOLE in complaint(collection.main, ["--passages", path, "--output", output], output)


def test_a_length_that_no_file_has_is_refused(tmp_path, complaint):
    path, output = tmp_path / "p.cbor", tmp_path / "out" / "passages.parquet"
    path.write_bytes(START + b"\x83\x00\x5b" + b"\x7f" * 8 + b"ab")
    assert "row 1: found " in complaint(collection.main, ["--passages", path, "--output", output], output)


@pytest.mark.parametrize("topic", ["enwiki:", "enwiki:/History", "Aftertaste/Wine", "42"])
def test_topics_without_a_page_are_refused(tmp_path, complaint, topic):
    paragraphs, qrels = write_pages(tmp_path)
    passages, queries = tmp_path / "passages.parquet", tmp_path / "queries.parquet"
    assert run(collection.main, passages=paragraphs, output=passages) == 0
    qrels.write_text(f"enwiki:Aftertaste 0 {paragraph_id(0).decode()} 1\n{topic} 0 {paragraph_id(1).decode()} 1\n")
    named = ["--queries", qrels, "--qrels", qrels, "--passages", passages]
    argv = [*named, "--output-queries", queries, "--output-qrels", tmp_path / "qrels.parquet"]
    assert complaint(split.main, argv, queries) == (
        f"{qrels}: row 2: found the topic '{topic}' without a page, expected enwiki:PAGE/HEADING, as TREC-CAR's "
        "hierarchical judgements have them; name a file of queries, or correct the topic"
    )


def test_a_topic_of_two_files_is_refused(tmp_path, complaint):
    paragraphs, qrels = write_pages(tmp_path)
    passages, queries = tmp_path / "passages.parquet", tmp_path / "queries.parquet"
    assert run(collection.main, passages=paragraphs, output=passages) == 0
    named = ["--queries", qrels, qrels, "--qrels", qrels, "--passages", passages]
    argv = [*named, "--output-queries", queries, "--output-qrels", tmp_path / "qrels.parquet"]
    line = complaint(split.main, argv, queries)
    assert line.startswith(
        f"{qrels}: row 1: found query_id 'enwiki:Aftertaste' again (it is already in row 1 of {qrels})"
    )
