"""An encoder and a re-ranker behind an API: from texts to runs, report and live search, with each text sent once."""

import json

import numpy as np
import pytest
import yaml

import cort
from cort.formats.runs import read_run
from cort.formats.shards import open_shards
from cort.formats.tables import QUERIES
from cort.models.embeddings import Asked, name_of
from tests.support.common import texts_by_id
from tests.support.forking import snakemake, succeed
from tests.support.model_server import configured_server
from tests.support.sandbox import TINY, copy_with_tiny

pytestmark = pytest.mark.slow

KEY = "sk-secret-of-the-tests"
ENCODER = {"endpoint": "org/embedder", "dimension": 24, "query_prompt": "query: "}


def embed(text):
    """Count the words of a text by their hash: a bag of words of 32 numbers, of which 24 are asked for."""
    numbers = np.full(32, 0.01)
    for word in text.removeprefix("query: ").split():
        numbers[sum(word.encode()) % 24] += 1
    return numbers.tolist()


def relevance(query, passage):
    """Count the words that they share, and prefer short passages among those with as many."""
    return len({*query.split()} & {*passage.split()}) - len(passage) / 1e4


@pytest.fixture(scope="module")
def server():
    with configured_server(KEY, embed=embed, relevance=relevance) as server:
        yield server


@pytest.fixture(scope="module")
def tree(tmp_path_factory, server):
    tree = copy_with_tiny(tmp_path_factory.mktemp("served") / "tree")
    tiny = yaml.safe_load((tree / TINY).read_text("utf-8"))
    config = {"dataset": "served", "protect": False, "depth": 20, "shards": 2, "encoders": {"api": ENCODER}}
    config["rerankers"] = {"judge": {"endpoint": "org/judge", "depth": 10}}
    config |= {"collection": tiny["collection"], "splits": {"test": tiny["splits"]["test"]}}
    systems = {"bm25": {"retrieve": "bm25"}, "api": {"retrieve": "api"}}
    config["systems"] = systems | {"fused": {"fuse": {"systems": ["bm25", "api"], "method": "rrf"}}}
    config["systems"]["judged"] = {"rerank": "fused", "reranker": "judge"}
    config["endpoint"] = {"max_requests": 500, "texts_per_request": 16}
    (tree / "served.yaml").write_text(yaml.safe_dump(config), "utf-8")
    succeed(tree, "snakemake", "--cores", 2, "--configfile", "served.yaml")
    return tree


@pytest.fixture(scope="module")
def results(tree):
    return tree / "results" / "served"


def unit(text):
    vector = np.array(embed(text)[:24], np.float32)
    return vector / np.linalg.norm(vector)


def test_the_run_is_exact_search_over_the_vectors_of_the_service(results):
    passages = texts_by_id(results / "collection/passages.parquet")
    queries = texts_by_id(results / "collection/queries.test.parquet", QUERIES)
    matrix, ids = np.stack([unit(text) for text in passages.values()]), [*passages]
    for ranking in read_run(results / "runs/test/api.trec"):
        scores = matrix @ unit(f"query: {queries[ranking.query_id]}")
        best = sorted(zip(-scores, ids, strict=True))[:20]
        np.testing.assert_allclose(sorted(ranking.scores, reverse=True), [-score for score, _ in best], atol=1e-5)
    files = sorted(map(str, (results / "embeddings/api").glob("passages.*.arrow")))
    assert [shard.origin.model for shard in open_shards(files)] == [name_of(Asked(**ENCODER))] * 2


def test_the_top_candidates_are_in_the_order_of_the_scores_of_the_service(results):
    passages = texts_by_id(results / "collection/passages.parquet")
    queries = texts_by_id(results / "collection/queries.test.parquet", QUERIES)
    before = {ranking.query_id: ranking.doc_ids for ranking in read_run(results / "runs/test/fused.trec")}
    for ranking in read_run(results / "runs/test/judged.trec"):
        top, rest = before[ranking.query_id][:10], before[ranking.query_id][10:]
        scores = {doc_id: np.float32(relevance(queries[ranking.query_id], passages[doc_id])) for doc_id in top}
        assert ranking.doc_ids == sorted(top, key=lambda doc_id: (-scores[doc_id], doc_id)) + rest


def test_each_text_is_sent_once_whatever_is_built_again(tree, results, server):
    assert set(server.answered.values()) == {1}
    before, attempts = (results / "runs/test/api.trec").read_bytes(), len(server.attempts)
    for path in (results / "embeddings/api").iterdir():
        path.unlink()
    again = ["--forcerun", "embed", "embed_queries", "score_served", "--configfile", "served.yaml"]
    succeed(tree, "snakemake", "--cores", 2, *again)
    assert len([*(results / "embeddings/api").iterdir()]) == 3
    assert (len(server.attempts), (results / "runs/test/api.trec").read_bytes()) == (attempts, before)
    # A limit is no setting of results.
    config = yaml.safe_load((tree / "served.yaml").read_text("utf-8"))
    (tree / "limited.yaml").write_text(yaml.safe_dump(config | {"endpoint": {"max_requests": 0}}), "utf-8")
    assert "Nothing to be done" in snakemake(tree, "--dry-run", "--configfile", "limited.yaml")[1]


def test_the_report_says_that_the_model_may_change(results):
    page = (results / "report/index.html").read_text("utf-8")
    for model in ("api is org/embedder", "judge is org/judge"):
        assert f"{model}, a model behind a service, which may change without notice." in page


@pytest.mark.parametrize("system", ["fused", "judged"])
def test_live_queries_give_the_results_of_the_run(results, server, system):
    queries = texts_by_id(results / "collection/queries.test.parquet", QUERIES)
    ranking = read_run(results / f"runs/test/{system}.trec")[0]
    with cort.open(results) as experiment:
        found = experiment.search(queries[ranking.query_id], system)
        assert list(found["doc_id"]) == list(ranking.doc_ids[:10])
        np.testing.assert_allclose(experiment.encode("a", "api")[0], unit("query: a"), atol=1e-6)


def test_no_file_has_the_key(tree, results):
    for folder in ("results", "logs", "endpoint_cache", ".snakemake"):
        for path in (tree / folder).rglob("*"):
            assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    assert json.loads((results / "provenance.json").read_text("utf-8"))
