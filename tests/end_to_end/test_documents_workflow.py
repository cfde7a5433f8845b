"""Documents that are divided into passages: passages are ranked and re-ranked, documents measured, shown and found."""

import json
import subprocess
import sys
from contextlib import closing

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import cort
from cort.config.stored import read_experiment
from cort.evaluation.values import read_values
from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from cort.formats.shards import read_precision
from cort.online.searcher import open_searcher
from tests.support.common import texts_by_id
from tests.support.explorer import unpack
from tests.support.forking import snakemake, succeed
from tests.support.released import write_modules, write_transformer
from tests.support.sandbox import TINY, copy_with_tiny
from tests.support.workflow import planned

pytestmark = pytest.mark.slow

SYSTEMS = ("bm25", "dense", "fused", "reranked")
DOCUMENTS = 30


def document(doc_id):
    return doc_id.rpartition("#")[0]


def long_documents(data):
    """Join five passages of a topic of the tiny experiment to a document, and judge documents instead of passages."""
    texts = [line.split("\t")[1] for line in (data / "collection.tsv").read_text("utf-8").splitlines()]
    lines = [f"long/{number}\t{' '.join(texts[number::DOCUMENTS])}\n" for number in range(DOCUMENTS)]
    (data / "documents.tsv").write_text("".join(lines), "utf-8")
    for name in ("train", "test"):
        grades = {}
        for line in (data / f"qrels.{name}.tsv").read_text("utf-8").splitlines():
            query_id, _, doc_id, grade = line.split()
            key = query_id, f"long/{int(doc_id[1:]) % DOCUMENTS}"
            grades[key] = max(int(grade), grades.get(key, 0))
        rows = (f"{query_id} 0 {doc_id} {grade}\n" for (query_id, doc_id), grade in grades.items())
        (data / f"judged.{name}.tsv").write_text("".join(rows), "utf-8")
    return texts


@pytest.fixture(scope="module")
def built_with_documents(tmp_path_factory):
    """The project with the experiment, built; and Snakemake's output."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("documents") / "tree")
    texts = long_documents(tree / "tiny/data")
    write_modules(write_transformer(tree / "models/encoder", texts, "sentencepiece"), length=30)
    write_transformer(tree / "models/cross", texts, "sentencepiece", "AutoModelForSequenceClassification")
    tiny = yaml.safe_load((tree / TINY).read_text("utf-8"))
    files = {name: {key: f"tiny/data/{key}.{name}.tsv" for key in ("queries",)} for name in ("train", "test")}
    judged = {name: split | {"qrels": f"tiny/data/judged.{name}.tsv"} for name, split in files.items()}
    config = {
        "dataset": "long",
        "protect": False,
        "depth": tiny["depth"],
        "training_depth": 30,
        "collection": {"documents": "tiny/data/documents.tsv", "passages": {"words": 20, "overlap": 0}},
        "splits": {"validation": judged["train"], "test": judged["test"], "open": files["test"]},
        "encoders": {"dense": {"pretrained": "models/encoder"}},
        "rerankers": {"cross": {"pretrained": "models/cross", "depth": 20}},
        "systems": {
            "bm25": {"retrieve": "bm25"},
            "dense": {"retrieve": "dense"},
            "fused": {"fuse": {"systems": ["bm25", "dense"], "method": "linear", "tune": "RR@10"}},
            "reranked": {"rerank": "fused", "reranker": "cross", "depth": 10},
        },
        "evaluation": {"measures": ["RR@10", "R@5"], "depths": [10]},
        "submissions": {"board": {"system": "fused", "split": "test", "form": "trec"}},
        "deploy": {"served": {"system": "fused", "targets": ["opensearch", "parquet"]}},
    }
    (tree / "long.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    output = succeed(tree, "snakemake", "--cores", 2, "--configfile", "long.yaml")
    return tree, output


@pytest.fixture(scope="module")
def results(built_with_documents):
    return built_with_documents[0] / "results/long"


@pytest.fixture(scope="module")
def judged(results):
    rows = pq.read_table(results / "collection/qrels.test.parquet").to_pylist()
    return {(row["query_id"], row["doc_id"]): row["relevance"] for row in rows}


def oracle(run):
    """Rank the documents of each query by their best passage; return these passages, too."""
    for query_id, doc_ids, scores in run:
        best = {}
        for doc_id, score in zip(doc_ids, scores.tolist(), strict=True):
            best.setdefault(document(doc_id), (score, doc_id))
        rows = sorted((-score, name.encode(), passage) for name, (score, passage) in best.items())
        ranking = Ranking(query_id, [name.decode() for _, name, _ in rows], np.array([-score for score, _, _ in rows]))
        yield ranking, [passage for _, _, passage in rows]


@pytest.mark.parametrize("split", ["test", "open"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_document_runs_are_those_of_an_oracle(results, system, split, tmp_path):
    run = read_run(results / f"runs/{split}/{system}.trec")
    assert all("#" in doc_id for doc_id in run.doc_ids.to_pylist())
    write_run(tmp_path / "expected.trec", (ranking for ranking, _ in oracle(run)), system)
    found = (results / f"documents/{split}/{system}.trec").read_bytes()
    assert found == (tmp_path / "expected.trec").read_bytes()


def reciprocal_ranks(rankings, judged):
    """RR@10 of each query."""
    found = {}
    for query_id, doc_ids in rankings:
        ranks = (rank for rank, doc_id in enumerate(doc_ids[:10], 1) if judged.get((query_id, doc_id), 0) > 0)
        found[query_id] = 1 / next(ranks, float("inf"))
    return found


@pytest.mark.parametrize("system", SYSTEMS)
def test_documents_are_measured(results, judged, system):
    values = read_values(results / f"measures/test/{system}.parquet")
    found = dict(zip(values.query_ids, values.values[:, values.measures.index("RR@10")], strict=True))
    documents = (ranking for ranking, _ in oracle(read_run(results / f"runs/test/{system}.trec")))
    assert found == pytest.approx(reciprocal_ranks(((one.query_id, one.doc_ids) for one in documents), judged))


def test_the_curve_of_a_reranker_is_of_documents(results, judged):
    top = {one.query_id: one.doc_ids[:10] for one in read_run(results / "runs/test/reranked.trec")}
    documents = {query_id: list(dict.fromkeys(map(document, doc_ids))) for query_id, doc_ids in top.items()}
    assert min(map(len, documents.values())) < 10
    curve = json.loads((results / "depths/test/reranked.json").read_text("utf-8"))
    expected = reciprocal_ranks(documents.items(), judged)
    assert curve["depths"][0] == 10
    assert curve["measures"]["RR@10"][0] == pytest.approx(np.mean([*expected.values()]))


def test_the_explorer_shows_the_passage_that_counted_and_the_ranks_of_others(results, judged):
    data = results / "report/explore/test/data"
    index = unpack(data / "index.js")[1]
    assert index["aggregate"] == "max"
    records = [one for number in range(len(index["shards"])) for one in unpack(data / f"results-{number}.js")[1]]
    texts = texts_by_id(results / "collection/passages.parquet")
    for system, name in enumerate(index["systems"]):
        run = read_run(results / f"runs/test/{name}.trec").by_query()
        rankings = {
            one.query_id: (one.doc_ids, best) for one, best in oracle(read_run(results / f"runs/test/{name}.trec"))
        }
        for query_id, record in zip(index["ids"], records, strict=True):
            doc_ids, best = rankings[query_id]
            shown = [record["docs"][place] for place in record["rankings"][system]]
            assert shown == best[: len(shown)]
            assert shown
            for doc_id, passage, about in zip(doc_ids, shown, record["about"][system], strict=False):
                ranks = {one: rank for rank, one in enumerate(run[query_id], 1) if document(one) == doc_id}
                words = [f"{one.rpartition('#')[2]} (rank {rank})" for one, rank in ranks.items()]
                assert about == ", ".join(words)
                assert words[0].split()[0] == passage.rpartition("#")[2]
            assert record["grades"] == [judged.get((query_id, document(doc_id))) for doc_id in record["docs"]]
            assert record["texts"] == [texts[doc_id] for doc_id in record["docs"]]


def test_searches_answer_with_the_documents_of_the_runs(results):
    experiment = cort.open(results)
    texts = texts_by_id(results / "collection/passages.parquet")
    queries = pq.read_table(results / "collection/queries.test.parquet").to_pylist()
    with closing(open_searcher(read_experiment(results / "experiment.yaml"), SYSTEMS, threads=1)) as searcher:
        for system in SYSTEMS:
            expected = {
                one.query_id: (one, best) for one, best in oracle(read_run(results / f"runs/test/{system}.trec"))
            }
            for query in queries[:4]:
                ranking, best = expected[query["query_id"]]
                answer, shown = searcher.answer(system, query["text"], 5)
                assert [one.doc_id for one in answer.results] == ranking.doc_ids[:5]
                assert [one.passage for one in answer.results] == best[:5]
                assert [one.rank for one in answer.results] == [1, 2, 3, 4, 5]
                assert shown == [texts[passage] for passage in best[:5]]
    measured = experiment.run("fused", "test", measured=True)
    assert measured["doc_id"].tolist() == [
        doc_id for one, _ in oracle(read_run(results / "runs/test/fused.trec")) for doc_id in one.doc_ids
    ]


def test_what_else_is_of_documents(built_with_documents, results):
    jobs = planned(built_with_documents[1])
    assert jobs["aggregate"] == 2 * len(SYSTEMS)
    board = [line.split()[2] for line in (results / "submissions/board.trec").read_text("utf-8").splitlines()]
    assert not any("#" in doc_id for doc_id in board)
    assert "long/" in (results / "report/index.html").read_text("utf-8")
    overlap = json.loads((results / "overlap/open.json").read_text("utf-8"))
    tops = [
        [set(ranking.doc_ids[:10]) for ranking in read_run(results / f"documents/open/{name}.trec")]
        for name in ("bm25", "dense")
    ]
    shares = [len(one & other) / max(len(one), len(other)) for one, other in zip(*tops, strict=True)]
    pair = next(pair for pair in overlap["pairs"] if {pair["first"], pair["second"]} == {"bm25", "dense"})
    assert pair["overlap"] == pytest.approx(np.mean(shares))


def test_an_encoder_and_a_reranker_that_somebody_released_need_no_training(built_with_documents, results):
    jobs = planned(built_with_documents[1])
    assert jobs["pretrained_encoder"] == jobs["pretrained_reranker"] == 1
    assert not jobs.keys() & {"train", "train_reranker", "base_model", "triples", "pairs"}
    assert {path.name for path in (results / "base_models").iterdir()} == {"encoder.dense", "reranker.cross"}
    page = (results / "report/index.html").read_text("utf-8")
    assert all(f'<th scope="row">{name}</th>' in page for name in SYSTEMS)
    assert '<h2 id="training">' not in page
    chosen = json.loads((results / "provenance.json").read_text("utf-8"))["precision"]
    files = ["embeddings/dense/passages.1-of-1.arrow", *(f"scores/cross/{name}.parquet" for name in ("open", "test"))]
    assert chosen == {f"results/long/{file}": read_precision(results / file) for file in files}
    assert read_precision(results / "embeddings/dense/queries.test.arrow") == read_precision(results / files[0])


def test_the_first_results_are_in_another_order_and_the_rest_as_it_was(results):
    before, after = (read_run(results / f"runs/test/{name}.trec") for name in ("fused", "reranked"))
    for one, other in zip(before, after, strict=True):
        assert {*one.doc_ids[:10]} == {*other.doc_ids[:10]}
        assert one.doc_ids[10:] == other.doc_ids[10:]
    assert [one.doc_ids for one in before] != [one.doc_ids for one in after]


def test_a_deployment_is_of_passages(results):
    folder = results / "deploy/served"
    checked = subprocess.run([sys.executable, folder / "check.py"], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    run = read_run(results / "runs/test/fused.trec").by_query()
    queries = json.loads((folder / "check.json").read_text("utf-8"))["queries"]
    assert len(queries) == 10
    for query in queries:
        assert [doc_id for doc_id, _ in query["expected"]] == run[query["query_id"]][:10]
    weights = json.loads((results / "weights/fused.json").read_text("utf-8"))["weights"]
    assert json.loads((folder / "parquet/fusion.json").read_text("utf-8"))["weights"] == pytest.approx(weights)


def test_judgements_of_passages_are_refused(built_with_documents):
    tree, _ = built_with_documents
    config = yaml.safe_load((tree / "long.yaml").read_text("utf-8")) | {"dataset": "wrong", "submissions": {}}
    query_id = (tree / "tiny/data/queries.test.tsv").read_text("utf-8").split("\t")[0]
    (tree / "tiny/data/wrong.tsv").write_text(f"{query_id} 0 long/1#0 1\n", "utf-8")
    config["splits"]["test"]["qrels"] = "tiny/data/wrong.tsv"
    (tree / "wrong.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    wanted = "results/wrong/collection/qrels.test.parquet"
    status, output = snakemake(tree, "--cores", 2, "--configfile", "wrong.yaml", "--", wanted)
    assert status != 0
    assert "found 1 of 1 judged documents that the collection lacks, as 'long/1#0'" in " ".join(output.split())
