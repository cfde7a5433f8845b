"""Searches with Lucene, in this process and in one of its own, against Anserini's own command.

Anserini and pyjnius are the real ones: Java starts once in this process.
"""

import json
import shutil
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

from cort import index, retrieve
from cort.config.lexical import Language
from cort.formats import tables
from cort.formats.cleaning import convert
from cort.formats.runs import read_run, write_run
from cort.retrieval import lucene
from cort.retrieval.anserini import IMPACTS, run_java
from cort.retrieval.lucene import (
    Lucene,
    LuceneProcess,
    Parameters,
    TermScore,
    as_printed,
    lower_ties,
    rank_all,
    read_explanation,
    start_java,
)
from cort.runtime.errors import InputError
from tests.support import german
from tests.support.common import TEXTS, command_line, write_rows


@pytest.fixture(scope="module")
def indexes(world, tmp_path_factory):
    """An index per form of the texts."""
    folder = tmp_path_factory.mktemp("indexes")
    passages = tables.read_table(world.path("passages.parquet"), tables.PASSAGES)
    # Equal texts tie; texts of one word more and more often give scores that are nearly equal.
    texts = [*TEXTS, *["tied words"] * 12, *[f"near {'word ' * n}" for n in range(40, 70)]]
    odd = pa.table({"doc_id": [f"odd,[{n}]/ö" for n in range(len(texts))], "text": texts}, schema=tables.PASSAGES)
    tables.write_table(folder / "passages.parquet", pa.concat_tables([passages, odd]))
    for form in ("raw", "cort"):
        options = ["--passages", str(folder / "passages.parquet"), "--cleaning", form, "--output", str(folder / form)]
        assert index.main(["bm25", *options, "--memory-mb", "300"]) == 0
    return folder


K1_B = Parameters(1.1, 0.3).similarity


def lowered_one_by_one(scores):
    """Anserini's loop over the results of a query."""
    unit, step = np.float32(1e-4), np.float32(1e-6)
    lowered = np.floor(scores.astype(np.float64) * 1e4 + 0.5).astype(np.float32) / np.float32(1e4)
    ties = 0
    for at in range(1, len(lowered)):
        ties = 0 if lowered[at - 1] - lowered[at] > unit else ties + 1
        lowered[at] -= step * np.float32(ties)
    return lowered.astype(np.float64)


@pytest.mark.parametrize("base", [0, 1, 40, 1000])
@pytest.mark.parametrize("spread", [1, 5, 300])
def test_ties_are_lowered_as_anserini_does(base, spread):
    generator = np.random.default_rng(7)
    for count in (0, 1, 2, 7, 60, 500):
        steps = generator.integers(1, spread + 1, count) * 1e-4 + generator.choice([0, 1e-5, 4.9e-5])
        scores = np.sort((base + steps).astype(np.float32))[::-1]
        assert lower_ties(scores).tolist() == lowered_one_by_one(scores).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "damage"), [("segments_1", "flip"), ("_0.si", "cut"), ("_0.fnm", "flip")])
def test_a_damaged_index_is_reported(indexes, tmp_path, name, damage):
    copy = shutil.copytree(indexes / "raw", tmp_path / "index")
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[:-9] if damage == "cut" else bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(InputError, match=r"found what Lucene cannot read (.*), expected the index that was built"):
        Lucene(copy)


def run_of_anserini(folder, queries, form, language, depth):
    """What Anserini's own command finds for queries, (query_id, text), in the index of a folder."""
    topics, run = folder / "topics.jsonl", folder / "anserini.trec"
    ids, texts = zip(*queries, strict=True)
    converted = convert(pa.array(texts), form).to_pylist()
    # Anserini sorts queries by their ids.
    lines = [json.dumps({"id": f"{n:09d}", "title": text}) + "\n" for n, text in enumerate(converted)]
    topics.write_text("".join(lines), "ascii")
    words = f"-index {folder / 'index'} -topics {topics} -topicReader JsonString -output {run} -hits {depth}"
    words += f" -bm25 -bm25.k1 1.1 -bm25.b 0.3 -language {language}"
    run_java("io.anserini.search.SearchCollection", words.split(), 300, 1)
    return [ranking._replace(query_id=ids[int(ranking.query_id)]) for ranking in read_run(run)]


def check_search(folder, queries, form, language="en", depth=20):
    """A search, and the stage's run, are those of Anserini's command; returns the search's rankings."""
    expected = run_of_anserini(folder, queries, form, language, depth)
    with LuceneProcess(folder / "index", 3, 300) as process:
        assert process.form == (form, language)
        rankings = list(rank_all(process, queries, K1_B, depth))
        alone = [ranking for query in queries for ranking in rank_all(process, [query], K1_B, depth)]
    for found in (rankings, alone):
        found = [ranking for ranking in found if ranking.doc_ids]
        assert [one[:2] for one in found] == [one[:2] for one in expected]
        assert [one.scores.tolist() for one in found] == [one.scores.tolist() for one in expected]
    table = write_rows(folder / "queries.parquet", tables.QUERIES, queries)
    named = {"index": folder / "index", "queries": table, "k1": 1.1, "b": 0.3, "depth": depth, "tag": "t"}
    assert retrieve.main(["bm25", *command_line(named | {"output": folder / "run.trec", "memory-mb": 300})]) == 0
    write_run(folder / "expected.trec", expected, "t")
    assert (folder / "run.trec").read_bytes() == (folder / "expected.trec").read_bytes()
    return rankings


@pytest.mark.slow
@pytest.mark.parametrize("form", ["raw", "cort"])
def test_results_are_those_of_anserinis_own_command(indexes, world, tmp_path, form, monkeypatch):
    shutil.copytree(indexes / form, tmp_path / "index")
    texts = [*world.query_texts, *TEXTS, "tied", "near word", "near word " * 9, "absent", "the of", "a line\nand more"]
    monkeypatch.setattr(lucene, "QUERIES_AT_ONCE", 5)
    found = check_search(tmp_path, [(f"q{n}", text) for n, text in enumerate(texts)], form)
    assert sum(bool(ranking.doc_ids) for ranking in found) > len(world.query_texts)
    assert [ranking.query_id for ranking in found] == [f"q{n}" for n in range(len(texts))]


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "de"])
def test_an_index_and_its_queries_have_the_same_language(tmp_path, language):
    write_rows(tmp_path / "passages.parquet", tables.PASSAGES, german.PASSAGES.items())
    named = {"passages": tmp_path / "passages.parquet", "output": tmp_path / "index", "memory-mb": 300}
    assert index.main(["bm25", *command_line(named | {"language": language})]) == 0
    rankings = check_search(tmp_path, list(german.QUERIES.items()), "raw", language, 5)
    found = {ranking.query_id: {*ranking.doc_ids[:2]} & german.RELEVANT[ranking.query_id] for ranking in rankings}
    assert [len(passages) for passages in found.values()] == [2 if language == "de" else 1] * 4
    with LuceneProcess(tmp_path / "index", 1, 300) as process:
        terms = process.explain(german.QUERIES["q4"], K1_B, "d10")
    assert [term.term for term in terms] == (["strass"] if language == "de" else [])


@pytest.mark.slow
def test_any_number_of_terms_is_searched_for(indexes):
    many = " ".join(f"absent{n}" for n in range(2000))
    with LuceneProcess(indexes / "raw", 1, 300) as process:
        found, expected = process.search([f"{many} oil", "oil"], K1_B, 5)
    assert (found.doc_ids, found.scores.tolist()) == (expected.doc_ids, expected.scores.tolist())


@pytest.mark.slow
def test_anserini_has_an_analyser_of_each_language():
    languages = {*get_args(Language)} - {"en"}
    assert all(start_java(300).AnalyzerMap.getLanguageSpecificAnalyzer(language) for language in languages)
    assert len(languages) == 25


@pytest.mark.slow
def test_terms_add_up_to_the_score(indexes, world):
    with LuceneProcess(indexes / "cort", 1, 300) as process:
        for text in (*world.query_texts[:4], "lists lists of files", "near words", "tied"):
            [ranking] = process.search([text], K1_B, 10)
            for doc_id, score in zip(ranking.doc_ids, ranking.scores.tolist(), strict=True):
                terms = process.explain(text, K1_B, doc_id)
                # Scores are rounded to four decimals, and those of ties lowered.
                assert sum(one.score for one in terms) == pytest.approx(score, abs=1e-4)
                assert all(0 < one.score <= one.boost * one.idf for one in terms)
        [twice] = [one for one in process.explain("lists lists of files", K1_B, "odd,[0]/ö") if one.term == "list"]
        assert (twice.boost, twice.frequency, twice.passages) == (2, 1, 1)
        assert process.explain("absent", K1_B, "odd,[0]/ö") == []
        assert process.explain("tied", K1_B, "no such passage") == []
    assert process._process.returncode == 0


@pytest.mark.slow
def test_the_end_of_the_process_is_reported(indexes, tmp_path):
    with LuceneProcess(indexes / "raw", 1, 300) as process:
        process._process.kill()
        process._process.wait()
        with pytest.raises(InputError, match="Lucene: found its process ended with status -9, expected answers"):
            process.search(["tied"], K1_B, 5)
    with pytest.raises(InputError, match=r"found no complete manifest\.json"):
        LuceneProcess(tmp_path, 1, 300)


def test_a_great_score_of_impacts_is_refused(indexes, monkeypatch):
    monkeypatch.setattr(lucene, "EXACT", 1)
    opened = Lucene(indexes / "raw")
    opened._text = IMPACTS
    with pytest.raises(InputError, match=r"found the score .*, expected scores below 1, which Lucene computes exactly"):
        opened.search(["tied"], K1_B, 5)


def test_scores_are_rounded_as_anserini_prints_them():
    scores = np.array([1.0078125, 2.5, 33.00012, 33.00012, 0.1234565], dtype=np.float32).astype(np.float64)
    found = as_printed(["a", "b", "d", "c", "e"], scores)
    assert found.doc_ids == ["c", "d", "b", "a", "e"]
    assert [f"{one:.6f}" for one in found.scores] == ["33.000118", "33.000118", "2.500000", "1.007813", "0.123457"]
    assert as_printed([], np.empty(0)).doc_ids == []


# Lucene 9 on two terms, one of which the query has twice.
EXPLANATION = """5.5 = sum of:
  3.5 = weight(contents:list in 12) [BM25Similarity], result of:
    3.5 = score(freq=2.0), computed as boost * idf * tf from:
      2.0 = boost
      2.5 = idf, computed as log(1 + (N - n + 0.5) / (n + 0.5)) from:
        3 = n, number of documents containing term
        60 = N, total number of documents with field
      0.7 = tf, computed as freq / (freq + k1 * (1 - b + b * dl / avgdl)) from:
        4.0 = freq, occurrences of term within document
        0.9 = k1, term saturation parameter
        17.0 = dl, length of field (approximate)
  2.0 = weight(contents:n = boost in 12) [BM25Similarity], result of:
    2.0 = score(freq=1.0), computed as boost * idf * tf from:
      4.0 = idf, computed as log(1 + (N - n + 0.5) / (n + 0.5)) from:
        1 = n, number of documents containing term
        60 = N, total number of documents with field
      0.5 = tf, computed as freq / (freq + k1 * (1 - b + b * dl / avgdl)) from:
        1.0 = freq, occurrences of term within document
"""


def test_lucenes_explanation_is_read():
    expected = [TermScore("list", 2, 4, 3, 2.5, 3.5), TermScore("n = boost", 1, 1, 1, 4, 2)]
    assert read_explanation(EXPLANATION) == expected
    # For a single term, there is no sum.
    assert read_explanation(EXPLANATION.partition("\n")[2]) == expected
    assert read_explanation("0.0 = No matching clauses\n") == []
