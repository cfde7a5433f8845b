import json

import numpy as np
import pytest
import torch

from cort import expand
from cort.formats import tables
from cort.formats.shards import Tokens
from cort.models.rerankers import load_reranker
from cort.models.tokenizer import load_tokenizer
from tests.support.common import command_line, write_rows


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
    named = {"model": model, "tokens": caches["passages"], "output": output}
    return ["--expansions", *paths, *command_line(named, changes)]


def scores_of(path):
    return tables.read_table(path, tables.EXPANSION_SCORES)["scores"].to_pylist()


def filtering(folder, queries, scores, doc_ids, share):
    """Options of `filter`."""
    rows = [list(zip(doc_ids, lists, strict=False)) for lists in (queries, scores)]
    named = {
        "expansions": write_rows(folder / "queries.parquet", tables.EXPANSIONS, rows[0]),
        "scores": write_rows(folder / "scores.parquet", tables.EXPANSION_SCORES, rows[1]),
        "keep": share,
        "output": folder / "out" / "kept.parquet",
        "output-counts": folder / "out" / "kept.json",
    }
    return ["filter", *command_line(named)]


def keep(folder, queries, scores, doc_ids, share=0.3):
    """Filter; returns the kept queries and their counts."""
    assert expand.main(filtering(folder, queries, scores, doc_ids, share)) == 0
    found = tables.read_table(folder / "out" / "kept.parquet", tables.EXPANSIONS)
    assert found["doc_id"].to_pylist() == doc_ids
    return found["queries"].to_pylist(), json.loads((folder / "out" / "kept.json").read_text("utf-8"))


def test_scores_are_those_of_the_queries_one_by_one(model, caches, predicted, tmp_path):
    paths, queries = predicted
    assert expand.main(["score", *scoring(model, caches, paths, tmp_path / "scores.parquet")]) == 0
    reranker = load_reranker(model)
    tokenizer, passages = load_tokenizer(model), Tokens(caches["passages"])
    for row, (own, scores) in enumerate(zip(queries, scores_of(tmp_path / "scores.parquet"), strict=True)):
        assert len(own) == len(scores)
        for query, score in zip(own, scores, strict=True):
            ids = np.array(tokenizer.encode(query, add_special_tokens=False).ids, np.int32)
            pairs = reranker.pairs(Tokens.of_texts([ids]), passages)
            with torch.inference_mode():
                expected = float(pairs.score(reranker, np.array([0]), np.array([row]), torch.device("cpu"))[0])
            assert score == pytest.approx(expected, abs=1e-5)


def test_the_number_of_shards_does_not_change_the_result(model, caches, predicted, tmp_path, monkeypatch):
    monkeypatch.setattr(expand, "SCORED_BLOCK", 7)
    paths, _ = predicted
    whole, parts = tmp_path / "whole.parquet", [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    assert expand.main(["score", *scoring(model, caches, paths, whole)]) == 0
    for number, part in enumerate(parts, start=1):
        options = scoring(model, caches, paths, part, shard=f"{number}-of-2", checkpoints=tmp_path / "blocks")
        assert expand.main(["score", *options]) == 0
    assert [*scores_of(parts[0]), *scores_of(parts[1])] == scores_of(whole)
    assert scores_of(parts[0])


def test_queries_of_other_passages_are_refused(model, caches, predicted, tmp_path, complaint):
    paths, _ = predicted
    for files, expected in (
        (paths[1:], "predicted.2.parquet: found 49 rows for 60 passages"),
        (paths[:1], "predicted.1.parquet: found 11 rows for 60 passages"),
        (paths[::-1], "predicted.2.parquet: found other passages than in"),
    ):
        output = tmp_path / "scores.parquet"
        assert expected in complaint(expand.main, ["score", *scoring(model, caches, files, output)], output)


def test_the_best_share_of_all_queries_is_kept(tmp_path):
    queries, scores = [["a", "b"], [], ["c"], ["d", "e", "f"]], [[1.0, 9.0], [], [0.5], [3.0, 2.0, 4.0]]
    left, said = keep(tmp_path, queries, scores, ["x", "y", "z", "w"], share=0.5)
    assert left == [["b"], [], [], ["d", "f"]]
    counts = {"queries": 6, "kept": 3, "share": 0.5, "threshold": 3.0, "passages": 4}
    assert said == counts | {"passages with a query that is kept": 2}
    assert keep(tmp_path, queries, scores, ["x", "y", "z", "w"], share=1)[0] == queries
    # At least one query, as the share is rounded up.
    assert keep(tmp_path, queries, scores, ["x", "y", "z", "w"], share=0.01)[0] == [["b"], [], [], []]


def test_of_equal_scores_the_lowest_passage_and_first_query_are_kept(tmp_path):
    queries, scores = [["a", "b"], ["c", "d"], ["e"]], [[1.0, 1.0], [1.0, 1.0], [2.0]]
    left = [keep(tmp_path, queries, scores, ["d9", "d10", "d2"], share=count / 5)[0] for count in range(1, 6)]
    assert [" ".join(map("".join, kept)) for kept in left] == ["  e", " c e", " cd e", "a cd e", "ab cd e"]


def test_the_kept_queries_are_those_of_sorting(tmp_path):
    generator = np.random.default_rng(3)
    sizes = generator.integers(0, 5, 300)
    doc_ids = [str(number) for number in generator.permutation(300)]
    scores = [generator.integers(0, 6, size).astype(float).tolist() for size in sizes]
    queries = [[f"{doc_id} {n}" for n in range(size)] for doc_id, size in zip(doc_ids, sizes, strict=True)]
    flat = [(-s, d, n) for d, own in zip(doc_ids, scores, strict=True) for n, s in enumerate(own)]
    for share in (0.3, 0.77):
        best = {f"{d} {n}" for _, d, n in sorted(flat)[: -int(-share * len(flat) // 1)]}
        left, _ = keep(tmp_path, queries, scores, doc_ids, share)
        assert left == [[query for query in own if query in best] for own in queries]


BAD = [
    ([["a"]], [[1.0, 2.0]], "scores.parquet: found scores of other queries from row 1 on"),
    ([["a"], []], [[1.0]], "scores.parquet: found scores of other queries from row 1 on"),
    ([["a"]], [[1.0], []], "scores.parquet: found scores of 2 passages, not of 1"),
    ([[]], [[]], "queries.parquet: found no predicted query"),
    ([["a"], ["b"]], [[1.0], [np.nan]], "scores.parquet: row 2: found a NaN or infinite score for passage 'b'"),
    ([["a"], ["b"]], [[1.0], [np.inf]], "scores.parquet: row 2: found a NaN or infinite score for passage 'b'"),
]


@pytest.mark.parametrize(("queries", "scores", "message"), BAD)
def test_bad_input_is_refused(tmp_path, complaint, queries, scores, message):
    output = tmp_path / "out" / "kept.parquet"
    assert message in complaint(expand.main, filtering(tmp_path, queries, scores, "ab", 0.5), output)
