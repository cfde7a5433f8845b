import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import torch

from cort import score
from cort.formats import tables
from cort.formats.runs import read_run
from cort.formats.shards import Tokens, read_precision, write_tokens
from cort.models import late_interaction, shards
from cort.models.rerankers import load_reranker
from cort.runtime import progress
from tests.support.common import write_ranked, write_rows

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(make_reranker):
    return make_reranker()


@pytest.fixture
def runs(world, tmp_path):
    """Two overlapping runs over the training queries; q3 is in the first alone, q4 in none."""
    generator = np.random.default_rng(1)
    asked = [query_id for query_id in world.query_ids[:8] if query_id != "q4"]
    rankings = [
        {query_id: [str(doc) for doc in generator.permutation(world.doc_ids[:25])[:12]] for query_id in queries}
        for queries in (asked, [query_id for query_id in asked if query_id != "q3"])
    ]
    return [write_ranked(tmp_path / f"{number}.trec", part) for number, part in enumerate(rankings)], rankings


@pytest.fixture
def options(model, caches, runs, tmp_path):
    named = {"queries": caches["queries.train"], "passages": caches["passages"], "model": model, "candidates": runs[0]}

    def complete(**changes):
        given = {**named, "output": tmp_path / "scores.parquet", **changes}
        candidates = given["candidates"] or []
        return {"depths": [1000] * (len(candidates) if isinstance(candidates, list) else 1), **given}

    return complete


@pytest.fixture
def run(stage, options):
    return lambda **changes: tables.read_table(stage("score", **options(**changes)), tables.SCORES).to_pylist()


def pairs_of(rows):
    return [(row["query_id"], row["doc_id"]) for row in rows]


def scored_alone(model, caches, rows):
    """The score of each pair, computed by itself."""
    loaded = load_reranker(model)
    texts = loaded.pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]))
    with torch.inference_mode():
        for row in rows:
            query = texts.queries.rows_of(pa.array([row["query_id"]]), "")
            passage = texts.passages.rows_of(pa.array([row["doc_id"]]), "")
            yield texts.score(loaded, query, passage, CPU).item()


@pytest.mark.parametrize("depths", [(1, 1), (5, 1000), (12, 3), (1000, 1000)])
def test_each_pair_within_the_depth_of_its_run_once(runs, depths):
    paths, rankings = runs
    table = score.distinct_pairs(map(read_run, paths), depths)
    both = [*zip(rankings, depths, strict=True)]
    listed = [(q, doc) for ranking, depth in both for q, docs in ranking.items() for doc in docs[:depth]]
    assert pairs_of(table.to_pylist()) == sorted(set(listed))
    assert len(set(listed)) < len(listed) or depths == (1, 1)


def test_scores_are_those_of_the_pairs_one_by_one(model, caches, runs, run, capsys):
    rows = run(depths=[6, 6])
    assert pairs_of(rows) == sorted({(q, doc) for one in runs[1] for q, docs in one.items() for doc in docs[:6]})
    scores = [row["score"] for row in rows]
    assert scores == pytest.approx(list(scored_alone(model, caches, rows)), abs=1e-5)
    assert np.std(scores) > 0.01
    logged = capsys.readouterr().err
    assert f"queries: {len({row['query_id'] for row in rows})} texts" in logged
    assert f"passages of the pairs: {len(rows)} texts" in logged


KINDS = [
    {},
    {"head": "linear"},
    {"kind": "late_interaction", "dimension": 5, "term_weights": True},
    {"kind": "late_interaction", "dimension": 5, "fill_queries": True, "similarity": "dot"},
    {"kind": "knrm"},
    {"kind": "conv_knrm", "filters": 4},
]


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_no_score_depends_on_other_pairs(make_reranker, stage, options, runs, run, monkeypatch, settings):
    named = {"model": make_reranker(**settings)}
    content = stage("score", **options(**named)).read_bytes()
    rows = run(**named)
    everything = {(row["query_id"], row["doc_id"]): row["score"] for row in rows}
    for changes in (
        {"depths": [3, 1]},
        {"candidates": runs[0][1], "depths": 7},
        {"candidates": runs[0][0], "depths": 1},
    ):
        some = run(**named, **changes)
        assert [row["score"] for row in some] == [everything[pair] for pair in pairs_of(some)]
    # Nor on the order of the runs, blocks, or how many vectors fit into memory.
    assert stage("score", **options(**named, candidates=runs[0][::-1])).read_bytes() == content
    monkeypatch.setattr(score, "BLOCK", 7)
    monkeypatch.setattr(late_interaction, "NUMBERS_AT_ONCE", 1_000)
    assert run(**named) == rows


def test_late_interaction_encodes_each_text_of_a_block_once(make_reranker, options, run, monkeypatch):
    encoded, forward = Counter(), late_interaction.forward_apart

    def count(model, sequences, *others):
        encoded.update((sequences.kind, int(row)) for row in sequences.parts[1].rows)
        return forward(model, sequences, *others)

    monkeypatch.setattr(late_interaction, "forward_apart", count)
    rows = run(model=make_reranker(kind="late_interaction", dimension=5))
    assert Counter(kind for kind, _ in encoded) == {
        "query": len({row["query_id"] for row in rows}),
        "passage": len({row["doc_id"] for row in rows}),
    }
    assert set(encoded.values()) == {1}


def known(capsys):
    """How many of how many pairs had scores."""
    return re.findall(r"(\d+) of (\d+) pairs have scores of earlier jobs", capsys.readouterr().err)


@pytest.mark.parametrize("settings", KINDS[::2], ids=str)
def test_pairs_with_scores_of_earlier_jobs_are_not_scored_again(
    make_reranker, stage, options, runs, run, tmp_path, capsys, settings
):
    named = {"model": make_reranker(**settings)}
    fresh = stage("score", **options(**named)).read_bytes()
    few = len(run(**named, depths=[3, 2], output_known=tmp_path / "known" / "test.arrow"))
    capsys.readouterr()
    # Of another split.
    named["output_known"] = tmp_path / "known" / "other.arrow"
    assert stage("score", **options(**named)).read_bytes() == fresh
    total = str(len(run()))
    assert known(capsys) == [(str(few), total)]
    for changes in ({}, {"candidates": runs[0][::-1]}):
        assert stage("score", **options(**named, **changes)).read_bytes() == fresh
        assert known(capsys) == [(total, total)]
    # The scores of fewer pairs drop none.
    run(**named, depths=[1, 1])
    assert stage("score", **options(**named)).read_bytes() == fresh
    assert known(capsys)[-1] == (total, total)


def test_progress_of_late_interaction_counts_pairs_and_known_ones_as_finished_earlier(
    make_reranker, run, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(score, "BLOCK", 7)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    rates = []

    class Watched(progress.Counter):
        def __exit__(self, *_):
            rates.append((self._before, self.count))

    monkeypatch.setattr(shards, "Counter", Watched)
    model, known = make_reranker(**KINDS[2]), tmp_path / "known" / "test.arrow"
    few, total = (len(run(model=model, depths=depths, output_known=known)) for depths in ([3, 2], [1000, 1000]))
    assert rates == [(0, few), (few, total)]
    shown = [int(count) for count in re.findall(r"(\d+) of \d+ pairs, ", capsys.readouterr().err)]
    assert shown[-1] == total
    assert few in shown
    # Those of the second call begin above the known ones.
    assert all(count > few for count in shown[shown.index(few) + 1 :])


def test_scores_of_another_text_or_model_or_damaged_ones_are_not_used(
    make_reranker, stage, options, caches, tmp_path, capsys
):
    kept = tmp_path / "known.arrow"
    named = {"output_known": kept}
    first = stage("score", **options(**named)).read_bytes()
    tokens, changed = Tokens(caches["passages"]), tmp_path / "changed.arrow"
    texts = [tokens[row].tolist() for row in range(len(tokens))]
    row = tokens.ids.to_pylist().index("d3")
    write_tokens(
        changed, [(tokens.ids.combine_chunks(), [*texts[:row], texts[row][::-1], *texts[row + 1 :]])], tokens.tokenizer
    )
    capsys.readouterr()
    found = stage("score", **options(**named, passages=changed)).read_bytes()
    ((some, total),) = known(capsys)
    assert 0 < int(total) - int(some) <= 8
    assert found == stage("score", **options(passages=changed)).read_bytes() != first
    capsys.readouterr()
    for changes in ({"model": make_reranker(seed=2)}, {"model": make_reranker(seed=2), "precision": "bf16"}):
        stage("score", **options(**named, **changes))
        assert known(capsys) == [("0", total)]
    kept.write_bytes(kept.read_bytes()[:-20])
    assert stage("score", **options(**named)).read_bytes() == first
    assert known(capsys) == [("0", total)]


@pytest.mark.usefixtures("bf16")
def test_bf16_is_close(run, tmp_path):
    single, bf16 = (
        np.array([row["score"] for row in run(output=tmp_path / f"{name}.parquet", precision=name)])
        for name in ("fp32", "bf16")
    )
    assert [read_precision(tmp_path / f"{name}.parquet") for name in ("fp32", "bf16")] == ["fp32", "bf16"]
    assert not np.array_equal(single, bf16)
    # bfloat16 has 8 significant bits; the scores are about 1, and go through two layers.
    difference = np.abs(single - bf16)
    assert difference.mean() < 0.04
    assert difference.max() < 0.15
    assert np.corrcoef(single, bf16)[0, 1] > 0.999


@pytest.mark.parametrize(
    ("query_id", "doc_id", "unknown", "cache"),
    [("q25", "d1", "q25", "queries.train"), ("q1", "nothing", "nothing", "passages")],
)
def test_unknown_ids_are_refused(options, caches, tmp_path, refused, query_id, doc_id, unknown, cache):
    path = write_ranked(tmp_path / "run.trec", {"q0": ["d3"], query_id: [doc_id]})
    line = refused("score", **options(candidates=path))
    assert line.startswith(f"{path}: found the unknown id '{unknown}', expected ids of {caches[cache]}")


def test_an_empty_run_has_nothing_to_score(runs, run, tmp_path):
    (tmp_path / "empty.trec").write_bytes(b"")
    assert run(candidates=tmp_path / "empty.trec") == []
    assert run(candidates=[*runs[0], tmp_path / "empty.trec"]) == run()


def test_another_model_and_not_one_kind_of_candidates_are_refused(make_encoder, options, refused):
    for changes, found in (
        ({"model": make_encoder()}, "found SentenceTransformer, a model of the kind encoder, expected CrossEncoder"),
        ({"triples": "triples.parquet"}, "--candidates, --triples: found both"),
        ({"candidates": None}, "--candidates, --triples: found neither"),
        ({"depths": [10]}, "--depths: found 1 numbers, expected 2, one per run"),
    ):
        assert found in refused("score", **options(**changes))


def test_late_interaction_scores_the_pairs_of_triples(make_reranker, caches, run, tmp_path):
    model = make_reranker(kind="late_interaction", dimension=5, term_weights=True)
    rows = [(0, "q1", "d3", "d4", 1), (0, "q1", "d3", "d5", 2), (1, "q2", "d4", "d3", 1)]
    triples = write_rows(tmp_path / "t.parquet", tables.TRIPLES, rows)
    found = run(model=model, candidates=None, triples=triples)
    assert pairs_of(found) == [("q1", "d3"), ("q1", "d4"), ("q1", "d5"), ("q2", "d3"), ("q2", "d4")]
    expected = list(scored_alone(model, caches, found))
    assert [row["score"] for row in found] == pytest.approx(expected, abs=1e-5)
