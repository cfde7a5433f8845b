import json
import random
import unicodedata
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest

from cort.formats.tables import PASSAGES, QRELS, QUERIES, read_table
from tests.support.common import logged, write_rows

pytestmark = pytest.mark.usefixtures("record_messages")

DATA = Path(__file__).parents[3] / "shared" / "data"

QUERY_LINES = "q3\tthree\nq1\t one\nq2\ttwo\nq9\tunjudged\n"
QREL_LINES = "q2 0 d1 1\nq1 0 d2 0\nq3 0 d1 2\nq1 0 d1 1\n"
LINES, QUOTED = ("questions.txt", "qrels.tsv"), ("queries.tsv", "qrels.jsonl")


def outputs(folder):
    return {"output_queries": folder / "queries.parquet", "output_qrels": folder / "qrels.parquet"}


@pytest.fixture
def options(tmp_path):
    """Write passages d1, d2 and return a function that writes the other inputs; options of the stage."""
    passages = write_rows(tmp_path / "passages.parquet", PASSAGES, [("d1", "x"), ("d2", "y")])

    def write(queries=QUERY_LINES, qrels=QREL_LINES, names=("queries.tsv", "qrels.tsv"), **more):
        for name, text in zip(names, (queries, qrels), strict=True):
            (tmp_path / name).write_text(text or "", encoding="utf-8")
        named = {"queries": tmp_path / names[0], "qrels": [] if qrels is None else tmp_path / names[1]}
        return {**named, "passages": passages, **outputs(tmp_path / "out"), **more}

    return write


@pytest.fixture
def files(options, stage, tmp_path):
    """Run the stage; its queries and judgements."""

    def run(**changes):
        stage("split", **options(**changes))
        return read(tmp_path / "out")

    return run


@pytest.fixture
def refuse(options, refused, tmp_path):
    """The one-line complaint, without any output."""

    def run(**changes):
        line = refused("split", **options(**changes))
        assert not list((tmp_path / "out").glob("*"))
        return line

    return run


def read(output):
    queries = read_table(output / "queries.parquet", QUERIES).to_pydict()
    qrels = read_table(output / "qrels.parquet", QRELS)
    return list(zip(*queries.values(), strict=True)), [tuple(row.values()) for row in qrels.to_pylist()]


def test_unjudged_queries_are_dropped_or_kept_and_order_is_kept(files, caplog):
    queries = [("q3", "three"), ("q1", "one"), ("q2", "two"), ("q9", "unjudged")]
    judged = [("q2", "d1", 1), ("q1", "d2", 0), ("q3", "d1", 2), ("q1", "d1", 1)]
    for changes, kept, said in (({}, 3, "dropped"), ({"unjudged_queries": "keep"}, 4, "kept")):
        assert files(**changes) == (queries[:kept], judged)
        messages = logged(caplog)
        assert f"4 queries, 1 of them without judgements ({said}), 4 judgements" in messages
        assert f"wrote {kept} queries and 4 judgements" in messages
    # Without a file of judgements, no query is dropped.
    assert files(qrels=None) == (queries, [])


def test_judgements_may_name_documents(files, tmp_path, options, refused):
    write_rows(tmp_path / "passages.parquet", PASSAGES, [("a/b#0", "x"), ("a/b#1", "y"), ("whole", "z")])
    _, qrels = files(aggregate="max", qrels="q2 0 a/b 1\nq1 0 whole 1\n")
    assert qrels == [("q2", "a/b", 1), ("q1", "whole", 1)]
    # Not passages: neither by their ids nor by their texts.
    line = refused("split", **options(aggregate="max", qrels="q2 0 a/b#0 1\nq2 0 a/b#1 1\n"))
    assert "found 2 of 2 judged documents that the collection lacks, as 'a/b#0'" in line
    # A text is of one of their passages.
    write_rows(tmp_path / "passages.parquet", PASSAGES, [("a/b#0", "x"), ("a/b#1", "The beginning of a passage")])
    quoted = json.dumps({"query_id": "q1", "text": "the beginning of a pass", "relevance": 1})
    assert files(aggregate="first", qrels=quoted, names=QUOTED)[1] == [("q1", "a/b", 1)]


def test_judgements_may_quote_passages_and_those_of_passages_that_are_gone_are_counted(
    files, options, refused, tmp_path, caplog
):
    text = "A passage whose beginning was judged"
    write_rows(tmp_path / "passages.parquet", PASSAGES, [("d1", "x"), ("d2", text)])
    judged = [("q1", "d1", "x", 1), ("q1", "d7", text[:-4], 3), ("q2", "d8", "a text that is gone", 2)]
    lines = [json.dumps(dict(zip(("query_id", "doc_id", "text", "relevance"), row, strict=True))) for row in judged]
    counts = tmp_path / "counts.json"
    found = files(output_counts=counts, qrels="\n".join(lines), names=QUOTED)
    assert found == ([("q1", "one")], [("q1", "d1", 1), ("q1", "d2", 3)])
    expected = {"judgements_matched_by_id": 1, "matched_by_text": 1, "unmatched": 1, "withdrawn": 0}
    assert json.loads(counts.read_text()) == expected
    assert f"{tmp_path}/qrels.jsonl: {expected}" in logged(caplog)
    # If none is left, nothing can be measured.
    line = refused("split", **options(qrels=lines[2], names=QUOTED))
    assert line.startswith(f"{tmp_path}/qrels.jsonl: found no judgements")


@pytest.mark.parametrize("seed", [0, 42])
def test_a_held_out_part_and_the_rest_complement_each_other(files, seed):
    named = {"hold_out": 2, "seed": seed, "unjudged_queries": "keep"}
    every_query, every_qrel = files(unjudged_queries="keep")
    drawn = random.Random(seed).sample(["q1", "q2", "q3"], 2)  # noqa: S311
    for part, inside in (("held-out", True), ("rest", False)):
        queries, qrels = files(**named, part=part)
        # Unjudged queries belong to the rest.
        assert queries == [query for query in every_query if (query[0] in drawn) == inside]
        assert qrels == [qrel for qrel in every_qrel if (qrel[0] in drawn) == inside]


def backwards(text):
    return "".join(reversed(text.splitlines(keepends=True)))


def test_the_draw_does_not_depend_on_the_order_of_the_files(files):
    named = {"hold_out": 1, "part": "held-out", "seed": 7}
    again = files(**named, queries=backwards(QUERY_LINES), qrels=backwards(QREL_LINES))
    assert files(**named)[0] == again[0]


BEIR = "query-id\tcorpus-id\tscore\n"
PAIR = "found judgement (query_id doc_id) 'q1 d1' again"
REST = {"part": "rest", "seed": 1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queries": "q1\ta\nq2\tb\nq1\td\n"}, "queries.tsv: row 3: found query_id 'q1' again (it is already in row 1"),
        ({"qrels": "q1 0 d1 1\nq2 0 d1 1\nq1 0 d1 0\n"}, f"qrels.tsv: row 3: {PAIR}, with another grade"),
        # Rows that say the same are not in the way.
        (
            {"qrels": BEIR + 2 * "q1\td1\t1\n" + "q1\td2\t0\nq1\td1\t2\n"},
            f"qrels.tsv: row 5: {PAIR}, with another grade (it is already in row 2)",
        ),
        ({"qrels": "q8 0 d1 1\n"}, "qrels.tsv: found no query_id of {0}/queries.tsv"),
        (
            {"qrels": BEIR + "q1\td1\t1\nq1\td3\t1\nq2\td4\t1\n"},
            "qrels.tsv: found 2 of 3 judged documents that the collection lacks, as 'd3'",
        ),
        ({"qrels": ""}, "qrels.tsv: found an empty file"),
        ({"qrels": BEIR}, "qrels.tsv: found no judgements"),
        ({"qrels": "q1 0 d1 0\nq2 0 d1 -1\n"}, "qrels.tsv: found no grade above 0"),
        ({"queries": ""}, "queries.tsv: found an empty file"),
        # Without ids, lines have the ids of no judgement.
        (
            {"queries": "one\ntwo\n", "qrels": "1 0 d1 1\n", "names": LINES},
            "questions.txt: row 1: found a query withou",
        ),
        (REST | {"hold_out": 3}, "--hold-out: found 3 of 3 judged queries"),
        (REST | {"hold_out": 1, "qrels": "q1 0 d1 1\n"}, "--hold-out: found 1 of 1 judged queries"),
    ],
)
def test_bad_input_leaves_nothing_behind(refuse, tmp_path, changes, words):
    place = "" if words.startswith("--") else f"{tmp_path}/"
    assert refuse(**changes).startswith(place + words.format(tmp_path))


@pytest.mark.parametrize(
    ("kind", "first", "lines", "words"),
    [
        ("queries", "queries.tsv", "q4\tfour\nq1\tone\n", "query_id 'q1' again (it is already in row 2"),
        (
            *("qrels", "qrels.tsv", "q9 0 d1 1\nq2 0 d1 3\n"),
            "judgement (query_id doc_id) 'q2 d1' again, with another grade (it is already in row 1",
        ),
    ],
)
def test_a_row_is_that_of_its_own_file(options, refused, tmp_path, kind, first, lines, words):
    (tmp_path / "more").write_text(lines)
    line = refused("split", **options() | {kind: [tmp_path / first, tmp_path / "more"]})
    assert line.startswith(f"{tmp_path}/more: row 2: found {words} of {tmp_path}/{first})")


def test_lines_are_numbered_if_judgements_say_so(files):
    found = files(queries="one\ntwo\n", qrels="1 0 d1 1\n", names=LINES, numbered=True)
    assert found == ([("1", "one")], [("1", "d1", 1)])


def test_topics_of_smart_and_their_judgements_have_the_same_ids(files):
    topics, cran = ".I 001\n.W\none\n.I 004\n.W\ntwo\n", "2 d1 3\n1 d2 -1\n"
    found = files(queries=topics, qrels=cran, names=("cran.qry", "cranqrel"))
    assert found == ([("1", "one"), ("2", "two")], [("2", "d1", 3), ("1", "d2", -1)])
    topics = "<top><num> Number: 1 <title> one <desc> Description: two </top>"
    named = {"queries": topics, "qrels": "1 0 d1 1\n", "names": ("topics.txt", "qrels.txt")}
    assert files(**named, field="description")[0] == [("1", "two")]


def test_judged_documents_and_queries_that_are_missing_are_kept_as_trec_eval_does_and_listed(files, tmp_path, caplog):
    qrels = "q1 0 d1 1\nq1 0 gone 2\nq1 0 d1 1\nq7 0 d2 1\nq2 0 d2 0\n"
    counted, oddities = tmp_path / "counts.json", tmp_path / "oddities.csv"
    # The query without a text cannot be answered by any system.
    found = files(output_counts=counted, output_oddities=oddities, qrels=qrels)
    assert found[1] == [("q1", "d1", 1), ("q1", "gone", 2), ("q2", "d2", 0)]
    counts = {"repeated rows": 1, "judged queries without text": 1, "judged documents absent": 1}
    assert json.loads(counted.read_text()) == counts
    assert logged(caplog, "WARNING") == [f"{kind}: 1" for kind in counts]
    lines = ["kind,query_id,doc_id", "judged queries without text,q7,", "judged documents absent,q1,gone"]
    assert oddities.read_text().splitlines() == lines
    # A model cannot learn from an absent document; a sample of a collection lacks most.
    assert files(for_training=True, qrels=qrels)[1] == [("q1", "d1", 1), ("q2", "d2", 0)]
    most = "q1 0 d1 1\nq1 0 gone 2\nq1 0 lost 1\n"
    assert files(unknown="keep", qrels=most)[1] == [("q1", "d1", 1), ("q1", "gone", 2), ("q1", "lost", 1)]


def test_queries_with_the_text_of_other_splits_are_left_out(files, options, refused, tmp_path, caplog):
    others = {"q2": "something else", "q7": "Two?", "q8": " THREE", "q5": "", "q1": "one"}
    paths = [write_rows(tmp_path / f"{name}.parquet", QUERIES, [(name, text)]) for name, text in others.items()]
    # Two files numbered from 1 do not have the same queries.
    assert len(files(without=paths[0])[0]) == 3
    assert files(without=paths[1:4]) == ([("q1", "one")], [("q1", "d2", 0), ("q1", "d1", 1)])
    caplog.clear()
    queries, _ = files(without=paths[1], output_oddities=tmp_path / "odd.csv")
    assert [query_id for query_id, _ in queries] == ["q3", "q1"]
    assert logged(caplog, "WARNING") == ["queries dropped, as q7 has them: 1"]
    assert (tmp_path / "odd.csv").read_text().splitlines()[1:] == ['"queries dropped, as q7 has them",q2,']
    assert "queries.tsv: found no query left" in refused("split", **options(without=paths))
    # What is held out is drawn from the others.
    line = refused("split", **options(without=paths[1], hold_out=2))
    assert line.startswith("--hold-out: found 2 of 2 judged queries")


def test_a_sample_depends_on_the_seed_and_the_set_of_ids_alone(files):
    drawn = set()
    for seed in range(8):
        queries, qrels = files(sample=2, seed=seed)
        again, _ = files(sample=2, seed=seed, queries=backwards(QUERY_LINES))
        assert sorted(queries) == sorted(again)
        assert len(queries) == 2
        assert {query_id for query_id, *_ in qrels} == {query_id for query_id, _ in queries}
        drawn.add(tuple(query_id for query_id, _ in queries))
    assert len(drawn) == 3
    # There may be fewer.
    assert files(sample=4) == files()


@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
def test_real_splits_keep_every_judgement_and_lose_shared_queries(tmp_path, stage):
    folder, passages = DATA / "nfcorpus", tmp_path / "passages.parquet"
    stage("collection", passages=folder / "collection.tsv", output=passages)

    def split(name, **more):
        named = {kind: folder / f"{kind}.{name}.tsv" for kind in ("queries", "qrels")}
        stage("split", **named, passages=passages, **outputs(tmp_path / name), **more)
        return read(tmp_path / name)

    queries, qrels = split("train")
    assert len(queries) == 2_590
    assert [f"{q}\t0\t{d}\t{grade}" for q, d, grade in qrels] == (folder / "qrels.train.tsv").read_text().splitlines()
    assert len(split("test")[0]) == 323
    # One query of validation is also in test.
    queries, qrels = split("dev", without=tmp_path / "test" / "queries.parquet", for_training=True)
    judged = {line.split()[0] for line in (folder / "qrels.dev.tsv").read_text().splitlines()}
    assert len(judged - {query_id for query_id, _ in queries}) == 1
    assert {query_id for query_id, *_ in qrels} == {query_id for query_id, _ in queries}


# Paths, and the ids that a folder's documents get.
PATHS = {
    "a b.md": "a%20b.md",
    "100%.md": "100%25.md",
    'it"s.md': "it%22s.md",
    "e\u0301.md": "e\u0301.md",
    "a%20b.txt": "a%2520b.txt",
}


@pytest.mark.parametrize("spelled", ["paths", "ids", "composed", "decomposed", "quoted"])
def test_ids_match_in_each_spelling_of_a_path(files, tmp_path, caplog, spelled):
    passages = [(f"{doc_id}#{number}", "x") for doc_id in [*PATHS.values(), "d1"] for number in range(2)]
    path = write_rows(tmp_path / "folder.parquet", PASSAGES, passages)
    change = {
        "paths": str,
        "ids": PATHS.get,
        "composed": partial(unicodedata.normalize, "NFC"),
        "decomposed": partial(unicodedata.normalize, "NFD"),
        "quoted": quote,
    }[spelled]
    lines = "".join(f"q1\t0\t{change(name)}\t1\n" for name in PATHS) + "q1\t0\td1\t1\nq1\t0\tgone.md\t1\n"
    _, qrels = files(qrels=lines, passages=path, aggregate="max")
    assert [doc_id for _, doc_id, _ in qrels] == [*PATHS.values(), "d1", "gone.md"]
    assert ("found in another spelling" in caplog.text) == (spelled != "ids")
    assert "judged documents absent: 1" in caplog.text


def test_the_same_document_in_two_spellings_is_judged_once(files, refuse, tmp_path):
    path = write_rows(tmp_path / "folder.parquet", PASSAGES, [("a%20b.md", "x")])
    assert files(qrels="q1\t0\ta b.md\t1\nq1\t0\ta%20b.md\t1\n", passages=path)[1] == [("q1", "a%20b.md", 1)]


def test_queries_of_a_folder_lose_what_cannot_be_seen(files):
    queries = "q1\tReise\u00adkosten \u2060e\u0301\n"
    for visible, text in ((False, "Reise\u00adkosten \u2060e\u0301"), (True, "Reisekosten \u00e9")):
        assert files(queries=queries, qrels=None, visible=visible)[0] == [("q1", text)]


def test_queries_that_are_skipped_or_doubtful_are_counted(files, tmp_path, caplog):
    files(queries="q1\tone\nq2\t \nq3\ta\tb\n", output_counts=tmp_path / "counts.json")
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert counts["queries without text, skipped"] == counts["queries with a TAB in their text"] == 1
    assert counts["judged queries without text"] == 1
    assert "queries without text, skipped: 1" in caplog.text
