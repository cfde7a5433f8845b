"""Builds that make the same files one after another; tests/end_to_end has the jobs of such builds on a cluster."""

import os

import pytest

from cort.runtime.errors import InputError
from workflow.running import BUILD, LISTS, begin_build, check_newest


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Begin a build in an empty folder; return a function that checks the files of its jobs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(BUILD, "")

    def build(*files):
        begin_build(files)
        name = os.environ[BUILD]

        def check(*outputs):
            monkeypatch.setenv(BUILD, name)
            check_newest(outputs)

        return check

    return build


def test_a_job_makes_nothing_that_a_later_build_makes(begin):
    first, second = begin("a", "b", "c"), begin("b", "d")
    first("a")
    second("b", "d")
    with pytest.raises(InputError, match="b: found a later build that makes it, expected none; "):
        first("c", "b")
    # As with `--touch`.
    third = begin()
    third("a", "b")
    second("b")


def test_lists_are_removed_with_what_a_later_build_makes_anew(begin):
    first, _, third = begin("a"), begin("a", "b"), begin("a", "c")
    assert len([*LISTS.iterdir()]) == 2
    begin("a", "b", "c")
    assert len([*LISTS.iterdir()]) == 1
    for check in (first, third):
        with pytest.raises(InputError, match="later build"):
            check("a")


def test_processes_of_no_build_make_what_they_want(begin, monkeypatch):
    begin("a")
    monkeypatch.delenv(BUILD)
    check_newest(["a"])
