import json
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from cort.evaluation import measures
from cort.evaluation.curves import measure_depths, saturation
from cort.formats import tables
from cort.formats.runs import Run
from cort.retrieval.documents import as_documents
from cort.retrieval.rerank import mix, rerank_run
from tests.support.common import write_ranked, write_rows


@pytest.fixture
def folder(tmp_path):
    """Five candidates a..e each; query 1's relevant document is e (scored best), query 2's is b (scored worst)."""
    write_ranked(tmp_path / "run.trec", {"1": "abcde", "2": "abcde"})
    scores = {"1": (1, 1, 3, 4, 5), "2": (3, 0, 2, 4, 1)}
    rows = [(q, d, s) for q, own in scores.items() for d, s in zip("abcde", own, strict=True)]
    write_rows(tmp_path / "scores.parquet", tables.SCORES, rows)
    write_rows(tmp_path / "qrels.parquet", tables.QRELS, [("1", "e", 1), ("2", "b", 2), ("3", "a", 1)])
    return tmp_path


def options(folder, **changes):
    files = {"candidates": "run.trec", "scores": "scores.parquet", "qrels": "qrels.parquet", "output": "out/x.json"}
    named = {key: folder / file for key, file in files.items()} | {"system": "s", "split": "dev"}
    return {"name": "analyze depths", **named, "depths": [1, 2, 4, 8], "measures": ["RR@10", "R@10"], **changes}


def test_only_the_first_candidates_count_at_each_depth(folder, stage):
    summary = json.loads(stage(**options(folder)).read_text())
    assert (summary["system"], summary["split"], summary["queries"]) == ("s", "dev", 3)
    assert summary["depths"] == [1, 2, 4, 8]
    # Query 2: b is 2nd of 2, 4th of 4, 5th of 5; query 1: e comes in with the fifth candidate, and is the best then.
    assert summary["measures"]["RR@10"] == pytest.approx([0, (1 / 2) / 3, (1 / 4) / 3, (1 + 1 / 5) / 3])
    assert summary["measures"]["R@10"] == pytest.approx([0, 1 / 3, 1 / 3, 2 / 3])
    assert summary["saturation"] == {"RR@10": None, "R@10": None}
    summary = json.loads(stage(**options(folder, relevance_level=2)).read_text())
    assert summary["measures"]["R@10"] == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])


@pytest.mark.parametrize("aggregate", ["none", "max"])
@pytest.mark.parametrize("weight", [1.0, 0.4])
def test_equals_reranking_and_evaluating_cut_rankings(weight, aggregate):
    generator = np.random.default_rng(3)
    name = "d{}" if aggregate == "none" else "d{}#{}"
    rankings = {str(q): [name.format(d, d % 7) for d in generator.permutation(30)[:20]] for q in range(6)}
    candidates = make_run(rankings)
    scores = generator.integers(0, 4, len(candidates.doc_ids)).astype(float)
    qrels = {q: {f"d{d}": int(generator.integers(0, 3)) for d in range(0, 30, 2)} for q in rankings}
    names = ["RR@10", "nDCG@5", "AP"]
    depths, mixed = [1, 7, 20, 50], partial(mix, candidates, scores, weight=weight)
    documents = partial(as_documents, how=aggregate)
    columns = measure_depths(candidates, mixed, qrels, depths, names, documents)
    for position, depth in enumerate(depths):
        expected = make_run({r.query_id: r.doc_ids[:depth] for r in rerank_run(candidates, scores, depth, weight)})
        values = measures.evaluate_run(documents(expected), qrels, [*columns])
        assert {name: columns[name][position] for name in columns} == measures.means(values, [*columns])


def make_run(rankings):
    flat = [doc_id for docs in rankings.values() for doc_id in docs]
    offsets = np.cumsum([0, *map(len, rankings.values())]).astype(np.int64)
    scores = np.concatenate([-np.arange(len(docs), dtype=float) for docs in rankings.values()])
    return Run(list(rankings), offsets, pa.array(flat, pa.string()), scores)


@pytest.mark.parametrize(
    ("numbers", "values", "expected"),
    [
        *(([1, 2, 4, 8], [0.1, 0.2, 0.3, 0.4], None), ([1, 2, 4, 8], [0.1, 0.2, 0.2 * 1.004, 0.2], 2)),
        ([1, 2, 4, 8], [0.1, 0.2, 0.2 * 1.006, 0.2 * 1.006], 4),
        # A dip is no saturation.
        *(([1, 2, 4], [0.3, 0.3, 0.35], None), ([1, 2, 4, 8], [0.3, 0.2, 0.4, 0.4], 4)),
        *(([512, 1000], [0.3, 0.3], None), ([4, 1, 2], [0.2, 0.1, 0.2], 2), ([1, 2], [0.0, 0.0], None)),
        *(([1], [0.5], None), ([], [], None)),
    ],
)
def test_saturation(numbers, values, expected):
    assert saturation(numbers, values) == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(({"depths": [n, 1]}, f"--depths: found [{n}, 1], expected increasing numbers; sort them") for n in (1, 2)),
        ({"measures": "MRR"}, "measures: found 'MRR'"),
    ],
)
def test_bad_depths_and_measures_are_refused(folder, refused, changes, words):
    assert refused(**options(folder, **changes)).startswith(words)


def test_a_candidate_without_score_is_refused(folder, refused):
    write_ranked(folder / "run.trec", {"1": "abcde", "3": "z"})
    assert "scores.parquet: found no score for document 'z' of query '3'" in refused(**options(folder))
