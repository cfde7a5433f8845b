"""The searcher: the results of the workflow's runs, for every kind of system; and what runs in parallel."""

import json
import random
import shutil
import threading

import numpy as np
import pyarrow as pa
import pytest
import torch

from cort import encode, score
from cort.config.stored import needed_for, open_systems, read_experiment, read_needed, typical_systems
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.cleaning import FORMS
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from cort.formats.shards import Tokens, write_shard
from cort.models import precision
from cort.models.layout import model_fingerprint
from cort.online.neural import Model, QueryEncoder, Reranker, TokenEncoder, Tokenizer
from cort.online.passages import Passages
from cort.online.searcher import open_searcher
from cort.retrieval.weights import Point, TunedWeights
from cort.runtime.errors import InputError
from cort.systems.timing import PARTS
from cort.tokenize import token_batches
from tests.support.common import TEXTS, command_line
from tests.support.online import SYSTEMS, Parts, results_with, write_results

# The settings of results.


def test_settings_are_read_as_they_were_written_wherever_results_are_moved(tmp_path):
    write_results(tmp_path)
    results = read_experiment(tmp_path / "experiment.yaml")
    assert results.config == results_with(tmp_path).config
    shutil.copytree(tmp_path, tmp_path / "moved")
    moved = read_experiment(tmp_path / "moved" / "experiment.yaml")
    files = {file for system in open_systems(moved, ["reranked"]).values() for file in system.files()}
    assert {file.removeprefix(f"{tmp_path}/moved/") for file in files} == {
        "lexical/bm25/index/manifest.json",
        "base_models/encoder.encoder/README.md",
        "embeddings/encoder/passages.1-of-1.arrow",
        "base_models/reranker.cross/README.md",
        "tokens/reranker.cross/passages.arrow",
    }


def test_a_part_of_the_settings_is_enough_for_some_systems(tmp_path):
    results = results_with(tmp_path)
    for name in SYSTEMS:
        part = read_needed(needed_for(results, [name]))
        part.folder = tmp_path
        found, expected = (
            {at: [*system.files()] for at, system in open_systems(which, [name]).items()} for which in (part, results)
        )
        assert found == expected
        assert part.collection.aggregate == results.collection.aggregate
    assert needed_for(results, ["bm25"])["encoders"] == {}


def test_typical_systems_are_the_first_of_bm25_dense_and_fusion(tmp_path):
    late = {"rerankers": {"late": {"base_model": "small", "kind": "late_interaction"}}, "training_depth": 100}
    systems = {name: SYSTEMS[name] for name in ("bm25", "dense")}
    systems = {"again": SYSTEMS["both"], "late": {"retrieve": "late"}} | systems
    assert typical_systems(results_with(tmp_path, systems, **late)) == ["bm25", "late", "again"]
    alone = results_with(tmp_path, {"dense": SYSTEMS["dense"]}, evaluation={"baseline": "dense"})
    assert typical_systems(alone) == ["dense"]


def rewrite(path, old, new):
    """Change the text of a file."""
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("shards: 1", "", "found no key 'shards'"),
        ("systems:", "systens:", "found no key 'systems'"),
        ("\ndepth: 10", "\ndeep: 10", "found no key 'depth'"),
        ("dataset: toy", "dataset: [", "found no YAML"),
    ],
)
def test_settings_that_another_version_wrote_or_somebody_changed_are_refused(tmp_path, old, new, words):
    write_results(tmp_path)
    path = tmp_path / "experiment.yaml"
    rewrite(path, old, new)
    with pytest.raises(InputError, match=f"experiment.yaml: .*{words}"):
        open_searcher(read_experiment(path), ["bm25"])


# Texts and vectors.


@pytest.mark.parametrize("form", FORMS)
def test_token_ids_are_those_of_the_cache(lm, tmp_path, form):
    table = pa.table({"query_id": [str(n) for n in range(len(TEXTS))], "text": TEXTS}, schema=tables.QUERIES)
    tables.write_table(tmp_path / "queries.parquet", table)
    [(_, expected)] = token_batches(lm, str(tmp_path / "queries.parquet"), form)
    assert [ids.tolist() for ids in Tokenizer(lm, form)(TEXTS)] == expected.to_pylist()


def write_zeros(path, model, **more):
    """A shard of one passage, as if of a model."""
    rows = np.zeros((1, 8), dtype=np.float32)
    write_shard(path, [(["d"], rows)], model=model_fingerprint(model), dimension=8, count=1, **more)


def test_vectors_of_queries_are_rounded_as_those_of_passages(make_encoder, tmp_path):
    folder, vectors = make_encoder(), {}
    for storage in ("fp32", "fp16"):
        path = tmp_path / f"{storage}.arrow"
        write_zeros(path, folder, storage=storage)
        encoder = QueryEncoder(Model(folder, "raw", "fp32", (path,)), torch.device("cpu"))
        vectors[storage] = encoder.encode(encoder.tokenize(["neriga", "balune neriga"]))
    assert vectors["fp16"].dtype == np.float32
    assert np.array_equal(vectors["fp16"], vectors["fp32"].astype(np.float16))
    assert not np.array_equal(vectors["fp16"], vectors["fp32"])


@pytest.mark.usefixtures("bf16")
def test_models_have_the_precision_of_their_vectors_or_that_of_this_machine(
    make_encoder, make_reranker, caches, tmp_path, monkeypatch
):
    late, encoder = make_reranker(kind="late_interaction"), make_encoder()
    write_zeros(tmp_path / "p.arrow", encoder, precision="bf16")
    named = {"model": late, "tokens": caches["passages"], "precision": "bf16", "output": tmp_path / "t.arrow"}
    assert encode.main(["tokens", *command_line(named)]) == 0
    cpu = torch.device("cpu")
    opened = [QueryEncoder(Model(encoder, "raw", "auto", (tmp_path / "p.arrow",)), cpu)]
    opened.append(TokenEncoder(Model(late, "raw", "auto", (tmp_path / "t.arrow",)), cpu))
    monkeypatch.setattr(precision, "choose", lambda device: "bf16")
    opened.append(Reranker(Model(late, "raw", "auto", (caches["passages"],)), cpu))
    assert [one.model.transformer.dtype for one in opened] == [torch.bfloat16] * 3


@pytest.mark.parametrize("largest", [2**31, 100])
def test_passages_are_found_by_id_over_row_groups(tmp_path, monkeypatch, largest):
    # Ids of more than two gigabytes have longer offsets.
    monkeypatch.setattr("cort.formats.ids.LARGEST_OFFSET", largest)
    ids = [f"d{n}" for n in random.Random(1).sample(range(1000), 300)]  # noqa: S311
    table = pa.table({"doc_id": ids, "text": [f"text of {one}" for one in ids]}, schema=tables.PASSAGES)
    with tables.open_writer(tmp_path / "p.parquet", tables.PASSAGES) as writer:
        for start in range(0, 300, 15):
            writer.write_table(table.slice(start, 15))
    passages = Passages(tmp_path / "p.parquet")
    assert passages.texts(ids) == [f"text of {one}" for one in ids]
    assert passages.rows([ids[299], ids[0], ids[15]]) == [299, 0, 15]
    for unknown in ("d", "zz", ""):
        with pytest.raises(InputError, match=f"no passage '{unknown}'"):
            passages.rows([unknown])


# Parts of a search.


@pytest.fixture
def opened(tmp_path):
    """Open systems with parts that take a known time."""
    searchers = []

    def build(*names, parts=None, **systems):
        searchers.append((parts or Parts()).searcher(results_with(tmp_path, SYSTEMS | systems), names or list(systems)))
        return searchers[-1]

    yield build
    for searcher in searchers:
        searcher.close()


def ids_of(answer):
    return [result.doc_id for result in answer.results]


def scores_of(answer):
    return [result.score for result in answer.results]


def test_bm25_and_the_dense_ranker_run_in_parallel_unless_they_are_timed(opened):
    parts, both = Parts(), threading.Barrier(2)
    searcher = opened("both", parts=parts)
    # Each waits for the other.
    parts.wait = {"bm25": lambda: both.wait(60), "search": lambda: both.wait(60)}
    searcher.search("both", "q", 5)
    parts.wait = {}
    apart = searcher.search("both", "q", 5, concurrent=False).milliseconds
    assert apart["total"] >= sum(value for name, value in apart.items() if name != "total")
    assert set(apart) == {"bm25", "tokenize", "encode", "search", "merge", "total"} <= {*PARTS, "total"}


def test_each_part_retrieves_as_much_as_is_needed(opened):
    parts = Parts()
    searcher = opened("reranked", parts=parts)
    answer = searcher.search("reranked", "q", 2, concurrent=False)
    # Three candidates are scored, and the last one is best.
    assert parts.seen == [("bm25", 3), ("tokenize",), ("encode",), ("search", 3), ("rerank", 3)]
    assert ids_of(answer) == ["e1", "b0"]
    assert [result.rank for result in answer.results] == [1, 2]
    assert ids_of(searcher.search("both", "q", 5)) == ["e0", "b0", "e1", "b1", "e2"]


def test_a_part_of_several_systems_retrieves_as_much_as_the_deepest_needs(opened):
    parts, rrf = Parts(), {"fuse": {"systems": ["dense", "bm25"], "method": "rrf"}}
    searcher = opened(parts=parts, rrf=rrf, twice={"interleave": ["rrf", "bm25"]})
    # BM25 by itself is needed for two.
    assert ids_of(searcher.search("twice", "q", 2, concurrent=False)) == ["b0", "e0"]
    assert parts.seen == [("bm25", 10), ("tokenize",), ("encode",), ("search", 10)]


def test_rankings_are_merged_as_the_system_says(opened):
    parts = Parts()
    searcher = opened(parts=parts, rrf={"fuse": {"systems": ["dense", "bm25"], "method": "rrf"}})
    answer = searcher.search("rrf", "q", 4, concurrent=False)
    # The sums are those of the workflow's runs, which have ten results.
    assert parts.seen == [("bm25", 10), ("tokenize",), ("encode",), ("search", 10)]
    # Ties are ordered by document id, not by turns.
    assert ids_of(answer) == ["b0", "e0", "b1", "e1"]
    assert scores_of(answer) == pytest.approx([1 / 61, 1 / 61, 1 / 62, 1 / 62])


def test_no_model_behind_an_api_is_asked_to_warm_up(tmp_path):
    served = {"endpoint": "org/judge", "kind": "cross_encoder"}
    parts = Parts()
    searcher = parts.searcher(results_with(tmp_path, rerankers={"cross": served}), ["reranked"])
    searcher.warm_up("reranked")
    # Only what it re-ranks is searched.
    assert {name for name, *_ in parts.seen} == {"bm25", "tokenize", "encode", "search"}
    searcher.close()


def tuned(folder, system, parts, *weights):
    """Write weights as `fuse_tune` does."""
    (folder / "weights").mkdir(exist_ok=True)
    points = [Point(weights, 0.5)]
    write_artifact(folder / "weights" / f"{system}.json", TunedWeights("RR@10", 1, 5, parts, weights, 0.5, 0.5, points))


def test_scores_are_weighted_over_as_many_results_as_in_the_runs(opened, tmp_path):
    linear = {"systems": ["dense", "bm25"], "method": "linear"}
    tuned(tmp_path, "tuned", ["dense", "bm25"], 0.6, 0.4)
    parts, given, chosen = Parts(), {"fuse": linear | {"weights": [0.6, 0.4]}}, {"fuse": linear | {"tune": "RR@10"}}
    searcher = opened(parts=parts, given=given, tuned=chosen)
    answer = searcher.search("given", "q", 4, concurrent=False)
    assert parts.seen == [("bm25", 10), ("tokenize",), ("encode",), ("search", 10)]
    # Each part has ten scores from 1 to 0: .6, .6 * 8/9, .6 * 7/9, and .4 of the first result of BM25.
    assert ids_of(answer) == ["e0", "e1", "e2", "b0"]
    assert scores_of(answer) == pytest.approx([0.6, 0.6 * 8 / 9, 0.6 * 7 / 9, 0.4], abs=1e-6)
    assert searcher.search("tuned", "q", 4).results == answer.results


def test_a_re_ranker_is_weighted_against_its_candidates(opened, tmp_path):
    reranked = {"rerank": "dense", "reranker": "cross", "depth": 3}
    tuned(tmp_path, "heavy", ["dense", "cross"], 0.25, 0.75)
    systems = {"unmoved": {"weight": 0}, "light": {"weight": 0.25}, "heavy": {"tune": "RR@10"}}
    searcher = opened(**{name: reranked | more for name, more in systems.items()})
    # The re-ranker reverses the order of the top three.
    for name in ("unmoved", "light"):
        assert ids_of(searcher.search(name, "q", 5)) == ["e0", "e1", "e2", "e3", "e4"]
    answer = searcher.search("heavy", "q", 5)
    assert ids_of(answer) == ["e2", "e1", "e0", "e3", "e4"]
    assert scores_of(answer)[:3] == pytest.approx([0.75, 0.5, 0.25])


def test_an_impossible_search_is_refused_and_an_error_of_the_parallel_part_is_raised(opened):
    searcher = opened("both")

    def fail(texts, parameters, depth):
        raise InputError("broken")

    searcher.lucene["bm25"].search = fail
    impossible = [("reranked", "q", 5, "system: found 'reranked'"), ("both", " \t", 5, "query: found no word")]
    for system, text, depth, words in [*impossible, ("both", "q", 0, "depth: found 0"), ("both", "q", 5, "broken")]:
        with pytest.raises(InputError, match=words):
            searcher.search(system, text, depth)


# The tiny experiment.


@pytest.fixture(scope="module")
def tiny(built):
    results = read_experiment(built / "results" / "tiny" / "experiment.yaml")
    # All but the published one.
    searcher = open_searcher(results, results.searchable, threads=2)
    yield searcher
    searcher.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "system", ["bm25", "cort", "cort-onng", "cort-hnsw", "cort+bm25", "cort+bm25-cross", "expanded"]
)
def test_answers_are_the_runs_of_the_workflow(built, tiny, system):
    results = built / "results" / "tiny"
    queries = tables.read_table(results / "collection" / "queries.test.parquet", tables.QUERIES)
    run = read_run(results / "runs" / "test" / f"{system}.trec").by_query()
    texts = queries["text"].to_pylist()
    batch, _ = tiny.search_batch(system, texts, 20)
    for query_id, text, together in zip(queries["query_id"].to_pylist(), texts, batch, strict=True):
        expected = run.ranking(query_id)
        answer = tiny.search(system, text, tiny.depth)
        assert ids_of(answer) == expected.doc_ids
        assert scores_of(answer) == pytest.approx(expected.scores, abs=1e-5)
        # Fewer results are the first of these, and those of a batch are the same.
        assert ids_of(tiny.search(system, text, 3)) == expected.doc_ids[:3]
        assert together.doc_ids == expected.doc_ids[:20]


def append_line(path):
    path.write_bytes(path.read_bytes() + b"\n")


def change_model(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model": "other"}))


def change_tokenizer(path):
    content = json.loads(path.read_text())
    content["model"]["max_input_chars_per_word"] -= 1
    path.write_text(json.dumps(content))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "change", "system", "words"),
    [
        ("encoders/encoder/best/modules.json", append_line, "cort", "expected model .* encode again"),
        ("onng/encoder/meta.json", change_model, "cort-onng", "found an index of model other, expected model"),
        ("audit/validation/encoder.hnsw.json", change_model, "cort-hnsw", "found the audit of an hnsw index of model"),
        ("rerankers/cross/best/tokenizer.json", change_tokenizer, "cort+bm25-cross", "expected tokenizer"),
    ],
)
def test_files_of_another_model_are_refused(built, tmp_path, file, change, system, words):
    results = shutil.copytree(built / "results" / "tiny", tmp_path / "tiny")
    path = results / file
    path.chmod(0o644)
    change(path)
    with pytest.raises(InputError, match=words):
        open_searcher(read_experiment(results / "experiment.yaml"), [system])


@pytest.mark.slow
def test_missing_files_are_named(built, tmp_path):
    results = shutil.copytree(built / "results" / "tiny", tmp_path / "tiny")
    stored = read_experiment(results / "experiment.yaml")
    missing = "lexical/bm25/index: found no complete manifest.json, .* build it with `python -m cort.index bm25`"
    vectors = "embeddings/encoder/passages.1-of-1.arrow"
    cases = {"cort": (vectors, vectors), "bm25": ("lexical/bm25/index/manifest.json", missing)}
    for system, (file, words) in cases.items():
        (results / file).unlink()
        with pytest.raises(InputError, match=words):
            open_searcher(stored, [system])


@pytest.mark.parametrize("settings", [{}, {"head": "linear"}, {"kind": "late_interaction", "dimension": 5}])
def test_a_reranker_scores_as_the_stage_does(make_reranker, world, caches, tmp_path, settings):
    model = make_reranker(**settings)
    ranking = Ranking(world.query_ids[0], [str(doc_id) for doc_id in world.doc_ids[:9]], -np.arange(9.0))
    write_run(tmp_path / "run.trec", [ranking], "x")
    files = {"queries": caches["queries.train"], "passages": caches["passages"], "candidates": tmp_path / "run.trec"}
    named = {**files, "model": model, "depths": 1000, "output": tmp_path / "scores.parquet"}
    assert score.main(command_line(named)) == 0
    expected = tables.read_table(tmp_path / "scores.parquet", tables.SCORES)
    passages = Tokens(caches["passages"])
    reranker = Reranker(Model(model, "raw", "fp32", (caches["passages"],)), torch.device("cpu"))
    found = reranker.score(world.query_texts[0], passages.rows_of(expected["doc_id"], ""))
    assert found == pytest.approx(expected["score"].to_numpy(), abs=1e-5)
    assert len(reranker.score(world.query_texts[0], [])) == 0
