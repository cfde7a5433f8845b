"""Locks of files, and who gets which lease: the order of requests, and tickets of dead processes."""

import os

import pytest

from cort.system.locks import Request, allot, hold


def shares(*requests, free):
    return allot([Request(tuple(names), amount) for names, amount in requests], set(free))


@pytest.mark.parametrize(
    ("requests", "free", "expected"),
    [
        *(([("abc", 1)] * 2, "abc", [["a"], ["b"]]), ([("abc", 1)] * 2, "c", [["c"], []])),
        # A request for several keeps what is free while it waits.
        *(([("abc", 2), ("abc", 1)], "b", [["b"], []]), ([("abc", 2), ("abc", 1)], "abc", [["a", "b"], ["c"]])),
        # The first waits for a; the second could wait for it too, but need not.
        ([("a", 1), ("ab", 1), ("c", 1)], "bc", [[], ["b"], ["c"]]),
    ],
)
def test_requests_get_free_names_in_the_order_of_arrival_and_delay_none_that_wants_others(requests, free, expected):
    assert shares(*requests, free=free) == expected


def test_what_is_held_is_locked_and_then_free_again(tmp_path):
    with hold(tmp_path, ["a", "b"], 1) as first, hold(tmp_path, ["a", "b"], 1) as second:
        assert (first, second) == (["a"], ["b"])
        assert f"pid {os.getpid()} on " in (tmp_path / "a.lock").read_text("utf-8")
    with hold(tmp_path, ["b", "a"], 2) as both:
        assert both == ["b", "a"]
    assert {path.name for path in tmp_path.iterdir()} == {"a.lock", "b.lock", "mutex"}


def test_names_need_not_be_names_of_files(tmp_path):
    with hold(tmp_path, ["MIG-GPU-1/7/0", "../x"], 2):
        assert {path.name for path in tmp_path.glob("*.lock")} == {"MIG-GPU-1%2F7%2F0.lock", "..%2Fx.lock"}


def test_tickets_of_the_dead_are_removed(tmp_path):
    (tmp_path / "3.ticket").write_text('[["a"], 1]', "utf-8")
    (tmp_path / "4.ticket").write_text("", "utf-8")
    with hold(tmp_path, ["a"], 1) as held:
        assert held == ["a"]
    assert list(tmp_path.glob("*.ticket")) == []
