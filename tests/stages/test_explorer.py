import re

import pytest

from cort import explorer
from cort.config.evaluation import Explorer
from cort.formats.tables import QRELS, read_table
from cort.runtime.sections import default_of
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


@pytest.fixture
def explored(words, tmp_path):
    """A function that runs the stage with the experiment, or with another one; the folder of the page."""

    def run(*more, words=words):
        assert explorer.main([*words, *more]) == 0
        return tmp_path / "page"

    return run


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explorer")
    assert explorer.main(write_experiment(folder)) == 0
    return folder / "page"


def data_of(page, name):
    """The content of a file of data."""
    found, content = unpack(page / "data" / f"{name}.js")
    assert found == name
    return content


def queries_of(page):
    parts = (data_of(page, f"results-{number}") for number in range(len(data_of(page, "index")["shards"])))
    return [one for part in parts for one in part]


def values_of(page):
    return [data_of(page, f"values-{number}") for number in range(len(SYSTEMS))]


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
        shown = record["docs"][: record["relevant"] + default_of(Explorer, "texts")]
        assert record["texts"] == [text_of_passage(int(one[1:])) for one in shown]
        assert len(record["docs"]) == len(set(record["docs"]))


def test_passages_come_by_their_best_rank(page):
    record = queries_of(page)[7]
    ranks = [
        min(one.index(place) for one in record["rankings"] if place in one)
        for place in range(record["relevant"], len(record["docs"]))
    ]
    assert ranks == sorted(ranks)


def test_systems_may_find_nothing(explored, tmp_path):
    for number in range(len(SYSTEMS)):
        (tmp_path / f"{number}.trec").write_bytes(b"")
    assert all(record["rankings"] == [[]] * len(SYSTEMS) for record in queries_of(explored()))


@pytest.mark.parametrize("number", range(len(SYSTEMS)))
def test_values_are_those_of_all_queries(page, number):
    found = values_of(page)[number]
    expected = values(SYSTEMS[number])
    for column, measure in enumerate(MEASURES):
        assert found["measures"][column] == [row[measure] for row in expected.values()]
    for query, judged in judgements().items():
        ranking = rankings(SYSTEMS[number]).get(query, [])
        ranks = [rank for rank, one in enumerate(ranking, 1) if judged.get(one, 0) > 0]
        assert found["first"][query] == (ranks[0] if ranks else 0)
        assert found["judged"][query] == (int(ranking[0] in judged) if ranking else None)


def test_a_passage_is_judged_where_its_document_is(explored, tmp_path):
    page = explored(words=write_experiment(tmp_path, documents=True))
    # Four passages are a document.
    graded = [{place // 4 for place in judged} for judged in judgements().values()]
    for query, record in enumerate(queries_of(page)):
        known = [int(one[1:].partition("#")[0]) in graded[query] for one in record["docs"]]
        assert [grade is not None for grade in record["grades"]] == known
    for system, found in zip(SYSTEMS, values_of(page), strict=True):
        tops = [rankings(system).get(query, []) for query in range(QUERIES_COUNT)]
        expected = [int(top[0] // 4 in own) if top else None for top, own in zip(tops, graded, strict=True)]
        assert found["judged"] == expected
        assert {*found["judged"]} >= {0, 1}


def test_the_index_names_what_there_is(page):
    index = data_of(page, "index")
    assert (index["dataset"], index["split"], index["depth"]) == ("toy", "test", DEPTH)
    assert (tuple(index["systems"]), tuple(index["measures"])) == (SYSTEMS, MEASURES)
    assert index["queries"] == [text_of_query(one) for one in range(QUERIES_COUNT)]
    assert index["shards"][0] == 0
    means = [sum(row["RR@10"] for row in values(system).values()) for system in SYSTEMS]
    assert index["pair"] == [1 + (means[2] > means[1]), 0]
    assert index["texts"] == default_of(Explorer, "texts")


def test_the_same_inputs_give_the_same_bytes(explored, page):
    once = contents(page)
    assert {"index.html", "explorer.js", "explorer.css", "data/index.js"} <= once.keys()
    assert contents(explored()) == once


@pytest.mark.parametrize("kept", [0, 7])
def test_relevant_passages_and_the_first_of_the_others_have_their_texts(explored, page, kept):
    for before, after in zip(queries_of(page), queries_of(explored("--texts", str(kept))), strict=True):
        assert after["texts"] == before["texts"][: after["relevant"] + kept]
        assert {**after, "texts": None} == {**before, "texts": None}


def test_long_texts_end_with_their_length_and_results_may_be_fewer(explored, monkeypatch):
    monkeypatch.setattr("cort.reporting.explorer.page.LONGEST", 20)
    records = queries_of(explored("--results", "3"))
    text = text_of_passage(int(records[7]["docs"][0][1:]))
    assert records[7]["texts"][0] == f"{text[:20]} … (the first 20 of {len(text):,} characters)"
    assert {len(ranking) for one in records for ranking in one["rankings"]} == {0, 3}


def test_queries_without_judgements_come_last_and_have_no_values(explored, page, tmp_path):
    other = explored(words=write_experiment(tmp_path, judged=30))
    index, whole = (data_of(one, "index") for one in (other, page))
    assert (index["ids"], index["judged"], index["measures"]) == (whole["ids"], 30, whole["measures"])
    assert not {"judged", "overlap"} & whole.keys()
    for system, found in zip(SYSTEMS, values_of(other), strict=True):
        reached = [one[MEASURES[0]] for one in values(system).values()]
        assert found["measures"][0] == [*reached[:30], *[None] * (len(reached) - 30)]
    for query, (found, judged) in enumerate(zip(queries_of(other), queries_of(page), strict=True)):
        assert {*found["docs"]} <= {*judged["docs"]}
        assert query >= 30 or found == judged
        assert query < 30 or (found["relevant"], {*found["grades"]}) == (0, {None})
        rankings_of = [
            [[one["docs"][place] for place in ranking] for ranking in one["rankings"]] for one in (found, judged)
        ]
        assert rankings_of[0] == rankings_of[1]


def test_a_split_without_judgements_has_the_first_passages_of_each_query(explored, tmp_path):
    page = explored(words=write_experiment(tmp_path, judged=0))
    index, tops = data_of(page, "index"), [one["tops"] for one in values_of(page)]
    assert (len(index["ids"]), index["measures"], index["overlap"], index["pair"]) == (QUERIES_COUNT, [], 10, [1, 0])
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
    ("change", "said"),
    [
        (["--systems", "a", "b"], "--runs: found 3 files, expected 2"),
        (["--per-query", "x"], "--per-query: found 1 files, expected 3"),
        (["--relevance-level", "9"], "found no relevant passage, expected one of grade 9 or higher"),
    ],
)
def test_options_that_do_not_fit_are_refused(words, complaint, tmp_path, change, said):
    start = words.index(change[0]) if change[0] in words else len(words)
    end = next((place for place in range(start + 1, len(words)) if words[place].startswith("--")), len(words))
    assert said in complaint(explorer.main, [*words[:start], *words[end:], *change], tmp_path / "page")


def test_the_page_asks_for_nothing_elsewhere(page):
    texts = {name: (page / name).read_text("utf-8") for name in ("index.html", "explorer.js", "explorer.css")}
    foreign = r"https?://(?!www\.w3\.org/2000/svg)|@import|innerHTML|outerHTML|insertAdjacent|eval\("
    assert not any(re.search(foreign, text) for text in texts.values())
    assert "default-src 'none'" in texts["index.html"]
    assert "unsafe" not in texts["index.html"]


@pytest.mark.parametrize("documents", [False, True])
def test_relevant_documents_that_the_collection_lacks_are_shown_as_such(explored, tmp_path, documents):
    words = write_experiment(tmp_path, documents=documents)
    qrels = read_table(tmp_path / "qrels.parquet", QRELS).to_pylist()
    rows = [*(tuple(row.values()) for row in qrels), (qrels[0]["query_id"], "gone", 1)]
    write_rows(tmp_path / "qrels.parquet", QRELS, rows)
    texts = [text for record in queries_of(explored(words=words)) for text in record["texts"]]
    assert texts.count("(The collection lacks this document.)") == 1
