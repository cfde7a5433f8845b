import os
from types import SimpleNamespace

import pytest

from workflow.machine import Machine, existing_shards, fix_shards

OLD, NEW = 1_000_000_000, 1_700_000_000


def whole(shards):
    return [f"{number}-of-{shards}" for number in range(1, shards + 1)]


@pytest.mark.parametrize(
    ("gpus", "cores", "threads"),
    [(0, 64, 8), (1, 2, 2), (1, 64, 8), (4, 16, 4), (3, 8, 2), (8, 4, 1), (None, None, 8)],
)
def test_all_gpus_get_a_job_however_few_the_cores(gpus, cores, threads):
    assert Machine(gpus, cores).threads == threads


def test_a_job_gets_what_there_is_and_a_cluster_is_asked_for_all():
    assert [Machine(2, 8).gpus_for(asked) for asked in (1, 2, 4)] == [1, 2, 2]
    assert Machine(0, 8).gpus_for(1) == 0
    assert Machine(None, None).gpus_for(4) == 4


@pytest.mark.parametrize(
    ("files", "number"),
    [
        ({"a": [(["0-of-2", "3-of-2", "x-of-2", "1-of-2.more"], OLD)]}, None),
        # A part of a set is continued.
        ({"a": [(["3-of-8"], OLD)]}, 8),
        # What is complete counts, not the newer part of another set; of two complete ones, the newer.
        ({"a": [(whole(2), OLD), (whole(8)[:7], NEW)]}, 2),
        ({"a": [(whole(2), OLD), (whole(8), NEW)]}, 8),
        ({"a": [(whole(8), OLD), (whole(1), NEW)]}, 1),
        # The set that is complete in most folders counts.
        ({"a": [(whole(2), NEW)], "b": [(whole(3), OLD)], "c": [(whole(3), OLD)]}, 3),
    ],
)
def test_the_number_of_shards_is_that_of_the_files_there_are(tmp_path, files, number):
    for folder, sets in files.items():
        (tmp_path / folder).mkdir()
        for path, age in ((tmp_path / folder / f"passages.{name}.arrow", age) for names, age in sets for name in names):
            path.touch()
            os.utime(path, (age, age))
    (tmp_path / "a" / "queries.1-of-2.arrow").touch()
    assert existing_shards([*(tmp_path / folder for folder in files), tmp_path / "absent"]) == number


def chosen(folder, overwritten):
    settings = SimpleNamespace(overwrite_scatter=overwritten)
    number = fix_shards(SimpleNamespace(resource_settings=settings), "encode", [str(folder)], default=4)
    assert settings.overwrite_scatter == {**overwritten, "encode": number}
    return number


def test_the_number_is_the_users_then_that_of_the_files_then_that_of_the_machine(tmp_path):
    assert chosen(tmp_path, {}) == 4
    for name in whole(3):
        (tmp_path / f"passages.{name}.arrow").touch()
    assert chosen(tmp_path, {}) == 3
    assert chosen(tmp_path, {"encode": 2, "other": 7}) == 2
