import fcntl
import os
import shutil

import pytest

from scripts.clean_cache import clean
from scripts.sandbox import TINY
from tests.support.changes import snakemake
from tests.support.common import die_while_writing


def shard(folder, number, of):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"passages.{number}-of-{of}.arrow"
    path.write_bytes(b"four")
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


def test_shards_of_another_number_go_if_the_present_ones_are_all_there(root):
    whole, part = (root / "results" / "d" / name for name in ("embeddings/whole", "token_embeddings/part"))
    kept = [shard(whole, number, 2) for number in (1, 2)] + [shard(part, 1, 2), shard(part, 1, 3)]
    old = shard(whole, 2, 3)
    assert list(clean(root)) == [(old, 4)]
    assert all(path.exists() for path in kept)
    assert not old.exists()


def test_only_what_dead_processes_left_goes(root):
    target = root / "results" / "d" / "runs" / "file"
    target.parent.mkdir(parents=True)
    die_while_writing(target)
    (left,) = target.parent.iterdir()
    assert [path for path, _ in clean(root)] == [left]
    assert list(target.parent.iterdir()) == []


def test_a_dataset_at_work_is_left_alone(root):
    shard(root / "results" / "d" / "embeddings" / "e", 1, 1)
    old = shard(root / "results" / "d" / "embeddings" / "e", 1, 2)
    owner = root / ".snakemake" / "owners" / "d"
    owner.parent.mkdir(parents=True)
    with open(owner, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert list(clean(root)) == []
    assert list(clean(root)) == [(old, 4)]


@pytest.mark.slow
def test_nothing_runs_again(built, tmp_path):
    tree = shutil.copytree(built, tmp_path / "tree", copy_function=os.link, symlinks=True)
    (embeddings,) = (tree / "results" / "tiny" / "embeddings").iterdir()
    old = shard(embeddings, 2, 5)
    assert old in dict(clean(tree))
    status, output = snakemake(tree, "--dry-run", "--configfile", TINY)
    assert (status, "Nothing to be done" in output) == (0, True), output
