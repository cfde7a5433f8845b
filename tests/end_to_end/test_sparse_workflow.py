"""Sparse encoders from raw text to report, searcher and explanation."""

import json
from contextlib import closing

import numpy as np
import pytest
import yaml
from sentence_transformers import SparseEncoder

from cort.experiment.stored import read_experiment
from cort.formats.runs import read_run
from cort.formats.tables import IMPACTS, QUERIES, TRIPLES, read_table
from cort.online.searcher import open_searcher
from cort.online.why import explain
from tests.support.forking import snakemake
from tests.support.sandbox import TINY, copy_with_tiny
from tests.support.workflow import planned, sparse_config

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def check_explanation(searcher, text, answer, own):
    """The explanation adds up to the score, and marks tokens that expansion added."""
    best = answer.results[0]
    why = explain(searcher, answer.system, text, best.doc_id)
    assert (why.kind, why.rank, why.columns[-1]) == ("sparse", 1, "adds")
    assert sum(row[-1] for row in why.rows) == pytest.approx(best.score, abs=0.5)
    assert all(row[2] * row[3] == row[4] for row in why.rows)
    assert {row[0] for row in why.rows if "query" not in row[1]} <= own


def test_sparse_encoders_are_trained_searched_fused_and_learnt_from(tmp_path):
    folder = copy_with_tiny(tmp_path / "tree")
    config = sparse_config(yaml.safe_load((folder / TINY).read_text("utf-8")))
    (folder / "sparse.yaml").write_text(yaml.safe_dump(config | {"shards": 2}, sort_keys=False), "utf-8")
    status, output = snakemake(folder, "--cores", 2, "--configfile", "sparse.yaml")
    assert status == 0, output[-10_000:]
    jobs, results = planned(output), folder / "results/sparse"
    assert (jobs["train"], jobs["encode_impacts"], jobs["impact_index"]) == (3, 4, 2)
    # Negatives of the student, weights of the fusion, and the runs that are evaluated.
    assert jobs["retrieve_impacts"] == 4
    negatives = read_table(results / "triples/student.train.parquet", TRIPLES).to_pylist()
    taught = {ranking.query_id: ranking.doc_ids for ranking in read_run(results / "runs/train/learned.trec")}
    assert all(row["negative"] in taught[row["query_id"]] for row in negatives)
    page = (results / "report/index.html").read_text("utf-8")
    assert all(f'<th scope="row">{name}</th>' in page for name in config["systems"])
    measured = json.loads((results / "sparsity/free.test.json").read_text("utf-8"))
    assert f"{measured['query_terms']:.1f}" in page
    assert 0 < measured["flops"] <= measured["query_terms"]
    timed = json.loads((results / "latency/test.json").read_text("utf-8"))["rows"]
    assert {row["system"] for row in timed if "search" in row["milliseconds"]} == {"learned", "fused"}
    queries = read_table(results / "collection/queries.test.parquet", QUERIES)
    texts = dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True))
    for name in ("learned", "free"):
        check_model(results, name, texts)
    with closing(open_searcher(read_experiment(results / "experiment.yaml"), ["free", "fused"], threads=2)) as searcher:
        runs = {name: read_run(results / f"runs/test/{name}.trec") for name in ("free", "fused")}
        for name, run in runs.items():
            for ranking in run:
                answer = searcher.search(name, texts[ranking.query_id], searcher.depth)
                assert [one.doc_id for one in answer.results] == ranking.doc_ids
        text = texts[runs["free"][0].query_id]
        tokenize = searcher.models.retrievers["free"].encoder.tokenize
        own = set(tokenize.names(tokenize([text])[0]))
        check_explanation(searcher, text, searcher.search("free", text, 5), own)


def check_model(results, name, texts):
    """Sentence-transformers loads a trained encoder, and gives the queries the same impacts."""
    model = SparseEncoder(str(results / "encoders" / name / "best"), device="cpu")
    table = read_table(results / f"embeddings/{name}/queries.test.parquet", IMPACTS).to_pylist()
    weights = model.encode_query([texts[row["id"]] for row in table]).to_dense().numpy() * 100
    for row, expected in zip(table, weights, strict=True):
        impacts = np.zeros(len(expected))
        impacts[row["tokens"]] = row["impacts"]
        assert np.abs(impacts - expected).max() <= 0.5 + 1e-3
