import json

import numpy as np
import pytest
import torch

from cort import expand
from cort.formats import tables
from cort.formats.shards import Tokens
from cort.models.rerankers import load_reranker
from cort.models.tokenizer import load_tokenizer
from tests.support.common import write_rows


@pytest.fixture(scope="module")
def model(make_reranker):
    return make_reranker()


@pytest.fixture
def predicted(world, tmp_path):
    """Queries of each passage of the world: words of its own, up to three, in two files."""
    rows = tables.read_table(world.path("passages.parquet"), tables.PASSAGES).to_pylist()
    queries = [[" ".join(row["text"].split()[n : n + 3]) for n in range(place % 4)] for place, row in enumerate(rows)]
    made = [(row["doc_id"], own) for row, own in zip(rows, queries, strict=True)]
    files = ("predicted.1.parquet", made[:11]), ("predicted.2.parquet", made[11:])
    return [write_rows(tmp_path / name, tables.EXPANSIONS, part) for name, part in files], queries


def scoring(model, caches, paths, output, **changes):
    named = {"model": model, "tokens": caches["passages"], "expansions": paths, "output": output}
    return {"name": "expand score"} | named | changes


def scores_of(path):
    return tables.read_table(path, tables.EXPANSION_SCORES)["scores"].to_pylist()


def filtering(folder, queries, scores, doc_ids, share=0.3):
    rows = [list(zip(doc_ids, lists, strict=False)) for lists in (queries, scores)]
    return {
        "name": "expand filter",
        "expansions": write_rows(folder / "queries.parquet", tables.EXPANSIONS, rows[0]),
        "scores": write_rows(folder / "scores.parquet", tables.EXPANSION_SCORES, rows[1]),
        "keep": share,
        "output": folder / "out" / "kept.parquet",
        "output_counts": folder / "out" / "kept.json",
    }


@pytest.fixture
def keep(stage, tmp_path):
    """A function that filters; the kept queries and their counts."""

    def kept(queries, scores, doc_ids, share=0.3):
        found = tables.read_table(stage(**filtering(tmp_path, queries, scores, doc_ids, share)), tables.EXPANSIONS)
        assert found["doc_id"].to_pylist() == doc_ids
        return found["queries"].to_pylist(), json.loads((tmp_path / "out" / "kept.json").read_text("utf-8"))

    return kept


def test_scores_are_those_of_the_queries_one_by_one(stage, model, caches, predicted, tmp_path):
    paths, queries = predicted
    found = scores_of(stage(**scoring(model, caches, paths, tmp_path / "scores.parquet")))
    reranker = load_reranker(model)
    tokenizer, passages = load_tokenizer(model), Tokens(caches["passages"])
    for row, (own, scores) in enumerate(zip(queries, found, strict=True)):
        assert len(own) == len(scores)
        for query, score in zip(own, scores, strict=True):
            ids = np.array(tokenizer.encode(query, add_special_tokens=False).ids, np.int32)
            pairs = reranker.pairs(Tokens.of_texts([ids]), passages)
            with torch.inference_mode():
                expected = float(pairs.score(reranker, np.array([0]), np.array([row]), torch.device("cpu"))[0])
            assert score == pytest.approx(expected, abs=1e-5)


def test_the_number_of_shards_does_not_change_the_result(stage, model, caches, predicted, tmp_path, monkeypatch):
    monkeypatch.setattr(expand, "SCORED_BLOCK", 7)
    whole, *parts = (
        scores_of(stage(**scoring(model, caches, predicted[0], tmp_path / shard, shard=shard)))
        for shard in ("1-of-1", "1-of-2", "2-of-2")
    )
    assert parts[0] + parts[1] == whole
    assert parts[0]


def test_queries_of_other_passages_are_refused(refused, model, caches, predicted, tmp_path):
    paths, _ = predicted
    for files, words in (
        (paths[1:], "predicted.2.parquet: found 49 rows for 60 passages"),
        (paths[:1], "predicted.1.parquet: found 11 rows for 60 passages"),
        (paths[::-1], "predicted.2.parquet: found other passages than in"),
    ):
        assert words in refused(**scoring(model, caches, files, tmp_path / "scores.parquet"))


def test_the_best_share_of_all_queries_is_kept(keep):
    queries, scores = [["a", "b"], [], ["c"], ["d", "e", "f"]], [[1.0, 9.0], [], [0.5], [3.0, 2.0, 4.0]]
    left, said = keep(queries, scores, ["x", "y", "z", "w"], share=0.5)
    assert left == [["b"], [], [], ["d", "f"]]
    counts = {"queries": 6, "kept": 3, "share": 0.5, "threshold": 3.0, "passages": 4}
    assert said == counts | {"passages with a query that is kept": 2}
    assert keep(queries, scores, ["x", "y", "z", "w"], share=1)[0] == queries
    # At least one query, as the share is rounded up.
    assert keep(queries, scores, ["x", "y", "z", "w"], share=0.01)[0] == [["b"], [], [], []]


def test_the_kept_queries_are_those_of_sorting(keep):
    """Of equal scores, those of the lowest passage and the first of them."""
    generator = np.random.default_rng(3)
    sizes = generator.integers(0, 5, 300)
    doc_ids = [str(number) for number in generator.permutation(300)]
    scores = [generator.integers(0, 6, size).astype(float).tolist() for size in sizes]
    queries = [[f"{doc_id} {n}" for n in range(size)] for doc_id, size in zip(doc_ids, sizes, strict=True)]
    flat = [(-s, d, n) for d, own in zip(doc_ids, scores, strict=True) for n, s in enumerate(own)]
    for share in (0.3, 0.77):
        best = {f"{d} {n}" for _, d, n in sorted(flat)[: -int(-share * len(flat) // 1)]}
        left, _ = keep(queries, scores, doc_ids, share)
        assert left == [[query for query in own if query in best] for own in queries]


BAD = [
    ([["a"]], [[1.0, 2.0]], "scores.parquet: found scores of other queries from row 1 on"),
    ([["a"], []], [[1.0]], "scores.parquet: found scores of other queries from row 1 on"),
    ([["a"]], [[1.0], []], "scores.parquet: found scores of 2 passages, not of 1"),
    ([[]], [[]], "queries.parquet: found no predicted query"),
    ([["a"], ["b"]], [[1.0], [np.nan]], "scores.parquet: row 2: found a NaN or infinite score for passage 'b'"),
    ([["a"], ["b"]], [[1.0], [np.inf]], "scores.parquet: row 2: found a NaN or infinite score for passage 'b'"),
]


@pytest.mark.parametrize(("queries", "scores", "words"), BAD)
def test_bad_input_is_refused(refused, tmp_path, queries, scores, words):
    assert words in refused(**filtering(tmp_path, queries, scores, "ab", 0.5))
