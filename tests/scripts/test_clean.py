import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from snakemake.persistence.file import FilePersistence

from cort.runtime.files import atomic_folder
from scripts.clean import clean, datasets_of, main
from tests.support.changes import replace
from tests.support.common import ROOT, die_while_writing
from tests.support.forking import snakemake, succeed
from tests.support.jobs import job
from tests.support.sandbox import TINY
from tests.support.workflow import process_as_it_was
from workflow.snakemake_api import PlanError


def shard(folder, number, of, age=0, kind="arrow"):
    """Write a shard that is `age` seconds old."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"passages.{number}-of-{of}.{kind}"
    path.write_bytes(b"four")
    then = path.stat().st_mtime - age
    os.utime(path, (then, then))
    return path


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_caches_and_logs_go_with_their_size(root):
    for name in (".mypy_cache", ".snakemake/log", "cort/formats/__pycache__"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_bytes(b"123456")
    (root / ".snakemake" / "metadata").mkdir()
    found = dict(clean(root))
    assert found == {root / name: 6 for name in (".mypy_cache", ".snakemake/log", "cort/formats/__pycache__")}
    assert not any(path.exists() for path in found)
    assert (root / ".snakemake" / "metadata").is_dir()


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("embeddings/e", "arrow"),
        ("embeddings/e", "parquet"),
        ("token_embeddings/e", "arrow"),
        ("tokens/b", "arrow"),
        ("expansions/e", "parquet"),
        ("expansions/e/scores", "parquet"),
        ("term_weights/w", "parquet"),
        ("rankings/test/s", "parquet"),
    ],
)
def test_shards_of_sets_before_the_newest_complete_one_go(root, folder, kind):
    place = root / "results" / "d" / folder
    old = [shard(place, 2, 3, 60, kind), *(shard(place, number, 4, 90, kind) for number in range(1, 5))]
    kept = [*(shard(place, number, 2, 30, kind) for number in (1, 2)), shard(place, 1, 8, 0, kind)]
    assert sorted(clean(root)) == sorted((path, 4) for path in old)
    assert sorted(place.iterdir()) == sorted(kept)


def test_shards_stay_if_no_set_is_complete(root):
    shard(root / "results" / "d" / "embeddings" / "e", 1, 2, 60)
    shard(root / "results" / "d" / "embeddings" / "e", 1, 3)
    assert list(clean(root)) == []


def test_what_killed_processes_left_goes(root):
    target = root / "results" / "d" / "tokens" / "passages.1-of-2.arrow"
    target.parent.mkdir(parents=True)
    die_while_writing(target)
    (left,) = target.parent.iterdir()
    (left / target.name).write_bytes(b"half")
    assert list(clean(root)) == [(left, 4)]
    assert list(target.parent.iterdir()) == []


# What no config makes.


def put(path, text="1234"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def record(root, path, *logs):
    """Write a record of Snakemake, and the file that it says was made."""
    place = FilePersistence._record_path(
        SimpleNamespace(_fetch_max_len=lambda _: 255), root / ".snakemake/metadata", path
    )
    put(Path(place), json.dumps({"log": logs, "rule": "retrieve"}))
    return put(root / path)


def made(name, *, planned=False, inputs=()):
    """The job of a run, and the one that writes the settings; logs and benchmarks of both."""
    run = {"outputs": [f"results/d/runs/test/{name}.trec"], "logs": [f"logs/d/retrieve/test.{name}.log"]}
    stored = {"outputs": ["results/d/experiment.yaml"], "logs": ["logs/d/resolve.log"]}
    return [job("retrieve", inputs=inputs, **run), job("resolve", planned=planned, **stored)]


LONG = "long" * 45


@pytest.fixture
def shared(root, monkeypatch):
    """A dataset that two configs share, in whose folder are files of removed systems; and the jobs of the configs."""
    put(root / "config" / "a.yaml", "dataset: d\n")
    put(root / "ablations" / "b.yaml", "extends: config/a.yaml\nsystems: [b]\n")
    put(root / "config" / "other.yaml", "extends: config/a.yaml\ndataset: e\nencoders: {x: results/d/encoders/used/}\n")
    put(root / "config" / "docker.yaml", "services: {d: results/d/}\n")
    put(root / "results" / "d" / "experiment.yaml")
    for name in ("a", "b", "gone", LONG):
        record(root, f"results/d/runs/test/{name}.trec", f"logs/d/retrieve/test.{name}.log")
        put(root / "logs" / "d" / "retrieve" / f"test.{name}.log")
        put(root / "benchmarks" / "d" / "retrieve" / f"test.{name}.tsv")
    put(root / "logs" / "d" / "resolve.log")
    put(root / "benchmarks" / "d" / "resolve" / "resolve.tsv")
    record(root, "results/e/runs/test/gone.trec")
    jobs = {"a.yaml": made("a"), "b.yaml": made("b", planned=True)}
    jobs["other.yaml"] = [job("pretrained", inputs=["results/d/encoders/used/model.safetensors"])]
    monkeypatch.setattr("scripts.clean.jobs_of", lambda config: jobs[config.name])
    return jobs


def files_below(root):
    folders = (root / name for name in ("results", "logs", "benchmarks"))
    return {str(path.relative_to(root)) for folder in folders for path in folder.rglob("*") if path.is_file()}


def test_what_no_config_of_a_dataset_makes_goes(root, shared, capsys):
    # Folders that were written as a whole: one is gone, another is used by another dataset, one is protected.
    for name in ("gone", "used", "locked"):
        with atomic_folder(root / "results" / "d" / "encoders" / name) as folder:
            for file in ("README.md", "model.safetensors"):
                put(folder / file)
        record(root, f"results/d/encoders/{name}/README.md", f"logs/d/train/{name}.log")
        put(root / "logs" / "d" / "train" / f"{name}.log")
    (root / "results" / "d" / "encoders" / "locked" / "model.safetensors").chmod(0o444)
    # What a person has put there.
    put(root / "results" / "d" / "judgements.jsonl")
    put(root / "results" / "d" / "encoders" / "notes.txt")
    put(root / "results" / "d" / "runs" / "test" / "mine.trec")
    before = files_below(root)
    main([])
    removed = before - files_below(root)
    expected = {"logs/d/train/gone.log"}
    expected |= {f"results/d/encoders/gone/{name}" for name in ("README.md", "model.safetensors")}
    for name in ("gone", LONG):
        expected |= {f"results/d/runs/test/{name}.trec", f"logs/d/retrieve/test.{name}.log"}
        expected |= {f"benchmarks/d/retrieve/test.{name}.tsv"}
    assert removed == expected
    written, errors = capsys.readouterr()
    assert all(name in written for name in removed)
    assert [line.partition(" stays: ")[0] for line in errors.splitlines()] == [
        f"results/d/encoders/{name}/README.md" for name in ("locked", "used")
    ]


def unplannable(config):
    raise PlanError("docs/queries.tsv: found no file, expected input of the rule split\nmore")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"b.yaml": unplannable}, "results/d stays: docs/queries.tsv: found no file, expected input of the rule split"),
        # The config was edited since.
        ({"a.yaml": lambda _: made("a", planned=True)}, "results/d stays: no config here is what was built last"),
    ],
)
def test_a_dataset_stays_if_its_configs_are_not_all_known(root, shared, monkeypatch, capsys, change, line):
    monkeypatch.setattr(
        "scripts.clean.jobs_of", lambda config: change.get(config.name, lambda _: shared[config.name])(config)
    )
    before = files_below(root)
    main([])
    assert files_below(root) == before
    (found,) = capsys.readouterr().err.splitlines()
    assert found.startswith(line)


def test_a_config_of_another_folder_is_named(root, shared, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "a.yaml"
    (root / "config" / "a.yaml").rename(elsewhere)
    put(root / "ablations" / "b.yaml", f"extends: {elsewhere}\n")
    before = files_below(root)
    main([])
    assert files_below(root) == before
    main([str(elsewhere)])
    assert "results/d/runs/test/gone.trec" in before - files_below(root)


def test_a_config_with_a_mistake_names_its_dataset(root):
    for text in ("dataset: d\n\tx: 1\n", '{"dataset": "d", "systems": }', "dataset: d\ndataset: d\n"):
        assert datasets_of(root, put(root / "x.yaml", text)) == {"d"}


@pytest.mark.slow
def test_nothing_runs_again_after_a_removed_system_is_gone(built, tmp_path, monkeypatch):
    tree = shutil.copytree(built, tmp_path / "tree", symlinks=True)
    config = yaml.safe_load((tree / TINY).read_text("utf-8"))
    del config["systems"]["cort-onng"]
    replace(tree / TINY, yaml.safe_dump(config, sort_keys=False).encode())
    succeed(tree, "snakemake", "--cores", 2, "--configfile", TINY)
    (embeddings,) = (tree / "results" / "tiny" / "embeddings").iterdir()
    old = shard(embeddings, 2, 5, 1e6)
    before = files_below(tree)
    monkeypatch.chdir(tree)
    with process_as_it_was():
        main([])
    removed = before - files_below(tree)
    assert {str(old.relative_to(tree)), "results/tiny/runs/test/cort-onng.trec"} <= removed
    rest = removed - {str(old.relative_to(tree))}
    assert all("onng" in name for name in rest), rest
    # An index of the graph, and all about it.
    assert not any("onng" in name for name in files_below(tree))
    status, output = snakemake(tree, "--dry-run", "--configfile", TINY)
    assert (status, "Nothing to be done" in output) == (0, True), output


@pytest.mark.parametrize("target", ["clean", "clean-cache"])
def test_while_a_build_runs_nothing_goes(root, target):
    put(root / ".snakemake" / "locks" / "0.input.lock")
    kept = [put(root / name) for name in (".snakemake/log/1.log", "results/d/runs/test/bm25.trec", "logs/d/x.log")]
    status, output = make(root, target)
    (line,) = (line for line in output.splitlines() if line.startswith("error: "))
    assert status != 0
    assert ".snakemake/locks: found the locks of a build, expected none; wait for its end" in line
    assert line.endswith(" call .venv/bin/snakemake --unlock")
    assert all(path.exists() for path in kept)


def make(folder, *words):
    """Call make in a folder; return its status and output."""
    command = ["make", "--silent", "--file", ROOT / "Makefile", *words]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def test_make_clean_spares_protected_files_unless_forced(tmp_path):
    folder = tmp_path / "results" / "d" / "encoders" / "cort"
    folder.mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    (folder / "config.json").touch()
    (folder / "model.safetensors").touch()
    (folder / "model.safetensors").chmod(0o444)
    folder.chmod(0o555)
    status, output = make(tmp_path, "clean")
    assert status != 0
    assert "found 1 write-protected files in results/d/encoders/cort, expected none" in output
    assert "FORCE=1" in output
    assert (folder / "config.json").exists()
    assert (tmp_path / "logs").exists()
    assert make(tmp_path, "clean", "FORCE=1")[0] == 0
    assert not any((tmp_path / name).exists() for name in ("results", "logs"))


def test_make_clean_deletes_what_is_behind_a_link(tmp_path):
    disk, tree = tmp_path / "disk", tmp_path / "tree"
    (disk / "d").mkdir(parents=True)
    (disk / "d" / "run.trec").touch()
    tree.mkdir()
    (tree / "results").symlink_to(disk)
    assert make(tree, "clean")[0] == 0
    assert list(disk.iterdir()) == []
    # The link stays for later results.
    assert (tree / "results").is_symlink()
