import json
import re
import shutil
from contextlib import closing
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import yaml
from sentence_transformers import CrossEncoder, SentenceTransformer

from cort.experiment.stored import read_experiment
from cort.formats.artifacts import read_artifact
from cort.formats.runs import read_run
from cort.formats.shards import all_vectors, open_shards, read_precision
from cort.formats.tables import EXPANSIONS, PASSAGES, QUERIES, TRIPLES, read_table
from cort.models.encoder import load_encoder
from cort.online.searcher import open_searcher
from cort.retrieval.audits import Audit
from tests.support.cards import card_of, cells
from tests.support.common import read_curve
from tests.support.forking import snakemake
from tests.support.released import write_modules, write_t5, write_transformer
from tests.support.sandbox import TINY, copy_with_tiny
from tests.support.workflow import late_config, planned, released_config

pytestmark = pytest.mark.slow

MODEL = "results/tiny/encoders/encoder/best"


def test_sentence_transformers_loads_what_was_trained(built):
    results = built / "results" / "tiny"
    peer = SentenceTransformer(str(built / MODEL), device="cpu")
    for table, encode in (("passages", peer.encode_document), ("queries.test", peer.encode_query)):
        texts = read_table(results / f"collection/{table}.parquet", QUERIES if "." in table else PASSAGES)["text"]
        name = "queries.test" if "." in table else "passages.1-of-1"
        stored = all_vectors(open_shards([results / f"embeddings/encoder/{name}.arrow"]))
        assert np.abs(encode(texts.to_pylist()) - stored).max() < 1e-5
    CrossEncoder(str(results / "rerankers/cross/best"), device="cpu")
    for folder, kind in (("encoders/encoder", "SentenceTransformer"), ("rerankers/cross", "CrossEncoder")):
        header, text = card_of(results / folder / "best")
        assert header["library_name"] == "sentence-transformers"
        assert f'{kind}("{folder.rpartition("/")[2]}")' in text
        assert ["seed", "`42`"] in cells(text)
        assert "base_model" not in header


@pytest.mark.exhaustive
def test_a_released_encoder_takes_the_place_of_a_trained_one(built, tmp_path):
    folder = shutil.copytree(built, tmp_path / "tree", symlinks=True)
    encoder = load_encoder(folder / MODEL)
    state = {f"transformer.{name}": value for name, value in encoder.transformer.state_dict().items()}
    state |= {f"f1.{name}": value for name, value in encoder.projection.state_dict().items()}
    torch.save({"epoch": 9, "state_dict": state}, folder / "tiny" / "data" / "encoder.ckpt")
    tiny = yaml.safe_load((folder / TINY).read_text("utf-8"))
    config = released_config(tiny) | {"dataset": "released"}
    config["encoders"]["encoder"]["pooling"] = tiny["encoders"]["encoder"]["pooling"]
    (folder / "released.yaml").write_text(yaml.safe_dump(config), "utf-8")
    results = "results/released"
    wanted = [f"{results}/{name}" for name in ("runs/test/cort.trec", "provenance.json")]
    status, output = snakemake(folder, "--cores", 2, "--configfile", "released.yaml", "--", *wanted)
    assert status == 0, output[-10_000:]
    jobs = planned(output)
    assert jobs["import_encoder"] == 1
    assert not jobs.keys() & {"train", "triples", "pairs", "bm25_tune"}
    runs = [folder / "results" / name / "runs" / "test" / "cort.trec" for name in ("tiny", "released")]
    assert runs[0].read_bytes() == runs[1].read_bytes()
    inputs = json.loads((folder / "results" / "released" / "provenance.json").read_text("utf-8"))["inputs"]
    assert "tiny/data/encoder.ckpt" in {one["path"] for one in inputs}
    _, text = card_of(folder / "results" / "released" / "encoders" / "encoder" / "best")
    assert ["weights", "`tiny/data/encoder.ckpt`"] in cells(text)
    assert not re.search(r"\| +(epochs|triples|loss|margin)", text)


@pytest.mark.exhaustive
def test_an_index_of_queries_that_a_released_model_predicts(lm, tmp_path):
    folder = copy_with_tiny(tmp_path / "tree")
    write_t5(folder / "models" / "t5", lm)
    tiny = yaml.safe_load((folder / TINY).read_text("utf-8"))
    config = {key: tiny[key] for key in ("collection", "splits", "depth")} | {
        "dataset": "predicted",
        "shards": 2,
        "expanders": {"t5": {"pretrained": "models/t5", "queries": 2, "passage_length": 64, "query_length": 16}},
        "lexical": {"t5": {"expand": "t5"}},
        "systems": {"bm25": {"retrieve": "bm25"}, "t5": {"retrieve": "t5"}},
    }
    (folder / "predicted.yaml").write_text(yaml.safe_dump(config), "utf-8")
    wanted = "results/predicted/runs/test/t5.trec"
    options = ("--cores", 2, "--configfile", "predicted.yaml")
    status, output = snakemake(folder, *options, "--", wanted)
    assert status == 0, output[-10_000:]
    assert planned(output)["expand"] == 2
    # A block is more than these passages: one of the shards has none.
    made = folder / "results/predicted/expansions/t5"
    shards = [read_table(made / f"passages.{number}-of-2.parquet", EXPANSIONS) for number in (1, 2)]
    passages = read_table(folder / "results/predicted/collection/passages.parquet", PASSAGES)
    assert [len(shard) for shard in shards] == [0, len(passages)]
    assert shards[1]["doc_id"].equals(passages["doc_id"])
    assert read_run(folder / wanted).query_ids
    status, output = snakemake(folder, *options, "--dry-run", "--", wanted)
    assert status == 0
    assert "Nothing to be done" in output


def test_an_encoder_and_a_reranker_that_somebody_released_need_no_training(tmp_path):
    folder = copy_with_tiny(tmp_path / "tree")
    tiny = yaml.safe_load((folder / TINY).read_text("utf-8"))
    lines = (folder / "tiny/data/collection.tsv").read_text("utf-8").splitlines()
    texts = [line.split("\t")[1] for line in lines]
    write_modules(write_transformer(folder / "models/encoder", texts, "sentencepiece"), length=30)
    write_transformer(folder / "models/cross", texts, "sentencepiece", "AutoModelForSequenceClassification")
    config = {key: tiny[key] for key in ("collection", "depth")} | {
        "dataset": "ready",
        "splits": {"test": tiny["splits"]["test"]},
        # One name for both, as those of a family have it.
        "encoders": {"minilm": {"pretrained": "models/encoder"}},
        "rerankers": {"minilm": {"pretrained": "models/cross", "depth": 5}},
        "systems": {
            "published": tiny["systems"]["published"],
            "minilm": {"retrieve": "minilm"},
            "fused": {"fuse": {"systems": ["published", "minilm"], "method": "rrf"}},
            "fused-minilm": {"rerank": "fused", "reranker": "minilm"},
        },
        "evaluation": {"baseline": "published"},
    }
    (folder / "ready.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    status, output = snakemake(folder, "--cores", 2, "--configfile", "ready.yaml")
    assert status == 0, output[-10_000:]
    jobs, results = planned(output), folder / "results/ready"
    assert jobs["pretrained_encoder"] == jobs["pretrained_reranker"] == 1
    assert not jobs.keys() & {"train", "train_reranker", "base_model", "triples", "pairs"}
    assert {path.name for path in (results / "base_models").iterdir()} == {"encoder.minilm", "reranker.minilm"}
    page = (results / "report/index.html").read_text("utf-8")
    assert all(f'<th scope="row">{name}</th>' in page for name in config["systems"])
    assert '<h2 id="training">' not in page
    chosen = json.loads((results / "provenance.json").read_text("utf-8"))["precision"]
    files = ["embeddings/minilm/passages.1-of-1.arrow", "scores/minilm/test.parquet"]
    assert chosen == {f"results/ready/{file}": read_precision(results / file) for file in files}
    assert read_precision(results / "embeddings/minilm/queries.test.arrow") == read_precision(results / files[0])
    before, after = (read_run(results / f"runs/test/{name}.trec") for name in ("fused", "fused-minilm"))
    for one, other in zip(before, after, strict=True):
        # The first five in another order or the same, and the rest as it was.
        assert {*one.doc_ids[:5]} == {*other.doc_ids[:5]}
        assert one.doc_ids[5:] == other.doc_ids[5:]
    assert [one.doc_ids for one in before] != [one.doc_ids for one in after]


@pytest.mark.exhaustive
def test_a_second_round_starts_from_the_first_and_learns_from_a_reranker(built, tmp_path):
    folder = shutil.copytree(built, tmp_path / "tree", symlinks=True)
    config = yaml.safe_load((folder / TINY).read_text("utf-8"))
    first = config["encoders"]["encoder"]
    more = {"start": "encoder", "teacher": "cross", "loss": "margin_mse", "similarity": "inner_product"}
    training = {**first["training"], "best_model_metric": "RR@10", "pool_depth": 5}
    triples = {**first["triples"], "system": "cort"}
    config["encoders"]["second"] = {**first, **more, "triples": triples, "training": training}
    config["systems"]["second"] = {"retrieve": "second"}
    (folder / "second.yaml").write_text(yaml.safe_dump(config), "utf-8")
    measures = "results/tiny/measures/test/second.json"
    status, output = snakemake(folder, "--cores", 2, "--configfile", "second.yaml", "--", measures)
    assert status == 0, output[-10_000:]
    jobs = planned(output)
    # Of the first round, only its runs of the training queries are new: its negatives for the second.
    assert (jobs["triples"], jobs["score_triples"], jobs["train"], jobs["retrieve"]) == (2, 2, 1, 3)
    assert "train_reranker" not in jobs
    table = read_table(folder / "results/tiny/triples/second.train.parquet", TRIPLES).to_pylist()
    results = {row: doc_ids for row, doc_ids, _ in read_run(folder / "results/tiny/runs/train/cort.trec")}
    assert all(row["negative"] in results[row["query_id"]] for row in table)
    curve = read_curve(folder / "results/tiny/encoders/second/curve.csv")
    assert [row["validation_measure"] is None for row in curve] == [row["validation_loss"] is None for row in curve]
    events = list((folder / "logs/tiny/events/encoders/second").glob("events.out.tfevents.*"))
    assert len(events) == 1
    assert events[0].stat().st_size > 500
    assert (folder / measures).is_file()


def check_index(results, queries, model):
    """What is found through an index has the scores of exact search, in the run as online; its audit is reported."""
    found, exact = (read_run(results / f"runs/test/{name}.trec") for name in (f"{model}-ivfpq", model))
    for one, other in zip(found, exact, strict=True):
        scores = dict(zip(other.doc_ids, other.scores, strict=True))
        shared = [(scores[name], score) for name, score in zip(one.doc_ids, one.scores, strict=True) if name in scores]
        assert len(shared) >= 0.5 * len(one.doc_ids)
        assert all(own == pytest.approx(score, abs=1e-5) for own, score in shared)
    audit = read_artifact(results / f"audit/test/{model}.ivfpq.json", Audit)
    assert max(search.recall for search in audit.searches) >= 0.9
    assert "IVFPQ" in (results / "report/figures/audits.svg").read_text("utf-8")
    with closing(open_searcher(read_experiment(results / "experiment.yaml"), [f"{model}-ivfpq"])) as searcher:
        for ranking, text in zip(found, queries, strict=True):
            answer = searcher.search(f"{model}-ivfpq", text, searcher.depth)
            assert [one.score for one in answer.results] == pytest.approx(ranking.scores, abs=1e-4)


@pytest.mark.exhaustive
def test_late_interaction_retrieves_and_reranks_with_one_model(tmp_path):
    folder = copy_with_tiny(tmp_path / "tree")
    indexed = find_spec("faiss") is not None
    # An IVF-PQ index needs 256 vectors.
    collection = folder / "tiny/data/collection.tsv"
    more = "".join(f"more{line}" for line in collection.read_text("utf-8").splitlines(keepends=True))
    with collection.open("a", encoding="utf-8") as file:
        file.write(more)
    config = late_config(yaml.safe_load((folder / TINY).read_text("utf-8")), indexed)
    (folder / "late.yaml").write_text(yaml.safe_dump(config | {"shards": 2}, sort_keys=False), "utf-8")
    status, output = snakemake(folder, "--cores", 2, "--configfile", "late.yaml")
    assert status == 0, output[-10_000:]
    jobs, results = planned(output), folder / "results/late"
    status, again = snakemake(folder, "--cores", 2, "--configfile", "late.yaml")
    assert (status, "Nothing to be done" in again) == (0, True), again[-10_000:]
    assert (jobs["encode_tokens"], jobs["retrieve_tokens"], jobs["score"], jobs["rerank"]) == (2, 1, 1, 1)
    through_index = [jobs.get(name, 0) for name in ("ivfpq", "audit_ivfpq", "retrieve_ivfpq")]
    assert through_index == ([2, 4, 2] if indexed else [0, 0, 0])
    assert (jobs["import_triples"], jobs["import_pairs"], jobs["triples"], jobs["pairs"]) == (1, 1, 1, 1)
    for counted in ("triples/taught", "pairs/late"):
        counts = json.loads((results / f"{counted}.train.json").read_text("utf-8"))
        # Those of queries that are held out.
        assert (counts["triples read"], counts["dropped: unknown query"], counts["triples kept"]) == (50, 10, 40)
    page = (results / "report/index.html").read_text("utf-8")
    assert all(f'<th scope="row">{name}</th>' in page for name in config["systems"])
    first, second = (read_run(results / f"runs/test/{name}.trec") for name in ("late", "bm25-late"))
    pairs = []
    for one, other in zip(first, second, strict=True):
        scores = dict(zip(one.doc_ids, one.scores, strict=True))
        reranked = dict(zip(other.doc_ids[:20], other.scores, strict=False))
        pairs += [(scores[name], score) for name, score in reranked.items() if name in scores]
    assert len(pairs) > 10
    # Those that re-ranking scored have the same scores, but for half precision.
    assert all(own == pytest.approx(score, rel=5e-3) for own, score in pairs)
    stored = read_experiment(results / "experiment.yaml")
    with closing(open_searcher(stored, ["late", "late+bm25", "bm25-late"])) as searcher:
        queries = read_table(results / "collection/queries.test.parquet", QUERIES)["text"].to_pylist()
        for ranking, text in zip(first, queries, strict=True):
            answer = searcher.search("late", text, searcher.depth)
            assert [one.score for one in answer.results] == pytest.approx(ranking.scores, abs=1e-4)
            assert answer.milliseconds.keys() == {"tokenize", "encode", "search", "total"}
        if indexed:
            for model in ("late", "taught"):
                check_index(results, queries, model)
        assert searcher.search("late+bm25", queries[0], 5).results[0].doc_id == first[0].doc_ids[0]
