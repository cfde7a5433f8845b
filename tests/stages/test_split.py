import json
import random
from pathlib import Path

import pytest

from cort import collection, split
from cort.formats.tables import PASSAGES, QRELS, QUERIES, read_table
from tests.support.common import command_line, logged, write_rows

pytestmark = pytest.mark.usefixtures("record_messages")

DATA = Path(__file__).parents[3] / "shared" / "data"

QUERY_LINES = "q3\tthree\nq1\t one\nq2\ttwo\nq9\tunjudged\n"
QREL_LINES = "q2 0 d1 1\nq1 0 d2 0\nq3 0 d1 2\nq1 0 d1 1\n"


def arguments(output, named):
    outputs = {"output-queries": output / "queries.parquet", "output-qrels": output / "qrels.parquet"}
    return command_line(named | outputs)


@pytest.fixture
def files(tmp_path):
    """Write passages d1, d2 and return a function that runs the stage."""
    passages = write_rows(tmp_path / "passages.parquet", PASSAGES, [("d1", "x"), ("d2", "y")])

    def run(*options, queries=QUERY_LINES, qrels=QREL_LINES, names=("queries.tsv", "qrels.tsv")):
        for name, text in zip(names, (queries, qrels), strict=True):
            (tmp_path / name).write_text(text, encoding="utf-8")
        named = {"queries": tmp_path / names[0], "qrels": tmp_path / names[1], "passages": passages}
        return split.main([*arguments(tmp_path / "out", named), *options]), tmp_path / "out"

    return run


def read(output):
    queries = read_table(output / "queries.parquet", QUERIES).to_pydict()
    qrels = read_table(output / "qrels.parquet", QRELS)
    return list(zip(*queries.values(), strict=True)), [tuple(row.values()) for row in qrels.to_pylist()]


def test_unjudged_queries_are_dropped_and_order_is_kept(files, caplog):
    status, output = files()
    assert status == 0
    queries, qrels = read(output)
    assert queries == [("q3", "three"), ("q1", "one"), ("q2", "two")]
    assert qrels == [("q2", "d1", 1), ("q1", "d2", 0), ("q3", "d1", 2), ("q1", "d1", 1)]
    messages = logged(caplog)
    assert "4 queries, 1 of them without judgements (dropped), 4 judgements" in messages
    assert "wrote 3 queries and 4 judgements" in messages


def test_judgements_may_name_documents(files, tmp_path, capsys):
    write_rows(tmp_path / "passages.parquet", PASSAGES, [("a/b#0", "x"), ("a/b#1", "y"), ("whole", "z")])
    status, output = files("--aggregate", "max", qrels="q2 0 a/b 1\nq1 0 whole 1\n")
    assert status == 0
    assert read(output)[1] == [("q2", "a/b", 1), ("q1", "whole", 1)]
    # Not passages: neither by their ids nor by their texts.
    assert files("--aggregate", "max", qrels="q2 0 a/b#0 1\nq2 0 a/b#1 1\n")[0] == 1
    assert "found 2 of 2 judged documents that the collection lacks, as 'a/b#0', expected" in capsys.readouterr().err
    # A text is of one of their passages.
    write_rows(tmp_path / "passages.parquet", PASSAGES, [("a/b#0", "x"), ("a/b#1", "The beginning of a passage")])
    quoted = json.dumps({"query_id": "q1", "text": "the beginning of a pass", "relevance": 1})
    status, output = files("--aggregate", "first", qrels=f"{quoted}\n", names=("queries.tsv", "qrels.jsonl"))
    assert (status, read(output)[1]) == (0, [("q1", "a/b", 1)])


def test_unjudged_queries_can_be_kept(files, caplog):
    _, output = files("--unjudged-queries", "keep")
    queries, qrels = read(output)
    assert [query_id for query_id, _ in queries] == ["q3", "q1", "q2", "q9"]
    assert len(qrels) == 4
    assert "4 queries, 1 of them without judgements (kept), 4 judgements" in logged(caplog)


def test_judgements_may_quote_passages(files, tmp_path):
    text = "A passage whose beginning is quoted"
    write_rows(tmp_path / "passages.parquet", PASSAGES, [("d1", "x"), ("d2", text)])
    quoted = json.dumps({"query_id": "q1", "text": text[:-4], "relevance": 1})
    status, output = files(qrels=quoted, names=("queries.tsv", "qrels.jsonl"))
    assert status == 0
    assert read(output) == ([("q1", "one")], [("q1", "d2", 1)])


def test_judgements_of_passages_that_are_gone_are_counted(files, tmp_path, caplog):
    text = "A passage whose beginning was judged"
    write_rows(tmp_path / "passages.parquet", PASSAGES, [("d1", "x"), ("d2", text)])
    judged = [("q1", "d1", "x", 1), ("q1", "d7", text[:-4], 3), ("q2", "d8", "a text that is gone", 2)]
    lines = [json.dumps(dict(zip(("query_id", "doc_id", "text", "relevance"), row, strict=True))) for row in judged]
    counts = tmp_path / "counts.json"
    names = ("queries.tsv", "qrels.jsonl")
    status, output = files("--output-counts", str(counts), qrels="\n".join(lines), names=names)
    assert status == 0
    assert read(output) == ([("q1", "one")], [("q1", "d1", 1), ("q1", "d2", 3)])
    expected = {"judgements_found_by_id": 1, "found_by_text": 1, "gone": 1, "withdrawn": 0}
    assert json.loads(counts.read_text()) == expected
    assert f"{tmp_path}/qrels.jsonl: {expected}" in logged(caplog)
    # If none is left, nothing can be measured.
    assert files(qrels=lines[2], names=names)[0] == 1
    assert "qrels.jsonl: found no judgements, expected at least one" in caplog.text


@pytest.mark.parametrize("seed", [0, 42])
def test_a_held_out_part_and_the_rest_complement_each_other(files, seed):
    options = ("--hold-out", "2", "--seed", str(seed), "--unjudged-queries", "keep")
    every_query, every_qrel = read(files("--unjudged-queries", "keep")[1])
    drawn = random.Random(seed).sample(["q1", "q2", "q3"], 2)  # noqa: S311
    for part, inside in (("held-out", True), ("rest", False)):
        queries, qrels = read(files(*options, "--part", part)[1])
        # Unjudged queries belong to the rest.
        assert queries == [query for query in every_query if (query[0] in drawn) == inside]
        assert qrels == [qrel for qrel in every_qrel if (qrel[0] in drawn) == inside]


def test_the_draw_does_not_depend_on_the_order_of_the_files(files):
    options = ("--hold-out", "1", "--part", "held-out", "--seed", "7")
    queries, qrels = ("".join(reversed(text.splitlines(keepends=True))) for text in (QUERY_LINES, QREL_LINES))
    assert read(files(*options)[1])[0] == read(files(*options, queries=queries, qrels=qrels)[1])[0]


BEIR = "query-id\tcorpus-id\tscore\n"
PAIR = "found judgement (query_id doc_id) 'q1 d1' again"
BAD_FILES = [
    ({"queries": "q1\ta\nq2\tb\nq1\td\n"}, "queries.tsv: row 3: found query_id 'q1' again (it is already in row 1)"),
    ({"qrels": "q1 0 d1 1\nq2 0 d1 1\nq1 0 d1 0\n"}, f"qrels.tsv: row 3: {PAIR}, with another grade (it is al"),
    # Rows that say the same are not in the way.
    (
        {"qrels": BEIR + 2 * "q1\td1\t1\n" + "q1\td2\t0\nq1\td1\t2\n"},
        f"qrels.tsv: row 5: {PAIR}, with another grade (it is already in row 2)",
    ),
    ({"qrels": "q8 0 d1 1\n"}, "qrels.tsv: found no query_id of {0}/queries.tsv, expected judgements of these queries"),
    (
        {"qrels": BEIR + "q1\td1\t1\nq1\td3\t1\nq2\td4\t1\n"},
        "qrels.tsv: found 2 of 3 judged documents that the collection lacks, as 'd3', expected at least half of them "
        "in the collection; name the judgements of this collection, or set `unknown: keep` to count them as not ",
    ),
    ({"qrels": ""}, "qrels.tsv: found an empty file, expected at least one; name the file that holds the judgements"),
    ({"qrels": BEIR}, "qrels.tsv: found no judgements, expected at least one; name the file that holds the judgements"),
    ({"qrels": "q1 0 d1 0\nq2 0 d1 -1\n"}, "qrels.tsv: found no grade above 0, expected at least one relevant passage"),
    ({"queries": ""}, "queries.tsv: found an empty file, expected one query per line; name the file that holds the q"),
]


REST = ("--part", "rest", "--seed", "1", "--hold-out")
MORE = "expected fewer, as one must be left; hold out fewer, or bring more judged queries"


@pytest.mark.parametrize(
    ("options", "changes", "complaint"),
    [
        *(((), changes, complaint) for changes, complaint in BAD_FILES),
        ((*REST, "3"), {}, f"--hold-out: found 3 of 3 judged queries, {MORE}"),
        ((*REST, "1"), {"qrels": "q1 0 d1 1\n"}, f"--hold-out: found 1 of 1 judged queries, {MORE}"),
    ],
)
def test_bad_input_leaves_nothing_behind(files, tmp_path, caplog, options, changes, complaint):
    status, output = files(*options, **changes)
    assert status == 1
    place = "" if complaint.startswith("--") else f"{tmp_path}/"
    (line,) = logged(caplog, "ERROR")
    assert line.startswith(place + complaint.format(tmp_path))
    assert not output.exists() or list(output.iterdir()) == []


AGAIN, OTHER = "again (it is already in row", "again, with another grade (it is already in row"


@pytest.mark.parametrize(
    ("name", "lines", "complaint"),
    [
        ("more.tsv", "q4\tfour\nq1\tone\n", f"found query_id 'q1' {AGAIN} 2 of {{0}}/queries.tsv)"),
        ("more.qrels", "q9 0 d1 1\nq2 0 d1 3\n", f"found judgement (query_id doc_id) 'q2 d1' {OTHER} 1 of {{0}}/q"),
    ],
)
def test_a_row_is_that_of_its_own_file(files, tmp_path, caplog, name, lines, complaint):
    (tmp_path / name).write_text(lines)
    option, first = ("--queries", "queries.tsv") if name == "more.tsv" else ("--qrels", "qrels.tsv")
    assert files(option, str(tmp_path / first), str(tmp_path / name))[0] == 1
    assert f"{name}: row 2: {complaint.format(tmp_path)}" in logged(caplog, "ERROR")[0]


def test_lines_are_numbered_if_judgements_say_so(files, caplog):
    plain = {"queries": "one\ntwo\n", "names": ("questions.txt", "qrels.tsv")}
    assert files(qrels="1 0 d1 1\n", **plain)[0] == 1
    found = "questions.txt: row 1: found a query without an id, expected one with the id that its judgements have"
    assert found in logged(caplog, "ERROR")[0]
    status, output = files("--numbered", qrels="1 0 d1 1\n", **plain)
    assert (status, read(output)) == (0, ([("1", "one")], [("1", "d1", 1)]))


def test_topics_of_smart_and_their_judgements_have_the_same_ids(files):
    topics, cran = ".I 001\n.W\none\n.I 004\n.W\ntwo\n", "2 d1 3\n1 d2 -1\n"
    status, output = files(queries=topics, qrels=cran, names=("cran.qry", "cranqrel"))
    assert (status, read(output)) == (0, ([("1", "one"), ("2", "two")], [("2", "d1", 3), ("1", "d2", -1)]))
    topics = "<top><num> Number: 1 <title> one <desc> Description: two </top>"
    _, output = files("--field", "description", queries=topics, qrels="1 0 d1 1\n", names=("topics.txt", "qrels.txt"))
    assert read(output)[0] == [("1", "two")]


def test_judged_documents_and_queries_that_are_missing_are_kept_as_trec_eval_does_and_listed(files, tmp_path, caplog):
    qrels = "q1 0 d1 1\nq1 0 gone 2\nq1 0 d1 1\nq7 0 d2 1\nq2 0 d2 0\n"
    outputs = {"output-counts": tmp_path / "counts.json", "output-oddities": tmp_path / "oddities.csv"}
    status, output = files(*command_line(outputs), qrels=qrels)
    assert status == 0
    # The query without a text cannot be answered by any system.
    assert read(output)[1] == [("q1", "d1", 1), ("q1", "gone", 2), ("q2", "d2", 0)]
    counts = {"repeated rows": 1, "judged queries without text": 1, "judged documents absent": 1}
    assert json.loads(outputs["output-counts"].read_text()) == counts
    assert logged(caplog, "WARNING") == [f"{kind}: 1" for kind in counts]
    lines = ["kind,query_id,doc_id", "judged queries without text,q7,", "judged documents absent,q1,gone"]
    assert outputs["output-oddities"].read_text().splitlines() == lines
    # A model cannot learn from an absent document; a sample of a collection lacks most.
    assert read(files("--for-training", qrels=qrels)[1])[1] == [("q1", "d1", 1), ("q2", "d2", 0)]
    most = "q1 0 d1 1\nq1 0 gone 2\nq1 0 lost 1\n"
    assert read(files("--unknown", "keep", qrels=most)[1])[1] == [("q1", "d1", 1), ("q1", "gone", 2), ("q1", "lost", 1)]


def test_queries_with_the_text_of_other_splits_are_left_out(files, tmp_path, caplog):
    others = {"q2": "something else", "q7": "Two?", "q8": " THREE", "q5": ""}
    paths = [write_rows(tmp_path / f"{name}.parquet", QUERIES, [(name, text)]) for name, text in others.items()]
    # Two files numbered from 1 do not have the same queries.
    assert len(read(files("--without", paths[0])[1])[0]) == 3
    status, output = files("--without", *paths[1:3])
    assert status == 0
    assert read(output) == ([("q1", "one")], [("q1", "d2", 0), ("q1", "d1", 1)])
    caplog.clear()
    status, output = files("--without", paths[1], "--output-oddities", str(tmp_path / "odd.csv"))
    assert [query_id for query_id, _ in read(output)[0]] == ["q3", "q1"]
    assert logged(caplog, "WARNING") == ["queries dropped, as q7 has them: 1"]
    assert (tmp_path / "odd.csv").read_text().splitlines()[1:] == ['"queries dropped, as q7 has them",q2,']


def test_a_split_that_another_one_empties_is_refused(files, tmp_path, caplog):
    others = write_rows(tmp_path / "others.parquet", QUERIES, [("q1", "one"), ("q2", "two"), ("q3", "three")])
    assert files("--without", others)[0] == 1
    assert "queries.tsv: found no query left, expected at least one" in logged(caplog, "ERROR")[0]


def test_a_sample_depends_on_the_seed_and_the_set_of_ids_alone(files):
    drawn = set()
    for seed in range(8):
        first = read(files("--sample", "2", "--seed", str(seed))[1])
        lines = QUERY_LINES.splitlines(keepends=True)
        again = read(files("--sample", "2", "--seed", str(seed), queries="".join(reversed(lines)))[1])
        assert sorted(first[0]) == sorted(again[0])
        assert len(first[0]) == 2
        assert {query_id for query_id, *_ in first[1]} == {query_id for query_id, _ in first[0]}
        drawn.add(tuple(query_id for query_id, _ in first[0]))
    assert len(drawn) == 3
    # There may be fewer.
    assert read(files("--sample", "4")[1]) == read(files()[1])


def test_a_split_without_judgements_keeps_all_queries(tmp_path, files):
    assert files()[0] == 0
    output, named = tmp_path / "unjudged", {name: tmp_path / f"{name}.tsv" for name in ("queries",)}
    named |= {"passages": tmp_path / "passages.parquet"}
    assert split.main([*arguments(output, named), "--qrels"]) == 0
    queries, qrels = read(output)
    assert [query_id for query_id, _ in queries] == ["q3", "q1", "q2", "q9"]
    assert qrels == []


@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
def test_real_splits_keep_every_judgement_and_lose_shared_queries(tmp_path):
    folder, passages = DATA / "nfcorpus", tmp_path / "passages.parquet"
    assert collection.main(["--passages", str(folder / "collection.tsv"), "--output", str(passages)]) == 0
    named = {name: folder / f"{name}.train.tsv" for name in ("queries", "qrels")} | {"passages": passages}
    assert split.main(arguments(tmp_path, named)) == 0
    queries, qrels = read(tmp_path)
    assert len(queries) == 2_590
    assert [f"{q}\t0\t{d}\t{grade}" for q, d, grade in qrels] == (folder / "qrels.train.tsv").read_text().splitlines()
    # One query of validation is also in test.
    outputs = {}
    for name in ("test", "dev"):
        named |= {kind: folder / f"{kind}.{name}.tsv" for kind in ("queries", "qrels")}
        outputs[name] = tmp_path / name
        tested = str(outputs["test"] / "queries.parquet")
        options = [] if name == "test" else ["--without", tested, "--for-training"]
        assert split.main([*arguments(outputs[name], named), *options]) == 0
    queries, qrels = read(outputs["dev"])
    judged = {line.split()[0] for line in (folder / "qrels.dev.tsv").read_text().splitlines()}
    assert len(judged - {query_id for query_id, _ in queries}) == 1
    assert {query_id for query_id, *_ in qrels} == {query_id for query_id, _ in queries}
    assert len(read(outputs["test"])[0]) == 323
