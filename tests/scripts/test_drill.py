"""A build that is killed, or runs out of disk, ends as one that nothing happened to."""

import shutil

import pytest

from scripts import drill
from scripts.sandbox import TINY, copy_with_tiny, snakemake

RUN = "results/tiny/runs/test/cort.trec"
VALIDATION_VECTORS = "results/tiny/embeddings/encoder/queries.validation.arrow"
LOG = """\
[Sat Nov 21 15:00:00 2026]
Job 2: Index the collection tiny
[Sat Nov 21 15:00:01 2026]
Job 3: Train it
[Sat Nov 21 15:00:02 2026]
Finished jobid: 2 (Rule: bm25_index)
Finished jobid: 7 (Rule: unheard_of)
"""


def test_log_tells_what_started_and_what_finished():
    started, finished = drill.parse_log(LOG)
    assert started == ["Index the collection tiny", "Train it"]
    assert finished == {"Index the collection tiny": "bm25_index"}


def test_differences_are_seen(tmp_path):
    (tmp_path / "results").mkdir()
    for name in ("same", "other", "new"):
        (tmp_path / "results" / name).write_text(name)
    expected = drill.results(tmp_path)
    assert drill.differences(tmp_path, expected) == []
    (tmp_path / "results" / "other").write_text("changed")
    (tmp_path / "results" / "new").unlink()
    (tmp_path / "results" / ".half.tmp").mkdir()
    assert drill.differences(tmp_path, expected) == [
        "results/new differs",
        "results/other differs",
        "results/.half.tmp is left",
    ]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_build_that_is_killed_while_it_trains_loses_nothing(built, tmp_path, monkeypatch):
    def copy_without_encoder(folder):
        shutil.copytree(built, folder, symlinks=True)
        for name in ("encoders", "embeddings"):
            shutil.rmtree(folder / "results" / "tiny" / name)
        (folder / RUN).unlink()
        return folder

    monkeypatch.setattr(drill, "copy_with_tiny", copy_without_encoder)
    monkeypatch.setattr(drill, "ARGUMENTS", (*drill.ARGUMENTS, "--", RUN, VALIDATION_VECTORS))
    # Long enough for the training to have begun.
    monkeypatch.setattr(drill, "EARLIEST", 6.0)
    found = drill.kill_again_and_again(tmp_path, built, kills=2, seed=5, latest=12.0)
    assert found.faults == []
    assert found.kills >= 2


@pytest.mark.slow
@pytest.mark.exhaustive
def test_build_that_is_killed_from_its_beginning_loses_nothing(built, tmp_path):
    found = drill.kill_again_and_again(tmp_path, built, kills=25, seed=5, latest=30.0)
    assert found.faults == []
    assert found.kills >= 25


@pytest.mark.slow
@pytest.mark.exhaustive
def test_full_disk_is_told_in_a_line_and_the_build_goes_on_when_there_is_room(built, tmp_path, mount_disk):
    tree = copy_with_tiny(tmp_path / "tree")
    mount_disk(tree / "results", kilobytes=400)
    status, output = snakemake(tree, "--cores", 2, "--configfile", TINY)
    assert status == 1
    assert "No space left on device; free space and call again" in output
    assert "Traceback" not in output
    mount_disk(tree / "results", kilobytes=100_000)
    status, output = snakemake(tree, "--cores", 2, "--configfile", TINY)
    assert status == 0, output[-10_000:]
    assert drill.differences(tree, drill.results(built)) == []
