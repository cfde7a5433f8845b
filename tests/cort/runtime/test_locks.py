import itertools
import os
import threading
import time

from cort.runtime.locks import hold


def test_what_is_held_is_locked_and_then_free_again(tmp_path):
    with hold(tmp_path, ["a", "b"], 1) as first, hold(tmp_path, ["a", "b"], 1) as second:
        assert (first, second) == (["a"], ["b"])
        assert (tmp_path / "a.lock").read_text("utf-8") == f"pid {os.getpid()}"
    with hold(tmp_path, ["b", "a"], 2) as both:
        assert both == ["b", "a"]


def test_names_need_not_be_names_of_files(tmp_path):
    with hold(tmp_path, ["MIG-GPU-1/7/0", "../x"], 2):
        assert {path.name for path in tmp_path.glob("*.lock")} == {"MIG-GPU-1%2F7%2F0.lock", "..%2Fx.lock"}


def test_requests_for_several_in_any_order_get_them_in_turns(tmp_path):
    times = []

    def work(names):
        with hold(tmp_path, names, 2):
            started = time.monotonic()
            time.sleep(0.01)
            times.append((started, time.monotonic()))

    threads = [threading.Thread(target=work, args=(names,)) for names in ("ab", "ba", "ab", "ba")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == 4
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(sorted(times)))
