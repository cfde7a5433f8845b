import re

import pytest

from cort import explorer
from cort.formats.tables import PASSAGES, QRELS, QUERIES, read_table
from tests.support.common import contents, write_rows
from tests.support.explorer import (
    MEASURES,
    QUERIES_COUNT,
    SYSTEMS,
    judgements,
    rankings,
    score,
    text_of_passage,
    text_of_query,
    unpack,
    values,
    write_experiment,
)

DEPTH = 20


@pytest.fixture
def words(tmp_path):
    return write_experiment(tmp_path)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explorer")
    assert explorer.main(write_experiment(folder)) == 0
    return folder / "page"


def queries_of(page):
    index = unpack(page / "data" / "index.js")[1]
    return [one for number in range(len(index["shards"])) for one in unpack(page / "data" / f"results-{number}.js")[1]]


def size_of(page):
    """Bytes without the record of checksums."""
    return sum(path.stat().st_size for path in page.rglob("[!.]*") if path.is_file())


def test_queries_are_as_runs_and_judgements_have_them(page):
    records = queries_of(page)
    assert len(records) == QUERIES_COUNT
    for query, (record, judged) in enumerate(zip(records, judgements().values(), strict=True)):
        whole = [[f"p{one}" for one in rankings(system).get(query, [])] for system in SYSTEMS]
        assert [[record["docs"][one] for one in ranking] for ranking in record["rankings"]] == [
            ranking[:DEPTH] for ranking in whole
        ]
        assert record["scores"] == [[score(rank) for rank in range(1, min(len(one), DEPTH) + 1)] for one in whole]
        relevant = [f"p{one}" for one in sorted(judged, key=lambda one: -judged[one]) if judged[one] > 0]
        assert record["docs"][: record["relevant"]] == relevant
        ranks = [[one.index(doc) + 1 if doc in one else 0 for doc in relevant] for one in whole]
        assert record["ranks"] == ranks
        assert record["grades"] == [judged.get(int(one[1:])) for one in record["docs"]]
        assert record["texts"] == [text_of_passage(int(one[1:])) for one in record["docs"]]
        assert len(record["docs"]) == len(set(record["docs"]))


def test_passages_come_by_their_best_rank(page):
    record = queries_of(page)[7]
    ranks = [
        min(one.index(place) for one in record["rankings"] if place in one)
        for place in range(record["relevant"], len(record["docs"]))
    ]
    assert ranks == sorted(ranks)


def test_systems_may_find_nothing(words, tmp_path):
    for number in range(len(SYSTEMS)):
        (tmp_path / f"{number}.trec").write_bytes(b"")
    assert explorer.main(words) == 0
    assert all(record["rankings"] == [[]] * len(SYSTEMS) for record in queries_of(tmp_path / "page"))


@pytest.mark.parametrize("number", range(len(SYSTEMS)))
def test_values_are_those_of_all_queries(page, number):
    name, found = unpack(page / "data" / f"values-{number}.js")
    assert name == f"values-{number}"
    expected = values(SYSTEMS[number])
    for column, measure in enumerate(MEASURES):
        one = found["measures"][column]
        assert [one["values"][place] for place in one["places"]] == [row[measure] for row in expected.values()]
    for query, judged in judgements().items():
        ranking = rankings(SYSTEMS[number]).get(query, [])
        ranks = [rank for rank, one in enumerate(ranking, 1) if judged.get(one, 0) > 0]
        assert found["first"][query] == (ranks[0] if ranks else 0)
        assert found["judged"][query] == (int(ranking[0] in judged) if ranking else None)


def test_the_index_names_what_there_is(page):
    name, index = unpack(page / "data" / "index.js")
    assert name == "index"
    assert (index["dataset"], index["split"], index["depth"]) == ("toy", "test", DEPTH)
    assert (tuple(index["systems"]), tuple(index["measures"])) == (SYSTEMS, MEASURES)
    assert index["queries"] == [text_of_query(one) for one in range(QUERIES_COUNT)]
    assert index["shards"][0] == 0
    means = [sum(row["RR@10"] for row in values(system).values()) for system in SYSTEMS]
    assert index["pair"] == [1 + (means[2] > means[1]), 0]
    assert index["cut"]["left_out"] == 0


def test_the_same_inputs_give_the_same_bytes(words, page, tmp_path):
    once = contents(page)
    assert {"index.html", "explorer.js", "explorer.css", "data/index.js"} <= once.keys()
    assert explorer.main(words) == 0
    assert contents(tmp_path / "page") == once


def test_texts_beyond_the_cap_are_left_out_and_relevant_ones_stay(words, page, tmp_path, monkeypatch):
    whole = queries_of(page)
    size = size_of(page)
    monkeypatch.setattr("cort.reporting.explorer.page.BYTES_PER_MEGABYTE", 1)
    monkeypatch.setattr("cort.reporting.explorer.page.RESERVE", 300)
    cap = size - 1500
    assert explorer.main([*words, "--megabytes", str(cap)]) == 0
    cut_page = tmp_path / "page"
    assert cap - 3000 < size_of(cut_page) <= cap
    found, cut = queries_of(cut_page), unpack(cut_page / "data" / "index.js")[1]["cut"]
    missing = sum(text is None for one in found for text in one["texts"])
    assert (cut["left_out"], cut["texts"]) == (missing, sum(len(one["texts"]) for one in found))
    assert missing > 0
    for before, after in zip(whole, found, strict=True):
        kept = after["texts"].index(None) if None in after["texts"] else len(after["texts"])
        assert kept >= min(after["relevant"] + cut["others"], len(after["texts"]))
        assert after["texts"] == before["texts"][:kept] + [None] * (len(before["texts"]) - kept)
        assert {**after, "texts": None} == {**before, "texts": None}


def test_ids_and_scores_stay_though_they_exceed_the_cap(words, tmp_path, monkeypatch):
    monkeypatch.setattr("cort.reporting.explorer.page.BYTES_PER_MEGABYTE", 1)
    assert explorer.main([*words, "--megabytes", "1"]) == 0
    records = queries_of(tmp_path / "page")
    assert all(text is None for one in records for text in one["texts"][one["relevant"] :])
    assert all(text is not None for one in records for text in one["texts"][: one["relevant"]])


def test_long_texts_end_with_their_length(words, tmp_path, monkeypatch):
    monkeypatch.setattr("cort.reporting.explorer.page.LONGEST", 20)
    assert explorer.main(words) == 0
    record = queries_of(tmp_path / "page")[7]
    text = text_of_passage(int(record["docs"][0][1:]))
    assert record["texts"][0] == f"{text[:20]} … (the first 20 of {len(text):,} characters)"


def test_fewer_results(words, tmp_path):
    assert explorer.main([*words, "--results", "3"]) == 0
    assert {len(ranking) for one in queries_of(tmp_path / "page") for ranking in one["rankings"]} == {0, 3}


def test_queries_without_judgements_come_last_and_have_no_values(page, tmp_path):
    assert explorer.main(write_experiment(tmp_path, judged=30)) == 0
    index, whole = (unpack(one / "data" / "index.js")[1] for one in (tmp_path / "page", page))
    assert (index["ids"], index["judged"], index["measures"]) == (whole["ids"], 30, whole["measures"])
    assert not {"judged", "overlap"} & whole.keys()
    for number, system in enumerate(SYSTEMS):
        found = unpack(tmp_path / "page" / "data" / f"values-{number}.js")[1]
        reached = [one[MEASURES[0]] for one in values(system).values()]
        measure = found["measures"][0]
        shown = [measure["values"][place] for place in measure["places"]]
        assert shown == [*reached[:30], *[None] * (len(reached) - 30)]
    for query, (found, judged) in enumerate(zip(queries_of(tmp_path / "page"), queries_of(page), strict=True)):
        assert {*found["docs"]} <= {*judged["docs"]}
        assert query >= 30 or found == judged
        assert query < 30 or (found["relevant"], {*found["grades"]}) == (0, {None})
        rankings_of = [
            [[one["docs"][place] for place in ranking] for ranking in one["rankings"]] for one in (found, judged)
        ]
        assert rankings_of[0] == rankings_of[1]


def test_a_split_without_judgements_has_the_first_passages_of_each_query(tmp_path):
    assert explorer.main(write_experiment(tmp_path, judged=0)) == 0
    index = unpack(tmp_path / "page" / "data" / "index.js")[1]
    assert (len(index["ids"]), index["measures"], index["overlap"], index["pair"]) == (QUERIES_COUNT, [], 10, [1, 0])
    tops = [unpack(tmp_path / "page" / "data" / f"values-{number}.js")[1]["tops"] for number in range(len(SYSTEMS))]
    for query in range(QUERIES_COUNT):
        for number, system in enumerate(SYSTEMS):
            for other, found in zip(SYSTEMS, tops, strict=True):
                both = {*rankings(system).get(query, [])[:10]} & {*rankings(other).get(query, [])[:10]}
                assert len({*tops[number][query]} & {*found[query]}) == len(both)


def test_no_file_of_data_has_markup(page):
    for path in (page / "data").iterdir():
        assert re.fullmatch(rb'shard\("[\w-]+","[\w+/=]+"\);\n', path.read_bytes())
    assert "onerror" not in (page / "index.html").read_text()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--systems", "a", "b"], "--runs: found 3 files, expected 2, one per system; name a file for each system"),
        (["--systems", "a", "b", "a"], "--systems: found 'a' twice, expected each system once; drop one"),
        (["--per-query", "x"], "--per-query: found 1 files, expected 3, one per system"),
        (["--relevance-level", "9"], "found no relevant passage, expected one of grade 9 or higher"),
    ],
)
def test_bad_options_are_refused(words, tmp_path, capsys, change, complaint):
    assert explorer.main([*words, *change]) == 1
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize(
    ("name", "schema", "complaint"),
    [
        ("passages", PASSAGES, "passages.parquet: found no doc_id 'p"),
        ("queries", QUERIES, "queries.parquet: found no query_id 'q3', expected every query"),
    ],
)
def test_missing_texts_are_refused(words, tmp_path, capsys, name, schema, complaint):
    write_rows(tmp_path / f"{name}.parquet", schema, [(f"{name[0]}{one}", "") for one in range(3)])
    assert explorer.main(words) == 1
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


def test_judgements_of_other_queries_are_refused(words, tmp_path, capsys):
    other = write_rows(tmp_path / "other.parquet", QRELS, [("q0", "p3", 1)])
    assert explorer.main([*words, "--qrels", other]) == 1
    expected = "found no judgement of query 'q1', expected judgements of every query that was measured"
    assert expected in capsys.readouterr().err


def test_the_page_is_small_and_asks_for_nothing_elsewhere(page):
    texts = {name: (page / name).read_text("utf-8") for name in ("index.html", "explorer.js", "explorer.css")}
    assert sum(text.count("\n") for name, text in texts.items() if name != "index.html") < 1100
    assert max(len(line) for text in texts.values() for line in text.splitlines()) <= 120
    foreign = r"https?://(?!www\.w3\.org/2000/svg)|@import|innerHTML|outerHTML|insertAdjacent|eval\("
    assert not any(re.search(foreign, text) for text in texts.values())
    assert "default-src 'none'" in texts["index.html"]
    assert "unsafe" not in texts["index.html"]


@pytest.mark.parametrize("documents", [False, True])
def test_relevant_documents_that_the_collection_lacks_are_shown_as_such(tmp_path, documents):
    words = write_experiment(tmp_path, documents=documents)
    qrels = read_table(tmp_path / "qrels.parquet", QRELS).to_pylist()
    rows = [*(tuple(row.values()) for row in qrels), (qrels[0]["query_id"], "gone", 1)]
    write_rows(tmp_path / "qrels.parquet", QRELS, rows)
    assert explorer.main(words) == 0
    texts = [text for record in queries_of(tmp_path / "page") for text in record["texts"]]
    assert texts.count("(The collection lacks this document.)") == 1
