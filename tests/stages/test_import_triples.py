import json
from collections import Counter
from functools import partial

import pytest

from cort import import_triples
from cort.formats import lines, released_triples, tables
from tests.support.common import command_line, write_file, write_rows

QUERY_IDS, DOC_IDS = ("q1", "q2", "q3"), ("d9", "d1", "d10", "d3")
LINES = [("q1", "d9", "d3"), ("q1", "d10", "d1"), ("q2", "d1", "d9"), ("q3", "d1", "d3"), ("q2", "d1", "d3")]


@pytest.fixture
def files(tmp_path):
    write_rows(tmp_path / "queries.parquet", tables.QUERIES, [(one, one) for one in QUERY_IDS])
    write_rows(tmp_path / "passages.parquet", tables.PASSAGES, [(one, one) for one in DOC_IDS])
    return tmp_path


def run(folder, rows=LINES, name="triples.tsv", end="\n", **changes):
    lines = (line if isinstance(line, str) else "\t".join(line) for line in rows)
    write_file(folder / name, "".join(line + end for line in lines))
    named = {part: folder / f"{part}.parquet" for part in ("queries", "passages")}
    named |= {"triples": folder / name, "output": folder / "out.parquet", "output-counts": folder / "counts.json"}
    return import_triples.main(command_line(named, changes))


def read(folder, schema=tables.TRIPLES):
    return [tuple(row.values()) for row in tables.read_table(folder / "out.parquet", schema).to_pylist()]


def counts_of(folder):
    return json.loads((folder / "counts.json").read_text("utf-8"))


@pytest.mark.parametrize(("name", "end"), [("triples.tsv", "\n"), ("triples.tsv.gz", "\r\n")], ids=["LF", "CRLF"])
def test_ids_are_taken_in_the_order_of_the_file(files, name, end):
    assert run(files, name=name, end=end, shuffle=False, epochs=2) == 0
    assert read(files) == [(epoch, *line, 0) for epoch in (0, 1) for line in LINES]


def test_pairs_are_the_positive_and_then_the_negative(files):
    assert run(files, form="pairs", shuffle=False) == 0
    expected = [(0, query, doc, grade) for query, *both in LINES for doc, grade in zip(both, (1, 0), strict=True)]
    assert read(files, tables.PAIRS) == expected


def test_epochs_are_shuffled_by_the_seed(files):
    given = [(query, *LINES[row % 5][1:]) for row, query in enumerate(QUERY_IDS * 10)]
    found = []
    for seed in (1, 1, 2):
        assert run(files, given, epochs=2, seed=seed) == 0
        found.append((files / "out.parquet").read_bytes())
    assert found[0] == found[1] != found[2]
    rows = read(files)
    epochs = [[row[1:4] for row in rows if row[0] == epoch] for epoch in (0, 1)]
    assert Counter(epochs[0]) == Counter(epochs[1]) == Counter(given)
    assert epochs[0] != epochs[1] != given


def test_limit_takes_the_first_lines_and_sample_draws_of_these(files):
    assert run(files, limit=3, shuffle=False) == 0
    assert [row[1:4] for row in read(files)] == LINES[:3]
    assert run(files, limit=4, sample=2, seed=7, shuffle=False) == 0
    drawn = [row[1:4] for row in read(files)]
    assert len(drawn) == 2 and drawn == [line for line in LINES[:4] if line in drawn]
    assert counts_of(files)["triples read"] == 4
    assert counts_of(files)["dropped: not in the sample"] == counts_of(files)["triples kept"] == 2


def test_unknown_ids_and_triples_of_one_passage_are_dropped_and_counted(files):
    given = [*LINES, ("q9", "d9", "d8"), ("q1", "d8", "d1"), ("q1", "d1", "d8"), ("q1", "d8", "d8"), ("q1", "d1", "d1")]
    assert run(files, given, unknown_ids="drop", shuffle=False) == 0
    assert [row[1:4] for row in read(files)] == LINES
    counts = counts_of(files)
    assert counts["triples read"] == 10
    assert [counts[f"dropped: unknown {name}"] for name in ("query", "positive", "negative")] == [1, 2, 1]
    assert counts["triples kept"] == 5
    assert counts["dropped: positive and negative are one passage"] == 1


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_blocks_do_not_matter(files, monkeypatch, capsys, rows):
    small = partial(lines.iter_blocks, size=40)
    monkeypatch.setattr(import_triples, "LOOKED_UP", rows)
    monkeypatch.setattr(released_triples, "iter_blocks", small)
    assert run(files, shuffle=False) == 0
    assert [row[1:4] for row in read(files)] == LINES
    assert run(files, [*LINES, ("q1", "d8", "d9")]) == 1
    assert "row 6: found the id 'd8' of no passage" in capsys.readouterr().err


BAD = [
    ([*LINES, "q1\td9"], "triples.tsv: row 6: found 2 TAB-separated fields, expected 3 fields"),
    (["q1\td9"], "triples.tsv: row 1: found 2 TAB-separated fields"),
    ([*LINES, "q1\td9\td3\td1"], "row 6: found 4 TAB-separated fields"),
    ([LINES[0], "", LINES[1]], "row 2: found an empty line"),
    ([LINES[0], "q1\t\td3"], "row 2: found an empty positive"),
    ([LINES[0], "q1\td9\ta text"], "row 2: found texts, expected ids"),
    ([*LINES, ("q1", "d9", "d8"), ("q8", "d9", "d3")], "row 6: found the id 'd8' of no passage, expected one of"),
    ([*LINES, ("q8", "d7", "d3")], "row 6: found the id 'q8' of no query"),
    ([("what is a list", "A list is a row.", "Trees grow."), *LINES], "row 1: found texts, expected ids, as in qidpid"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=[message[-40:] for _, message in BAD])
def test_bad_lines_are_refused_with_their_row(files, capsys, given, message):
    assert run(files, given) == 1
    (line,) = (line for line in capsys.readouterr().err.splitlines() if " INFO " not in line)
    assert message in line
    assert not {"out.parquet", "counts.json"} & {path.name for path in files.iterdir()}


def test_a_file_of_another_collection_is_refused(files, capsys):
    assert run(files, []) == run(files, [("1", "2", "3")], unknown_ids="drop") == run(files, [("q1", "d1", "d1")]) == 1
    assert "found no triple of known ids and two passages among 1" in capsys.readouterr().err
