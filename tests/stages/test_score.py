import numpy as np
import pyarrow as pa
import pytest
import torch

from cort import score
from cort.formats import tables
from cort.formats.runs import read_run
from cort.formats.shards import Tokens, read_precision
from cort.models.rerankers import load_reranker
from tests.support.common import command_line, write_ranked, write_rows

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


def options(model, caches, candidates, output, **changes):
    named = {"queries": caches["queries.train"], "passages": caches["passages"], "model": model, "output": output}
    return ["--candidates", *map(str, candidates), *command_line(named, changes)]


def run(model, caches, candidates, output, **changes):
    assert score.main(options(model, caches, candidates, output, **changes)) == 0
    return tables.read_table(output, tables.SCORES).to_pylist()


@pytest.mark.parametrize("depth", [1, 5, 12, 1000])
def test_each_pair_within_the_depth_of_any_run_once(runs, depth):
    paths, rankings = runs
    table = score.distinct_pairs((read_run(path) for path in paths), depth)
    expected = {(q, doc) for ranking in rankings for q, docs in ranking.items() for doc in docs[:depth]}
    assert [(row["query_id"], row["doc_id"]) for row in table.to_pylist()] == sorted(expected)
    assert len(expected) < sum(len(docs[:depth]) for ranking in rankings for docs in ranking.values()) or depth == 1


def test_scores_are_those_of_the_pairs_one_by_one(model, caches, runs, tmp_path, capsys):
    paths, rankings = runs
    rows = run(model, caches, paths, tmp_path / "scores.parquet", depth=6)
    expected = {(q, doc) for ranking in rankings for q, docs in ranking.items() for doc in docs[:6]}
    assert [(row["query_id"], row["doc_id"]) for row in rows] == sorted(expected)
    loaded, queries, passages = load_reranker(model), Tokens(caches["queries.train"]), Tokens(caches["passages"])
    pairs = loaded.pairs(queries, passages)
    position = [{doc_id: row for row, doc_id in enumerate(tokens.ids.to_pylist())} for tokens in (queries, passages)]
    with torch.inference_mode():
        for row in rows:
            place = np.array([position[0][row["query_id"]]]), np.array([position[1][row["doc_id"]]])
            assert row["score"] == pytest.approx(pairs.score(loaded, *place, CPU, 1).item(), abs=1e-5)
    assert np.std([row["score"] for row in rows]) > 0.01
    logged = capsys.readouterr().err
    assert f"queries: {len({row['query_id'] for row in rows})} texts" in logged
    assert f"passages of the pairs: {len(rows)} texts" in logged


def test_blocks_change_the_last_bits_at_most(model, caches, runs, tmp_path, monkeypatch):
    together = run(model, caches, runs[0], tmp_path / "together.parquet")
    # The order of the runs changes no byte.
    run(model, caches, runs[0][::-1], tmp_path / "reversed.parquet")
    assert (tmp_path / "together.parquet").read_bytes() == (tmp_path / "reversed.parquet").read_bytes()
    monkeypatch.setattr(score, "BLOCK", 7)
    blocks = run(model, caches, runs[0], tmp_path / "blocks.parquet")
    for row, other in zip(together, blocks, strict=True):
        assert other == row | {"score": pytest.approx(row["score"], abs=1e-5)}


@pytest.mark.usefixtures("bf16")
def test_bf16_is_close(model, caches, runs, tmp_path):
    single, bf16 = (
        np.array([row["score"] for row in run(model, caches, runs[0], tmp_path / f"{name}.parquet", precision=name)])
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
def test_unknown_ids_are_refused(model, caches, tmp_path, complaint, query_id, doc_id, unknown, cache):
    path, output = tmp_path / "run.trec", tmp_path / "scores.parquet"
    write_ranked(path, {"q0": ["d3"], query_id: [doc_id]})
    line = complaint(score.main, options(model, caches, [path], output), output)
    assert line == (
        f"{path}: found the unknown id '{unknown}', expected ids of {caches[cache]}; rebuild both from one collection"
    )


def test_an_empty_run_has_nothing_to_score(model, caches, runs, tmp_path):
    (tmp_path / "empty.trec").write_bytes(b"")
    assert run(model, caches, [tmp_path / "empty.trec"], tmp_path / "none.parquet") == []
    rows = run(model, caches, [*runs[0], tmp_path / "empty.trec"], tmp_path / "more.parquet")
    assert rows == run(model, caches, runs[0], tmp_path / "scores.parquet")


def test_another_model_is_refused(model, make_encoder, caches, runs, tmp_path, complaint):
    output = tmp_path / "scores.parquet"
    line = complaint(score.main, options(make_encoder(), caches, runs[0], output), output)
    assert "found SentenceTransformer, a model of the kind encoder, expected CrossEncoder" in line


def test_either_candidates_or_triples_are_scored(model, caches, runs, tmp_path, complaint):
    both = options(model, caches, runs[0], tmp_path / "scores.parquet", triples="triples.parquet")
    line = complaint(score.main, both)
    assert line == "--candidates, --triples: found both, expected one of them; name the runs, or the triples"
    start = both.index("--queries")
    neither = both[start : both.index("--triples")]
    assert complaint(score.main, neither).startswith("--candidates, --triples: found neither, expected one of them")


LATE = {"kind": "late_interaction", "dimension": 5, "term_weights": True}


def test_late_interaction_scores_the_pairs_of_triples(make_reranker, caches, tmp_path):
    model = make_reranker(**LATE)
    rows = [(0, "q1", "d3", "d4", 1), (0, "q1", "d3", "d5", 2), (1, "q2", "d4", "d3", 1)]
    named = {"queries": caches["queries.train"], "passages": caches["passages"], "model": model}
    named |= {"triples": write_rows(tmp_path / "t.parquet", tables.TRIPLES, rows)}
    assert score.main(command_line(named, {"output": tmp_path / "scores.parquet"})) == 0
    found = tables.read_table(tmp_path / "scores.parquet", tables.SCORES).to_pylist()
    pairs = [("q1", "d3"), ("q1", "d4"), ("q1", "d5"), ("q2", "d3"), ("q2", "d4")]
    assert [(row["query_id"], row["doc_id"]) for row in found] == pairs
    loaded = load_reranker(model)
    texts = loaded.pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]))
    with torch.inference_mode():
        for row in found:
            query = texts.queries.rows_of(pa.array([row["query_id"]]), "")
            passage = texts.passages.rows_of(pa.array([row["doc_id"]]), "")
            assert row["score"] == pytest.approx(texts.score(loaded, query, passage, CPU).item(), abs=1e-5)
