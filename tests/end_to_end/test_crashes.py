"""A build that is killed, or runs out of disk, ends as one that nothing happened to.

`make crash-test` runs the test of builds that are killed; CRASH_KILLS says how often, CRASH_SEED seeds the moments.
"""

import os
import random
import shutil
import time

import pytest

from tests.support.forking import snakemake, succeed
from tests.support.kills import Tree, differences, parse_log, results
from tests.support.sandbox import TINY, copy_with_tiny

pytestmark = pytest.mark.usefixtures("real_starts")

RUN = "results/tiny/runs/test/cort.trec"
VALIDATION_VECTORS = "results/tiny/embeddings/encoder/queries.validation.arrow"
CALL = ("workflow.build", "--configfile", TINY, "--", "--cores", 2, "--printshellcmds")
KILLS, SEED = int(os.environ.get("CRASH_KILLS") or 25), int(os.environ.get("CRASH_SEED") or 1)
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
    assert parse_log(LOG) == (["Index the collection tiny", "Train it"], {"Index the collection tiny": "bm25_index"})


def test_differences_are_seen(tmp_path):
    (tmp_path / "results").mkdir()
    for name in ("same", "other", "new"):
        (tmp_path / "results" / name).write_text(name)
    expected = results(tmp_path)
    assert differences(tmp_path, expected) == []
    (tmp_path / "results" / "other").write_text("changed")
    (tmp_path / "results" / "new").unlink()
    (tmp_path / "results" / ".half.tmp").mkdir()
    (tmp_path / "results" / ".half.tmp" / "half").touch()
    assert differences(tmp_path, expected) == ["results/new", "results/other"]


def kills(generator, count, earliest, latest):
    """Options of calls that are killed at random moments, every fifth one alone."""
    for number in range(count):
        seconds, state = generator.uniform(earliest, latest), []

        def enough(_, seconds=seconds, state=state):
            state.append(time.monotonic())
            return state[-1] - state[0] > seconds

        yield {"enough": enough, "main_only": number % 5 == 4}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_build_that_is_killed_while_it_trains_loses_nothing(built, tmp_path):
    tree = Tree(shutil.copytree(built, tmp_path / "tree", symlinks=True))
    for name in ("encoders", "embeddings"):
        shutil.rmtree(tree.folder / "results" / "tiny" / name)
    (tree.folder / RUN).unlink()
    # Late enough for the training to have begun.
    moments = kills(random.Random(5), 2, 6, 12)  # noqa: S311 - moments, not secrets
    status, said, _ = tree.build(*CALL, RUN, VALIDATION_VECTORS, kills=moments)
    assert status == 0, said[-5_000:]
    assert differences(tree.folder, results(built)) == []


@pytest.mark.slow
@pytest.mark.exhaustive
def test_build_that_is_killed_from_its_beginning_loses_nothing(built, tmp_path):
    generator, left, number = random.Random(SEED), KILLS, 0  # noqa: S311 - moments, not secrets
    while left > 0:
        number += 1
        tree = Tree(copy_with_tiny(tmp_path / f"tree{number}"))
        try:
            status, said, killed = tree.build(*CALL, kills=kills(generator, left, 0.5, 30))
        finally:
            tree.kill()
        assert status == 0, said[-5_000:]
        assert differences(tree.folder, results(built)) == []
        left -= killed


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
    succeed(tree, "snakemake", "--cores", 2, "--configfile", TINY)
    assert differences(tree, results(built)) == []
