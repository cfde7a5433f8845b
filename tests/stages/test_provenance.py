import hashlib
import json
import os
import platform
import shutil
import subprocess

import pyarrow as pa
import pytest
import yaml

from cort import provenance, resolve
from cort.downloads.catalog import load_catalog
from cort.experiment.downloads import resolve as with_paths
from cort.formats.artifacts import write_artifact
from cort.formats.tables import write_table
from tests.support.configs import completed
from tests.support.vectors import shard, unit, without_precision


def record(tmp_path, *inputs, computed=()):
    output = tmp_path / "provenance.json"
    options = ["--dataset", "tiny", "--output", str(output)]
    assert provenance.main([*options, "--inputs", *map(str, inputs), "--computed", *map(str, computed)]) == 0
    return json.loads(output.read_text("utf-8"))


def test_each_input_is_listed_once_with_size_and_checksum(tmp_path):
    texts = {"a.tsv": b"", "b.tsv": b"1\ttext\n" * 300_000}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    paths = [str(tmp_path / name) for name in ("b.tsv", "a.tsv", "b.tsv")]
    assert record(tmp_path, *paths)["inputs"] == [
        {"path": path, "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        for path, text in ((paths[0], texts["b.tsv"]), (paths[1], texts["a.tsv"]))
    ]


def test_the_precisions_of_vectors_and_scores_are_recorded(tmp_path):
    vectors = shard(tmp_path / "a.arrow", ["d"], unit(1, 1))
    write_table(tmp_path / "b.parquet", pa.table({"a": [1]}).replace_schema_metadata({"precision": "bf16"}))
    files = [vectors, shutil.copy(vectors, tmp_path / "old.arrow"), tmp_path / "b.parquet"]
    without_precision(files[1])
    found = record(tmp_path, computed=files)["precision"]
    assert found == dict(zip(map(str, files), ["fp32", None, "bf16"], strict=True))


def test_program_and_machine_are_recorded(tmp_path):
    facts = record(tmp_path)
    assert facts["software"]["python"] == platform.python_version()
    assert facts["software"]["packages"]["snakemake"].startswith("9.")
    assert facts["hardware"]["cores"] == len(os.sched_getaffinity(0))
    with open("/proc/meminfo") as handle:
        kilobytes = int(handle.readline().split()[1])
    assert facts["hardware"]["memory_mb"] == pytest.approx(kilobytes / 1024, rel=0.01)


def test_the_commit_and_whether_files_differ_from_it(tmp_path):
    def git(*words):
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", "-C", tmp_path, *names, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert provenance.describe_code(tmp_path)["commit"] is None
    git("init", "--quiet")
    (tmp_path / "file").write_text("a")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    found = provenance.describe_code(tmp_path)
    assert (found["commit"], found["modified"]) == (git("rev-parse", "HEAD"), False)
    (tmp_path / "file").write_text("b")
    assert provenance.describe_code(tmp_path)["modified"] is True


def test_graphics_cards_are_those_of_the_driver_and_none_if_it_is_missing_or_fails(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "Card A, 40960 MiB, 550.54"\necho "Card B, 40960 MiB, 550.54"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert provenance.describe_hardware()["gpus"] == ["Card A, 40960 MiB, 550.54", "Card B, 40960 MiB, 550.54"]
    tool.write_text("#!/bin/sh\necho no driver\nexit 9\n")
    assert provenance.describe_hardware()["gpus"] == []
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert provenance.describe_hardware()["gpus"] == []


def test_a_missing_input_is_named_and_nothing_is_written(tmp_path, complaint):
    output = tmp_path / "out" / "provenance.json"
    argv = ["--dataset", "tiny", "--inputs", tmp_path / "none.tsv", "--output", output]
    assert "none.tsv: No such file" in complaint(provenance.main, argv, output)


def test_the_report_shows_where_results_came_from(tmp_path):
    from cort.reporting.inputs import Input, read_origin

    (tmp_path / "a.tsv").write_bytes(b"abc")
    record(tmp_path, tmp_path / "a.tsv")
    facts, inputs = read_origin(tmp_path / "provenance.json")
    assert facts["Python"] == platform.python_version()
    assert "torch 2." in facts["Libraries"]
    assert inputs == [Input(str(tmp_path / "a.tsv"), 3, hashlib.sha256(b"abc").hexdigest())]


FUSED = {"fuse": {"systems": ["cort", "bm25"], "method": "linear", "tune": "RR@10"}}


def metadata(tmp_path, changes=None, **tuned):
    """Metadata of the runs of the test split of the changed tiny experiment, by system; of tuned values by file."""
    folder = tmp_path / "results"
    for file, values in {"lexical/bm25/parameters": {"k1": 0.75, "b": 0.4}, **tuned}.items():
        write_artifact(folder / f"{file}.json", values)
    config = json.dumps(with_paths(completed(changes)))
    assert resolve.main(["--config", config, "--output", str(folder / "experiment.yaml")]) == 0
    options = ["--dataset", "tiny", "--experiment", folder / "experiment.yaml"]
    options += ["--output", folder / "provenance.json", "--output-folder", folder]
    assert provenance.main([*map(str, options)]) == 0
    files = (folder / "runs" / "test").glob("[!.]*")
    return {file.name.removesuffix(".ir-metadata.yaml"): yaml.safe_load(file.read_text("utf-8")) for file in files}


def test_metadata_of_bm25_has_its_tuned_parameters_and_analysis(tmp_path):
    found = metadata(tmp_path)
    assert set(found) == set(completed()["systems"])
    bm25 = found["bm25"]
    assert (bm25["tag"], bm25["schema-version"]) == ("bm25", 0.1)
    assert bm25["research goal"] == {"description": "Tiny & whole", "evaluation": {"baseline": ["bm25"]}}
    assert bm25["implementation"]["executable"]["cmd"] == "snakemake --cores all results/tiny/provenance.json"
    assert bm25["actor"] == {}
    assert bm25["method"] == {
        "automatic": True,
        "score ties": "by doc_id",
        "indexing": {
            "tokenizer": "org.apache.lucene.analysis.standard.StandardTokenizer",
            "stemmer": "org.apache.lucene.analysis.en.PorterStemFilter",
            "stopwords": "org.apache.lucene.analysis.en.EnglishAnalyzer.ENGLISH_STOP_WORDS_SET",
        },
        "retrieval": [{"name": "bm25", "method": "BM25, Anserini", "depth": 50, "k1": 0.75, "b": 0.4}],
    }
    files = {"qrels": "data/qrels.test.tsv", "topics": "data/queries.test.tsv"}
    assert bm25["data"] == {"test collection": {"name": "tiny", "source": "data/collection.tsv", **files}}


def test_metadata_of_a_pipeline_names_its_parts_first(tmp_path):
    # The encoder's run is part of the fusion, and of a part of it.
    systems = {
        "systems fused": FUSED,
        "systems cort+bm25-cross": {"rerank": "cort+bm25", "reranker": "cross", "depth": 10, "weight": 0.6},
        "systems all": {"interleave": ["cort", "cort+bm25-cross", "fused"]},
    }
    found = metadata(tmp_path, systems, **{"weights/fused": {"weights": [0.35, 0.65]}})
    *_, fused = found["fused"]["method"]["retrieval"]
    assert (fused["interpolates"], fused["weight"]) == (["cort", "bm25"], [0.35, 0.65])
    parts = {part["name"]: part for part in found["all"]["method"]["retrieval"]}
    assert list(parts) == ["cort", "bm25", "cort+bm25", "fused", "cort+bm25-cross", "all"]
    assert parts["fused"] == fused
    assert parts["cort+bm25"]["interpolates"] == ["cort", "bm25"]
    reranked = {key: parts["cort+bm25-cross"][key] for key in ("reranks", "depth", "weight")}
    assert reranked == {"reranks": "cort+bm25", "depth": 10, "weight": 0.6}


def test_metadata_of_a_trained_model_names_what_it_was_trained_on(tmp_path):
    found = metadata(tmp_path)
    files = {"qrels": "data/qrels.train.tsv", "topics": "data/queries.train.tsv"}
    train = [{"name": "tiny", "source": "data/collection.tsv", **files}]
    assert {name for name, one in found.items() if "training data" in one["data"]} == {
        name for name in found if name.startswith("cort")
    }
    assert found["cort+bm25-cross"]["data"]["training data"] == train
    [cort] = found["cort"]["method"]["retrieval"]
    assert cort == {"name": "cort", "method": "encoder encoder, exact search", "depth": 50}


def test_metadata_of_released_models_and_public_files(tmp_path):
    public = "qidpidtriples.train.full.2.tsv.gz"
    changes = {
        "encoders encoder triples": {"file": f"download:msmarco/{public}", "first_rank": 2, "last_rank": 20},
        "encoders hub": {"pretrained": "a/model", "revision": "0" * 40},
        "systems hub": {"retrieve": "hub"},
        "splits test qrels": "download:msmarco/qrels.dev.small.tsv",
        "splits test queries": ["a.tsv", *(f"download:msmarco/queries.{name}.small.tsv" for name in ("dev", "eval"))],
    }
    found = metadata(tmp_path, changes)
    files = load_catalog().files
    collection = found["hub"]["data"]["test collection"]
    archive = files["msmarco/collectionandqueries.tar.gz"].urls[0]
    assert (collection["qrels"], collection["topics"]) == (archive, f"a.tsv, {archive}")
    assert found["cort"]["data"]["training data"] == [{"source": files[f"msmarco/{public}"].urls[0]}]
    [hub] = found["hub"]["method"]["retrieval"]
    assert (hub["pretrained"], hub["revision"]) == ("a/model", "0" * 40)


def test_metadata_leave_out_what_is_unknown(tmp_path):
    """How a published run was made, values that differ between queries, and an analysis in several languages."""
    folded = {"retrieve": "folded"}
    tune = {"k1": [0.6], "b": [0.4], "measure": "RR@10", "folds": 3}
    changes = {
        "systems folded": folded,
        "lexical folded": {"language": "de", "tune": tune},
        "systems both": {"interleave": ["folded", "bm25"]},
        "systems other": {"interleave": ["published", "bm25"]},
        "collection": {"irds": "a/collection", "passages": {}, "aggregate": "none"},
        "splits test": {"irds": "a/collection/test"},
    }
    found = metadata(tmp_path, changes)
    assert found["published"]["method"] == {
        "score ties": "by doc_id",
        "retrieval": [{"name": "published", "method": "published run"}],
    }
    assert "automatic" not in found["other"]["method"]
    assert set(found["folded"]["method"]["indexing"].values()) == {
        "io.anserini.analysis.AnalyzerMap.getLanguageSpecificAnalyzer(de)"
    }
    assert "indexing" not in found["both"]["method"]
    [by_fold] = found["folded"]["method"]["retrieval"]
    assert by_fold.keys() == {"name", "method", "depth", "parameters", "folded"}
    assert by_fold["parameters"].endswith("lexical/folded/parameters/test.json")
    assert found["bm25"]["data"]["test collection"] == {
        "name": "tiny",
        "source": "a/collection",
        "ir_datasets": "a/collection/test",
    }


def test_metadata_have_the_recorded_machine_and_program(tmp_path, monkeypatch):
    cards = ["Card A, 40960 MiB, 550.54", "Card B, 81920 MiB, 550.54"]
    hardware = provenance.describe_hardware() | {"gpus": cards, "memory_mb": 32 << 10}
    software = provenance.describe_software() | {"java": "openjdk 21.0.8 2025-07-15 LTS", "distribution": "Linux 1"}
    code = {"version": "1", "commit": "0" * 40, "modified": True}
    monkeypatch.setattr(provenance, "describe_hardware", lambda: hardware)
    monkeypatch.setattr(provenance, "describe_software", lambda: software)
    monkeypatch.setattr(provenance, "describe_code", lambda folder: code)
    packages = software["packages"]
    found = metadata(tmp_path)["bm25"]
    assert found["platform"] == {
        "hardware": {
            "cpu": {
                "model": hardware["processor"],
                "architecture": platform.machine(),
                "operation mode": platform.architecture()[0].replace("bit", "-bit"),
                "number of cores": len(os.sched_getaffinity(0)),
            },
            "gpu": {"model": "Card A; Card B", "memory": "40960 MiB; 81920 MiB"},
            "ram": "32 GB",
        },
        "operating system": {"kernel": platform.release(), "distribution": "Linux 1"},
        "software": {
            "libraries": {
                "python": [f"{name}=={version}" for name, version in packages.items()],
                "java": ["openjdk==21.0.8"],
            },
            "retrieval toolkit": [f"pyserini=={packages['pyserini']}"],
        },
    }
    assert found["implementation"]["source"] == {"lang": ["Python"], "commit": f"{'0' * 40}-dirty"}
    code |= {"commit": None, "modified": None}
    software |= {"java": None, "distribution": None}
    found = metadata(tmp_path)["bm25"]
    assert found["implementation"]["source"] == {"lang": ["Python"]}
    assert found["platform"]["operating system"].keys() == {"kernel"}
    assert found["platform"]["software"]["libraries"].keys() == {"python"}


def test_metadata_have_the_same_bytes_each_time(tmp_path):
    files = []
    for _ in range(2):
        metadata(tmp_path)
        files.append({path: path.read_bytes() for path in (tmp_path / "results" / "runs").rglob("*.yaml")})
    assert files[0] == files[1]
