import http.server
import re
import socket
import threading
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from cort.config import paths
from cort.config.load import complete
from cort.formats.tables import PASSAGES, QUERIES
from tests.support.common import COMMIT, write_rows
from tests.support.configs import adjusted, built
from tests.support.jobs import job
from workflow import forecast
from workflow.forecast import Pairs, Source, from_hub, pairs_to_score, pairs_to_send, texts_to_send

SCORES = "results/tiny/scores/cross/test.parquet"


@pytest.fixture
def everything():
    """Every file is to be made."""
    return lambda _: True


def test_pairs_are_the_candidates_that_systems_ask_for(everything):
    rerank = {"rerank": "bm25", "reranker": "cross"}
    changes = {"systems a": {**rerank, "depth": 5}, "systems b": {**rerank, "depth": 7}}
    changes |= {"systems cort+bm25-cross depth": 10}
    # Two runs, of one of which two systems ask for different numbers.
    assert pairs_to_score(built(changes), everything) == [Pairs("cross", "test", 17, None)]
    assert pairs_to_score(built(changes), lambda _: False) == []


def test_queries_are_counted_once_they_are_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment, jobs = built(), [job("score", outputs=[SCORES])]
    assert forecast.forecast(experiment, jobs).splitlines()[2] == "  cross on test: at most 10 x the queries of test"
    queries = Path(experiment.at(paths.QUERIES, split="test"))
    queries.parent.mkdir(parents=True)
    queries.touch()
    assert forecast.count_queries(experiment, "test") is None
    pyarrow.parquet.write_table(pyarrow.table({"query_id": [*map(str, range(1_200))]}), queries)
    assert forecast.forecast(experiment, jobs).splitlines()[2] == "  cross on test: at most 10 x 1,200 queries = 12,000"


MODEL = {"pretrained": "org/name", "revision": COMMIT}


def test_models_are_named_with_their_revision_unless_they_are_in_the_cache(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    models = {"small": MODEL, "other": {**MODEL, "pretrained": "org/other"}}
    experiment = adjusted(built(), {"base_models": models})
    files = {"results/tiny/base_models/small/model.safetensors"}
    cached = tmp_path / "models--org--name"
    assert [*from_hub(experiment, files)] == [Source(f"https://huggingface.co/org/name/tree/{COMMIT}", str(cached))]
    (cached / "snapshots" / COMMIT).mkdir(parents=True)
    assert [*from_hub(experiment, files)] == []
    experiment = adjusted(experiment, {"collection": {"hf": f"org/texts@{COMMIT}#test"}})
    (found,) = from_hub(experiment, {"results/tiny/collection/passages.parquet"})
    assert found.url == f"https://huggingface.co/datasets/org/texts/tree/{COMMIT}"
    assert found.path == str(tmp_path / "datasets--org--texts")


def test_an_archive_is_fetched_once_and_to_where_a_copy_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forecast, "answers", lambda url: False)
    jobs = [job("download", source="msmarco", file=f"qrels.{name}.tsv") for name in ("dev.small", "train")]
    jobs += [job("download", source="msmarco", file="collection.tsv")]
    lines = forecast.forecast(built(), jobs).splitlines()
    archive = "results/.downloads/msmarco/collectionandqueries.tar.gz"
    assert lines[1].startswith("To fetch: 1.1 GB; free on this disk: ")
    assert [line.partition(" -> ")[2] for line in lines[2:4]] == [
        f"{archive} (1.058 GB)",
        "results/.downloads/msmarco/qrels.train.tsv (0.011 GB)",
    ]
    assert lines[4].startswith("msmarco.z22.web.core.windows.net does not answer: fetch them elsewhere, ")
    Path(archive).parent.mkdir(parents=True)
    Path(archive).touch()
    left = [one.path for one in forecast.files_to_fetch(built(), jobs)]
    assert left == ["results/.downloads/msmarco/qrels.train.tsv"]
    experiment = built({"downloads folder": "mine"})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "qrels.train.tsv").touch()
    assert forecast.files_to_fetch(experiment, jobs) == []


def test_a_host_is_asked_once_and_not_for_long():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert forecast.answers(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    # One that takes connections and is silent.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert not forecast.answers(f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - began < 5 * forecast.PATIENCE
    assert not forecast.answers("http://127.0.0.1:1")


def test_what_a_service_is_asked_is_counted_before_anything_is_sent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = {"dataset": "x", "collection": {"passages": "p.tsv"}, "splits": {"test": {"queries": "q", "qrels": "j"}}}
    config |= {"systems": {"api": {"retrieve": "api"}}, "encoders": {"api": {"endpoint": "small"}}, "shards": 2}
    config |= {"evaluation": {"baseline": "api"}, "endpoint": {"max_requests": 7, "max_tokens": 9000}}
    config |= {"rerankers": {"judge": {"endpoint": "large", "depth": 40}}}
    config["systems"]["judged"] = {"rerank": "api", "reranker": "judge"}
    experiment = complete(config, "x.yaml")
    limits = "at most 7 requests and 9,000 tokens per job (`endpoint`)"
    unknown = [f"  small for {texts}; {limits}" for texts in ("the passages", "the queries of test")]
    assert [*texts_to_send(experiment, lambda path: True)] == unknown
    assert [*pairs_to_send(experiment, lambda path: True)] == [f"  large for the candidates of test; {limits}"]
    assert not [*texts_to_send(experiment, lambda path: False), *pairs_to_send(experiment, lambda path: False)]
    rows = [(f"d{number}", "word " * 80) for number in range(10)]
    Path("results/x/collection").mkdir(parents=True)
    write_rows("results/x/collection/passages.parquet", PASSAGES, rows)
    line, _ = texts_to_send(experiment, lambda path: True)
    # A column says how many bytes its texts have before compression; equal ones are stored once.
    assert re.fullmatch(rf"  small for the passages: 10 texts, about [\d,]+ tokens; {re.escape(limits)}", line)
    write_rows("results/x/collection/queries.test.parquet", QUERIES, [(f"q{number}", "a") for number in range(3)])
    (line,) = pairs_to_send(experiment, lambda path: True)
    # At 32 passages per request, two for each query.
    counts = r": at most 120 pairs, about 6 requests, [\d,]+ tokens; "
    assert re.fullmatch(f"  large for the candidates of test{counts}{re.escape(limits)}", line)
