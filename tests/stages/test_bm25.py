import json
import math
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cort import index as indexing
from cort import retrieve
from cort.evaluation.measures import evaluate_run
from cort.formats import tables
from cort.formats.runs import read_run
from cort.retrieval import anserini, index_bm25, lucene, tune_bm25
from cort.runtime.errors import InputError
from tests.support.common import command_line, write_rows

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "squad"

# Words that neither the stemmer nor the stop word list changes; fewer than 40 per passage, because Lucene keeps longer
# lengths only roughly.
WORDS = ("oil", "war", "gas", "map", "king", "rock", "ship", "gold", "tax")
PASSAGES = {f"d{n}": " ".join(WORDS[(n * step) % 9] for step in range(1, 4 + n % 5)) for n in range(40)}
PASSAGES |= {"empty": " ", "éé": "oil oil map", **dict.fromkeys(("z/9", "z/10", "z/1"), "zebra")}
QUERIES = {"q:numpy/lib/x.py:average": "oil war", "none": "nonesuch", "10": "gold, tax & ship gold", "empty": ""}
QUERIES |= {"2": "tax\tgas\r\n\u2028\x00rock", "stop": "the of and", "ties": "Zebras"}
QUERIES |= {"syntax": '"king AND (map" : - ~ *'}
TERMS = {"q:numpy/lib/x.py:average": "oil war", "10": "gold tax ship gold", "2": "tax gas rock", "ties": "zebra"}
TERMS |= {"syntax": "king map"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a folder of bm25")
    write_rows(folder / "passages.parquet", tables.PASSAGES, PASSAGES.items())
    write_rows(folder / "queries.parquet", tables.QUERIES, QUERIES.items())
    index(folder, folder / "lucene")
    return folder


def indexed(folder, output, **changes):
    return {"passages": folder / "passages.parquet", "memory_mb": 256, "output": output} | changes


def index(folder, output, **changes):
    assert indexing.main(["bm25", *command_line(indexed(folder, output, **changes))]) == 0
    return output


def searched(data, output, **changes):
    named = {"index": data / "lucene", "queries": data / "queries.parquet", "tag": "bm25", "memory_mb": 256}
    return named | {"output": output} | changes


def search(data, output, **changes):
    assert retrieve.main(["bm25", *command_line(searched(data, output, **changes))]) == 0
    return output


def bm25_scores(bags, query, k1, b):
    """BM25 as Lucene has it, of bags of words with their frequencies."""
    average = sum(sum(bag.values()) for bag in bags.values()) / len(bags)
    scores = dict.fromkeys(bags, 0.0)
    for term in query.split():
        having = [doc_id for doc_id, bag in bags.items() if term in bag]
        idf = math.log(1 + (len(bags) - len(having) + 0.5) / (len(having) + 0.5))
        for doc_id in having:
            frequency, length = bags[doc_id][term], sum(bags[doc_id].values())
            scores[doc_id] += idf * frequency / (frequency + k1 * (1 - b + b * length / average))
    return {doc_id: score for doc_id, score in scores.items() if score}


@pytest.fixture(scope="module")
def default_run(data):
    """The run with the default parameters, and what was logged for it."""
    log = data / "default.log"
    return search(data, data / "default.trec", k1=0.9, b=0.4, log=log), log.read_text("utf-8")


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 1.0)])
def test_rankings_are_those_of_the_formula_in_the_order_of_the_queries(data, tmp_path, default_run, k1, b):
    path, log = default_run
    lines = len(path.read_text("utf-8").splitlines())
    assert f"{len(QUERIES)} queries by Lucene, {lines} results, " in log
    assert f"3 of {len(QUERIES)} queries have fewer than 1 results" in log
    path = path if (k1, b) == (0.9, 0.4) else search(data, tmp_path / "run.trec", k1=k1, b=b)
    bags = {doc_id: Counter(text.split()) for doc_id, text in PASSAGES.items() if text.strip()}
    rankings = list(read_run(path))
    assert [ranking.query_id for ranking in rankings] == [query_id for query_id in QUERIES if query_id in TERMS]
    for ranking in rankings:
        # Equal scores of different passages may differ in the last bits of a sum.
        scores = bm25_scores(bags, TERMS[ranking.query_id], k1, b)
        expected = sorted(scores.items(), key=lambda item: (-round(item[1], 5), item[0]))
        assert ranking.doc_ids == [doc_id for doc_id, _ in expected]
        # Four decimals, then ties lowered by .000001 each.
        assert ranking.scores == pytest.approx([score for _, score in expected], abs=2e-4)
    (tied,) = (ranking.doc_ids for ranking in rankings if ranking.query_id == "ties")
    assert tied == ["z/1", "z/10", "z/9"]


def test_a_run_without_any_result_is_empty(data, tmp_path):
    queries = write_rows(tmp_path / "nothing.parquet", tables.QUERIES, [("a", "the"), ("b", "nonesuch")])
    assert search(data, tmp_path / "run.trec", queries=queries).read_bytes() == b""


@pytest.mark.usefixtures("real_starts")
def test_few_results_are_the_first_of_many(data, tmp_path, monkeypatch, default_run):
    monkeypatch.setattr(lucene, "QUERIES_AT_ONCE", 4)
    output = search(data, tmp_path / "with blanks in it" / "run.trec", depth=5, threads=2)
    for found, ranking in zip(read_run(output), read_run(default_run[0]), strict=True):
        assert (found.query_id, found.doc_ids) == (ranking.query_id, ranking.doc_ids[:5])
        assert found.scores.tolist() == ranking.scores[:5].tolist()


def test_threads_change_no_byte_of_a_run(data, tmp_path, monkeypatch, default_run):
    monkeypatch.setattr(lucene, "QUERIES_AT_ONCE", 3)
    for threads in (2, 3):
        run = search(data, tmp_path / "run.trec", k1=0.9, b=0.4, threads=threads)
        assert run.read_bytes() == default_run[0].read_bytes()


def test_segments_of_the_index_do_not_change_the_run(data, tmp_path, monkeypatch, capsys, default_run):
    monkeypatch.setattr(anserini, "DOCUMENTS_PER_SHARD", 1)
    built = index(data, tmp_path / "lucene", threads=3)
    assert f"{len(PASSAGES) - 1} passages indexed, 1 empty ones left out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["lucene"]
    assert search(data, tmp_path / "run.trec", index=built).read_bytes() == default_run[0].read_bytes()


@pytest.mark.parametrize("damage", ["shorten", "delete"])
def test_a_damaged_index_is_refused(data, tmp_path, refused, damage):
    built = shutil.copytree(data / "lucene", tmp_path / "lucene")
    part = next(built.glob("*.cfs"), None) or next(built.glob("*.si"))
    content = part.read_bytes()
    part.unlink()
    if damage == "shorten":
        part.write_bytes(content[:-1])
    line = refused("retrieve bm25", **searched(data, tmp_path / "run.trec", index=built))
    assert line.startswith(f"{built}: found what Lucene cannot read (")
    assert line.endswith("; delete the index and build it again")


def test_index_of_nothing_but_empty_passages_is_refused(tmp_path, refused):
    passages = write_rows(tmp_path / "passages.parquet", tables.PASSAGES, [("a", ""), ("b", "\n")])
    line = refused("index bm25", **indexed(tmp_path, tmp_path / "lucene"))
    assert line.startswith(f"{passages}: found after indexing 0 indexed, 0 unindexable, 2 empty, 0 skipped, 0 errors")
    assert [path.name for path in tmp_path.iterdir()] == ["passages.parquet"]


def test_lost_passages_are_noticed():
    lines = [
        "2026 INFO [main] index.AbstractIndexer (A.java:1) - indexed:        8,841,822",
        "2026 INFO [main] index.AbstractIndexer (A.java:2) - errors:                 1",
    ]
    assert anserini.read_counters(lines, 8_841_822, "p.parquet") == {"indexed": 8_841_822, "errors": 1}
    with pytest.raises(InputError, match=r"^p.parquet: found .* 8841822 indexed, 1 errors, expected 8841823 "):
        anserini.read_counters(lines, 8_841_823, "p.parquet")


def test_parts_hold_any_text_in_ascii(tmp_path):
    batch = pa.record_batch([["é 1", "2"], ["naïve\t\u2028\n😀", '"']], names=["doc_id", "text"])
    anserini.write_shards(index_bm25.texts_of([batch, batch], "raw"), tmp_path)
    parts = sorted(tmp_path.iterdir())
    assert [part.name for part in parts] == ["000000.jsonl", "000001.jsonl"]
    rows = [json.loads(line) for line in parts[1].read_text(encoding="ascii").splitlines()]
    assert rows == [{"id": "é 1", "contents": "naïve\t\u2028\n😀"}, {"id": "2", "contents": '"'}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"index": "."}, ".: found no complete manifest.json, "),
        ({"expansions": "e", "term_weights": "w"}, "--expansions, --term-weights: found both"),
    ],
)
def test_wrong_options_are_refused(data, tmp_path, refused, changes, words):
    command = indexed if "expansions" in changes else searched
    line = refused(f"{'index' if command is indexed else 'retrieve'} bm25", **command(data, tmp_path / "x", **changes))
    assert line.startswith(words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["{", "[1]", '{"k1": 0.9}'])
def test_unreadable_parameters_are_refused(tmp_path, text):
    path = tmp_path / "tuned.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"tuned.json: found .*; delete the file and build it again"):
        lucene.read_parameters(path)


TEXTS = {"d0": "oil war oil", "d1": "gas map king", "d2": "rock oil ship"}


def scores_in(folder, texts, k1=0.9, b=0.4, **options):
    """Index texts with more options, search for one query; the scores of its results."""
    folder.mkdir(exist_ok=True)
    write_rows(folder / "passages.parquet", tables.PASSAGES, texts.items())
    write_rows(folder / "queries.parquet", tables.QUERIES, [("q", "gold king oil")])
    index(folder, folder / "lucene", **options)
    (ranking,) = read_run(search(folder, folder / "run.trec", k1=k1, b=b))
    return dict(zip(ranking.doc_ids, ranking.scores.tolist(), strict=True))


def test_an_expanded_index_ranks_as_one_of_the_longer_texts(tmp_path):
    rows = zip(TEXTS, [["gold tax", "oil"], [], ["king"]], strict=True)
    expansions = write_rows(tmp_path / "expansions.parquet", tables.EXPANSIONS, rows)
    longer = {"d0": "oil war oil gold tax oil", "d1": "gas map king", "d2": "rock oil ship king"}
    bags = {doc_id: Counter(text.split()) for doc_id, text in longer.items()}
    expected = bm25_scores(bags, "gold king oil", 0.9, 0.4)
    assert scores_in(tmp_path / "x", TEXTS, expansions=expansions) == pytest.approx(expected, abs=2e-4)


def test_weighted_terms_rank_as_repeated_words_do(tmp_path):
    weights = {"d0": {"oil": 40, "war": 1}, "d1": {"king": 7, "gas": 2, "gold": 1}, "d2": {"oil": 3}}
    rows = [(doc_id, list(bag), list(bag.values())) for doc_id, bag in weights.items()]
    path = write_rows(tmp_path / "w.parquet", tables.TERM_WEIGHTS, rows)
    found = scores_in(tmp_path / "weighted", TEXTS, k1=10, b=0.9, term_weights=path)
    repeated = {doc_id: " ".join(word for word, n in bag.items() for _ in range(n)) for doc_id, bag in weights.items()}
    # To the last bit, and the formula's as far as Lucene keeps lengths.
    assert scores_in(tmp_path / "repeated", repeated, k1=10, b=0.9) == found
    assert found == pytest.approx(bm25_scores(weights, "gold king oil", 10, 0.9), rel=0.05)


def test_samples_are_those_of_the_seed():
    ids = [str(n) for n in range(100)]
    samples = tune_bm25.draw_samples(ids, 3, 10, 42)
    assert samples == tune_bm25.draw_samples(ids, 3, 10, 42) != tune_bm25.draw_samples(ids, 3, 10, 43)
    assert [len(set(sample)) for sample in samples] == [10, 10, 10]
    assert sorted(tune_bm25.draw_samples(ids, 1, 1000, 42)[0]) == sorted(ids)


def test_best_pairs_are_averaged_and_ties_go_to_the_lowest():
    pairs = [lucene.Parameters(k1, b) for k1 in (0.8, 0.9) for b in (0.6, 0.7)]
    values = np.tile([0.0, 0.5, 0.0], (len(pairs), 1))  # (pairs, queries)
    values[3, 0] = 1
    summary = tune_bm25.summarise(pairs, values, [[0, 2], [1, 2], [1]], "R@10")
    assert summary["best"] == [{"k1": 0.9, "b": 0.7}, {"k1": 0.8, "b": 0.6}, {"k1": 0.8, "b": 0.6}]
    assert (summary["k1"], summary["b"]) == (round((0.9 + 0.8 + 0.8) / 3, 4), round((0.7 + 0.6 + 0.6) / 3, 4))
    assert len(summary["grid"]) == 3 * 4
    assert summary["grid"][3] == {"k1": 0.9, "b": 0.7, "sample": 0, "value": (1.0 + 0.0) / 2}


def tuned(data, output, judged, **changes):
    """Tune on judgements, query -> document -> grade; the command and its options."""
    rows = [(query, doc, grade) for query, grades in judged.items() for doc, grade in grades.items()]
    qrels = write_rows(output.with_name("qrels.parquet"), tables.QRELS, rows)
    named = {"index": data / "lucene", "queries": data / "queries.parquet", "qrels": qrels, "memory_mb": 256}
    return {"name": "tune bm25", **named, "output": output, **changes}


@pytest.mark.slow
def test_tuning_measures_what_bm25_writes(data, stage, tmp_path, monkeypatch):
    judged = {"10": {"d6": 1, "d3": 2}, "2": {"d7": 1}, "ties": {"z/9": 1}, "stop": {"d1": 1}, "syntax": {"d1": 0}}
    monkeypatch.setattr(tune_bm25, "ROWS_PER_BLOCK", 3)
    grid = {"k1": [0.6, 1.2], "b": [0.4, 0.9], "samples": 2, "sample_size": 99, "measure": "RR@10", "depth": 20}
    path = stage(**tuned(data, tmp_path / "tuned.json", judged, **grid))
    found = json.loads(path.read_text())
    del judged["syntax"]
    assert len(found["grid"]) == 2 * 4
    for entry in found["grid"][1:3]:
        run = search(data, tmp_path / "run.trec", depth=20, k1=entry["k1"], b=entry["b"])
        values = evaluate_run(read_run(run), judged, ["RR@10"])
        assert entry["value"] == pytest.approx(sum(value["RR@10"] for value in values.values()) / 4)
    search(data, tmp_path / "tuned.trec", parameters=path)
    made = ["run.trec", "tuned.json", "tuned.trec"]
    assert {path.name for path in tmp_path.iterdir()} == {"qrels.parquet", *made}


@pytest.mark.slow
def test_a_fold_is_ranked_with_what_is_best_on_the_others(data, stage, tmp_path):
    """An oracle: leave the queries of a fold out of the judgements, tune on the rest, rank all queries."""
    judged = {"10": "d6", "2": "d7", "q:numpy/lib/x.py:average": "d3", "syntax": "d30"}
    grid = {"k1": [0.1, 3], "b": [0, 1], "samples": 1, "measure": "RR@40", "depth": 40}

    def best_of(left, output, **options):
        grades = {query: {doc: 1} for query, doc in left.items()}
        return json.loads(stage(**tuned(data, output, grades, **grid, **options)).read_text())

    def lines_of(output, **options):
        return search(data, output, **options).read_text().splitlines()

    found = best_of(judged, tmp_path / "folded.json", folds=2, seed=1)
    whole = best_of(judged, tmp_path / "whole.json")
    assert {key: value for key, value in found.items() if key != "folds"} == whole
    lines = lines_of(tmp_path / "run.trec", parameters=tmp_path / "folded.json", folded=True)
    # Queries without judgements get what is best on all queries.
    parts = [(fold["queries"], fold) for fold in found["folds"]] + [(sorted(QUERIES.keys() - judged), whole)]
    for queries, chosen in parts:
        left = {query: doc for query, doc in judged.items() if query not in queries}
        best = best_of(left, tmp_path / "x.json")
        assert (chosen["k1"], chosen["b"]) == (best["k1"], best["b"])
        own = lines_of(tmp_path / "x.trec", k1=best["k1"], b=best["b"])
        of_fold = [[line for line in some if line.split()[0] in queries] for some in (own, lines)]
        assert of_fold[0] == of_fold[1]
    # Otherwise this would show nothing.
    assert len({(fold["k1"], fold["b"]) for fold in found["folds"]}) == 2


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")
def test_squad_gives_the_known_mrr(tmp_path):
    def rows(name):
        with open(DATA / name, encoding="utf-8") as handle:
            return [line.rstrip("\n").split("\t") for line in handle]

    write_rows(tmp_path / "passages.parquet", tables.PASSAGES, rows("collection.tsv"))
    write_rows(tmp_path / "queries.parquet", tables.QUERIES, rows("queries.dev.tsv")[:1000])
    index(tmp_path, tmp_path / "lucene", threads=2)
    run = search(tmp_path, tmp_path / "run.trec", k1=0.82, b=0.68, depth=10)
    qrels = {query_id: {doc_id: int(grade)} for query_id, _, doc_id, grade in rows("qrels.dev.tsv")[:1000]}
    values = evaluate_run(read_run(run), qrels, ["RR@10"])
    # From Anserini's and pyserini's own commands.
    assert sum(value["RR@10"] for value in values.values()) / 1000 == pytest.approx(0.8734, abs=5e-5)
