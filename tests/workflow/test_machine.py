"""What follows from the machine: threads, GPUs of a job, and the number of encoding shards."""

import os
from types import SimpleNamespace

import pytest

from workflow.machine import Machine, existing_shards, fix_shards

OLD, NEW = 1_000_000_000, 1_700_000_000


def touch(folder, *names, age=OLD):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / f"passages.{name}.arrow").touch()
        os.utime(folder / f"passages.{name}.arrow", (age, age))


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


def test_no_shards_give_no_number(tmp_path):
    touch(tmp_path / "a", "0-of-2", "3-of-2", "x-of-2", "1-of-2.more")
    (tmp_path / "a" / "queries.1-of-2.arrow").touch()
    assert existing_shards([tmp_path / "a", tmp_path / "absent"]) is None


def test_a_part_of_a_set_is_continued(tmp_path):
    touch(tmp_path / "a", "3-of-8")
    assert existing_shards([tmp_path / "a"]) == 8


def test_the_complete_set_counts_not_the_newer_part_of_another(tmp_path):
    touch(tmp_path / "a", *whole(2), age=OLD)
    touch(tmp_path / "a", *whole(8)[:7], age=NEW)
    assert existing_shards([tmp_path / "a"]) == 2
    touch(tmp_path / "a", "8-of-8", age=NEW)
    assert existing_shards([tmp_path / "a"]) == 8


def test_of_two_complete_sets_the_newer_counts(tmp_path):
    touch(tmp_path / "a", *whole(8), age=OLD)
    touch(tmp_path / "a", *whole(1), age=NEW)
    assert existing_shards([tmp_path / "a"]) == 1


def test_the_set_that_is_complete_in_most_folders_counts(tmp_path):
    touch(tmp_path / "a", *whole(2), age=NEW)
    for name in ("b", "c"):
        touch(tmp_path / name, *whole(3), age=OLD)
    assert existing_shards(tmp_path / name for name in "abc") == 3


def chosen(folder, overwritten):
    settings = SimpleNamespace(overwrite_scatter=overwritten)
    number = fix_shards(SimpleNamespace(resource_settings=settings), "encode", [str(folder)], default=4)
    assert settings.overwrite_scatter == {**overwritten, "encode": number}
    return number


def test_the_number_is_the_users_then_that_of_the_files_then_that_of_the_machine(tmp_path):
    assert chosen(tmp_path, {}) == 4
    touch(tmp_path, *whole(3))
    assert chosen(tmp_path, {}) == 3
    assert chosen(tmp_path, {"encode": 2, "other": 7}) == 2
