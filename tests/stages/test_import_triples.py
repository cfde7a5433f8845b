import json
from collections import Counter

import pytest

from cort import import_triples
from cort.formats import lines, tables
from tests.support.common import write_file, write_rows

QUERY_IDS, DOC_IDS = ("q1", "q2", "q3"), ("d9", "d1", "d10", "d3")
LINES = [("q1", "d9", "d3"), ("q1", "d10", "d1"), ("q2", "d1", "d9"), ("q3", "d1", "d3"), ("q2", "d1", "d3")]


@pytest.fixture
def files(tmp_path):
    write_rows(tmp_path / "queries.parquet", tables.QUERIES, [(one, one) for one in QUERY_IDS])
    write_rows(tmp_path / "passages.parquet", tables.PASSAGES, [(one, one) for one in DOC_IDS])
    return tmp_path


def options(folder, rows=LINES, name="triples.tsv", end="\n", **changes):
    lines = (line if isinstance(line, str) else "\t".join(line) for line in rows)
    named = {part: folder / f"{part}.parquet" for part in ("queries", "passages")}
    named |= {"triples": write_file(folder / name, "".join(line + end for line in lines))}
    named |= {"output": folder / "out.parquet", "output_counts": folder / "counts.json"}
    return named | changes


@pytest.fixture
def run(stage, files):
    return lambda *rows, **changes: stage("import_triples", **options(files, *rows, **changes))


def read(folder, schema=tables.TRIPLES):
    return [tuple(row.values()) for row in tables.read_table(folder / "out.parquet", schema).to_pylist()]


def counts_of(folder):
    return json.loads((folder / "counts.json").read_text("utf-8"))


@pytest.mark.parametrize(("name", "end"), [("triples.tsv", "\n"), ("triples.tsv.gz", "\r\n")], ids=["LF", "CRLF"])
def test_ids_are_taken_in_the_order_of_the_file(run, files, name, end):
    run(name=name, end=end, shuffle=False, epochs=2)
    assert read(files) == [(epoch, *line, 0) for epoch in (0, 1) for line in LINES]


@pytest.mark.parametrize("form", ["triples", "pairs"])
def test_a_collection_with_more_than_two_gigabytes_of_ids(run, monkeypatch, form):
    expected = run(form=form).read_bytes()
    monkeypatch.setattr("cort.formats.ids.LARGEST_OFFSET", 4)
    assert run(form=form).read_bytes() == expected


def test_pairs_are_the_positive_and_then_the_negative(run, files):
    run(form="pairs", shuffle=False)
    expected = [(0, query, doc, grade) for query, *both in LINES for doc, grade in zip(both, (1, 0), strict=True)]
    assert read(files, tables.PAIRS) == expected


def test_epochs_are_shuffled_by_the_seed(run, files):
    given = [(query, *LINES[row % 5][1:]) for row, query in enumerate(QUERY_IDS * 10)]
    found = []
    for seed in (1, 1, 2):
        found.append(run(given, epochs=2, seed=seed).read_bytes())
    assert found[0] == found[1] != found[2]
    rows = read(files)
    epochs = [[row[1:4] for row in rows if row[0] == epoch] for epoch in (0, 1)]
    assert Counter(epochs[0]) == Counter(epochs[1]) == Counter(given)
    assert epochs[0] != epochs[1] != given


def test_limit_takes_the_first_lines_and_sample_draws_of_these(run, files):
    run(limit=3, shuffle=False)
    assert [row[1:4] for row in read(files)] == LINES[:3]
    run(limit=4, sample=2, seed=7, shuffle=False)
    drawn = [row[1:4] for row in read(files)]
    assert len(drawn) == 2 and drawn == [line for line in LINES[:4] if line in drawn]
    assert counts_of(files)["triples read"] == 4
    assert counts_of(files)["dropped: not in the sample"] == counts_of(files)["triples kept"] == 2


def test_unknown_ids_and_triples_of_one_passage_are_dropped_and_counted(run, files):
    given = [*LINES, ("q9", "d9", "d8"), ("q1", "d8", "d1"), ("q1", "d1", "d8"), ("q1", "d8", "d8"), ("q1", "d1", "d1")]
    run(given, unknown_ids="drop", shuffle=False)
    assert [row[1:4] for row in read(files)] == LINES
    counts = counts_of(files)
    assert counts["triples read"] == 10
    assert [counts[f"dropped: unknown {name}"] for name in ("query", "positive", "negative")] == [1, 2, 1]
    assert counts["triples kept"] == 5
    assert counts["dropped: positive and negative are one passage"] == 1


def test_blocks_do_not_matter(run, refused, files, monkeypatch):
    monkeypatch.setattr(import_triples, "LOOKED_UP", 2)
    monkeypatch.setattr(lines, "COLUMNS_BLOCK", 40)
    run(shuffle=False)
    assert [row[1:4] for row in read(files)] == LINES
    line = refused("import_triples", **options(files, [*LINES, ("q1", "d8", "d9")], output=files / "no"))
    assert "row 6: found the id 'd8' of no passage" in line


BAD = [
    ([*LINES, "q1\td9"], "triples.tsv: row 6: found 2 TAB-separated fields"),
    (["q1\td9"], "triples.tsv: row 1: found 2 TAB-separated fields"),
    ([*LINES, "q1\td9\td3\td1"], "row 6: found 4 TAB-separated fields"),
    ([LINES[0], "", LINES[1]], "row 2: found an empty line"),
    ([LINES[0], "q1\t\td3"], "row 2: found an empty positive"),
    ([LINES[0], "q1\td9\ta text"], "row 2: found texts, expected ids"),
    ([*LINES, ("q1", "d9", "d8"), ("q8", "d9", "d3")], "row 6: found the id 'd8' of no passage"),
    ([*LINES, ("q8", "d7", "d3")], "row 6: found the id 'q8' of no query"),
    ([("what is a list", "A list is a row.", "Trees grow."), *LINES], "row 1: found texts, expected ids"),
]


@pytest.mark.parametrize(("given", "words"), BAD, ids=[words[-40:] for _, words in BAD])
def test_bad_lines_are_refused_with_their_row(refused, files, given, words):
    assert words in refused("import_triples", **options(files, given))
    assert not (files / "counts.json").exists()


@pytest.mark.parametrize("rows", [[], [("1", "2", "3")], [("q1", "d1", "d1")]])
def test_a_file_of_another_collection_is_refused(refused, files, rows):
    line = refused("import_triples", **options(files, rows, unknown_ids="drop"))
    assert f"found no triple of known ids and two passages among {len(rows)}" in line
