import os
import shutil
import subprocess

import pytest

from scripts.clean import clean, main
from tests.support.common import ROOT, die_while_writing
from tests.support.forking import snakemake
from tests.support.sandbox import TINY


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
    record = place / f".{old[0].name}.sum"
    record.touch()
    kept = [*(shard(place, number, 2, 30, kind) for number in (1, 2)), shard(place, 1, 8, 0, kind)]
    assert sorted(clean(root)) == sorted((path, 4) for path in old)
    assert not record.exists()
    assert sorted(place.iterdir()) == sorted(kept)


def test_shards_stay_if_no_set_is_complete(root):
    shard(root / "results" / "d" / "embeddings" / "e", 1, 2, 60)
    shard(root / "results" / "d" / "embeddings" / "e", 1, 3)
    assert list(clean(root)) == []


def test_only_what_dead_processes_left_goes(root):
    target = root / "results" / "d" / "runs" / "file"
    target.parent.mkdir(parents=True)
    die_while_writing(target)
    (left,) = target.parent.iterdir()
    assert [path for path, _ in clean(root)] == [left]
    assert list(target.parent.iterdir()) == []


def test_while_snakemake_runs_nothing_goes(root):
    (root / ".snakemake" / "locks").mkdir(parents=True)
    (root / ".snakemake" / "log").mkdir()
    lock = root / ".snakemake" / "locks" / "0.input.lock"
    lock.touch()
    with pytest.raises(SystemExit, match="found locks of a running workflow"):
        main()
    assert (root / ".snakemake" / "log").exists()
    lock.unlink()
    main()
    assert not (root / ".snakemake" / "log").exists()


@pytest.mark.slow
def test_nothing_runs_again(built, tmp_path):
    tree = shutil.copytree(built, tmp_path / "tree", copy_function=os.link, symlinks=True)
    (embeddings,) = (tree / "results" / "tiny" / "embeddings").iterdir()
    old = shard(embeddings, 2, 5, 1e6)
    assert old in dict(clean(tree))
    status, output = snakemake(tree, "--dry-run", "--configfile", TINY)
    assert (status, "Nothing to be done" in output) == (0, True), output


def make_clean(folder, *variables):
    """Call `make clean` in a folder; return its status and output."""
    command = ["make", "--silent", "--file", ROOT / "Makefile", "clean", *variables]
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
    status, output = make_clean(tmp_path)
    assert status != 0
    assert "found 1 write-protected files in results/d/encoders/cort, expected none" in output
    assert "FORCE=1" in output
    assert (folder / "config.json").exists()
    assert (tmp_path / "logs").exists()
    assert make_clean(tmp_path, "FORCE=1")[0] == 0
    assert not any((tmp_path / name).exists() for name in ("results", "logs"))


def test_make_clean_deletes_what_is_behind_a_link(tmp_path):
    disk, tree = tmp_path / "disk", tmp_path / "tree"
    (disk / "d").mkdir(parents=True)
    (disk / "d" / "run.trec").touch()
    tree.mkdir()
    (tree / "results").symlink_to(disk)
    assert make_clean(tree)[0] == 0
    assert list(disk.iterdir()) == []
    # The link stays for later results.
    assert (tree / "results").is_symlink()
